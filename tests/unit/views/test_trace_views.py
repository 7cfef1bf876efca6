"""The views of a recording: options, what is said when something is missing, JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.run import Run
from stepscope.schema import SCHEMA_VERSION, TABLES, RunInfo
from stepscope.store import DictColumn, RunWriter, create_run, open_run
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS, ViewOptions
from tests.support.drawn_operators import (
    Strings,
    kernel_columns,
    numbers,
    op,
    operator_columns,
    strings,
)

MINE = ("operators", "kernels", "memory", "modules", "modules-flame", "annotations")
GEMM, COPY = "volta_fp16_s884gemm_fp16", "elementwise_kernel<float>"
LINEAR, RELU = "aten::linear", "aten::relu"
START = 1_000


def write_run(path: Path, *traces: Mapping[str, Mapping[str, Any]]) -> Run:
    """Make a run of recordings, each given as the columns that matter of the tables that matter."""
    info = RunInfo(
        schema_version=SCHEMA_VERSION,
        run_id="drawn",
        created_ns=0,
        command=[],
        working_directory="/",
        stepscope_version="0",
    )
    create_run(path, info)
    with RunWriter(path, "n0") as writer:
        for number, tables in enumerate(traces):
            described = {"name": strings([f"rank{number}.json"]), "rank": numbers([number])}
            described |= {"start_ns": numbers([START]), "metadata": strings(["{}"])}
            for table, columns in {**tables, "traces": described}.items():
                writer.append(table, fill_columns(table, number, columns))
    return Run(open_run(path))


def fill_columns(table: str, trace: int, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Fill every column of a table; missing columns are null or 0."""
    first = next(iter(columns.values()))
    rows = len(first.codes) if isinstance(first, Strings) else len(first)
    filled: dict[str, Any] = {}
    for column in TABLES[table].columns:
        values = columns.get(column.name)
        if column.name == "trace":
            filled["trace"] = np.full(rows, trace)
        elif column.type == "VARCHAR":
            empty = None if column.nullable else ""
            filled[column.name] = DictColumn(*(values or strings([empty] * rows)))
        elif values is None and not column.nullable:
            filled[column.name] = np.zeros(rows, dtype=np.int64)
        elif values is None:
            filled[column.name] = np.ma.masked_all(rows, dtype=np.int64)
        else:
            missing = np.isnan(values) if values.dtype.kind == "f" else values == -1
            filled[column.name] = np.ma.MaskedArray(values, mask=missing & column.nullable)
    return filled


def full() -> dict[str, dict[str, Any]]:
    """Everything recorded: two operators in a module, kernels, a graph, memory, annotations."""
    calls = (
        op(LINEAR, 10, dims="[[2,2]]", kernels=[(GEMM, 50), (GEMM, 30)]),
        op(RELU, 5, dims="[[2]]", kernels=[(COPY, 20)]),
    )
    operators = operator_columns(*calls)
    operators["python"] = numbers([201, 200])
    kernels = kernel_columns(*calls)
    kernels["id"] = numbers([300, 301, 302])
    kernels["graph"] = numbers([0, -1, 7])
    kernels["carry_over"] = numbers([0, 1, 0])
    linear, relu = operators["id"].tolist()
    return {
        "operators": operators,
        "kernels": kernels,
        "python_functions": {
            "id": numbers([200, 201]),
            "name": strings(["nn.Module: Net_0", "nn.Module: Linear_0"]),
            "parent": numbers([-1, 200]),
            "module": numbers([200, 201]),
            "module_id": numbers([0, 0]),
            "duration_ns": numbers([40, 20]),
        },
        "memory_events": {
            "id": numbers([400, 401, 402]),
            "t_ns": numbers([START + 1, START + 2, START + 3]),
            "device_type": numbers([1, 1, 1]),
            "address": numbers([64, 128, 64]),
            "size_bytes": numbers([512, 1024, -512]),
            "allocated_bytes": numbers([1512, 2536, 2024]),
            "reserved_bytes": numbers([4096, 4096, 4096]),
            "operator": numbers([linear, relu, -1]),
        },
        "annotations": {
            "id": numbers([500, 501, 502]),
            "name": strings(["step", "step", "step"]),
            "on_device": numbers([0, 0, 1]),
            "duration_ns": numbers([100, 200, 90]),
        },
    }


def without_extras() -> dict[str, dict[str, Any]]:
    """Make a run with operators on the CPU only."""
    return {"operators": operator_columns(op(LINEAR, 10), op(RELU, 5))}


def no_events() -> dict[str, dict[str, Any]]:
    return {}


@pytest.mark.parametrize("drawn", [full, without_extras, no_events])
def test_json_and_back(tmp_path: Path, drawn: Any) -> None:
    run = write_run(tmp_path / "run", drawn(), drawn())
    for view in MINE:
        for by in VIEWS[view].by or (None,):
            payload: Any = VIEWS[view](run, ViewOptions(by=by))
            encoded = msgspec.json.encode(payload)
            assert msgspec.json.decode(encoded, type=type(payload)) == payload
            if view != "annotations":
                assert [trace.rank for trace in payload.traces] == [0, 1]


def test_a_run_without_recordings_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for view in MINE:
        payload: Any = VIEWS[view](run)
        assert "no trace" in payload.missing


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return write_run(tmp_path_factory.mktemp("full") / "run", full())


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return write_run(tmp_path_factory.mktemp("bare") / "run", without_extras())


def only(run: Run, view: str, **options: Any) -> Any:
    """Show the only trace of a run."""
    payload: Any = VIEWS[view](run, ViewOptions(**options))
    (trace,) = payload.sources if view == "annotations" else payload.traces
    return trace


@pytest.mark.seed("PTP-04")
def test_operators(run: Run) -> None:
    payload = only(run, "operators")
    assert [(o.name, o.device_self_ns, o.device_self_ratio) for o in payload.operators] == [
        (LINEAR, 80, 0.8),
        (RELU, 20, 0.2),
    ]
    assert (payload.group_count, payload.device_self_ns, payload.host_self_ns) == (2, 100, 15)
    assert payload.operators[0].tensor_core_eligible
    assert [o.name for o in only(run, "operators", top=1).operators] == [LINEAR]
    shaped = only(run, "operators", by="shape")
    assert [o.input_dims for o in shaped.shapes] == ["[[2,2]]", "[[2]]"]
    stacked = only(run, "operators", by="stack")
    assert [o.stack for o in stacked.stacks] == [
        "nn.Module: Linear_0;nn.Module: Net_0",
        "nn.Module: Net_0",
    ]
    assert (shaped.notes, stacked.notes) == ([], [])
    assert (shaped.operators, shaped.stacks, stacked.shapes) == ([], [], [])


def test_operators_say_what_was_not_recorded(bare: Run) -> None:
    payload = only(bare, "operators")
    assert payload.device_self_ns is None
    assert payload.operators[0].device_total_ns is None
    assert "record_shapes" in only(bare, "operators", by="shape").notes[0]
    assert "with_stack" in only(bare, "operators", by="stack").notes[0]


@pytest.mark.seed("PTP-05")
def test_kernels(run: Run) -> None:
    payload = only(run, "kernels")
    assert [(k.name, k.calls, k.share_ratio) for k in payload.kernels] == [
        (GEMM, 2, 0.8),
        (COPY, 1, 0.2),
    ]
    assert (payload.tensor_core_ratio, payload.communication_ratio) == (0.8, 0)
    assert (payload.carry_over_count, payload.carry_over_ns) == (1, 30)
    assert [(g.graph, g.kernel_count, g.share_ratio) for g in payload.graphs] == [(7, 1, 0.2)]
    assert payload.launches == []


@pytest.mark.seed("PTP-05")
def test_kernels_by_properties_without_what_was_carried_over(run: Run) -> None:
    payload = only(run, "kernels", by="properties", carry_over="drop")
    assert [(k.name, k.operator, k.grid, k.share_ratio) for k in payload.launches] == [
        (GEMM, LINEAR, None, 50 / 70),
        (COPY, RELU, None, 20 / 70),
    ]
    assert (payload.kernels, payload.carry_over_count) == ([], 1)


@pytest.mark.seed("PTP-18")
def test_no_kernels(bare: Run) -> None:
    payload = only(bare, "kernels")
    assert "CUDA" in payload.missing
    assert payload.tensor_core_ratio is None


@pytest.mark.seed("PTP-07")
def test_memory(run: Run) -> None:
    (gpu,) = only(run, "memory").devices
    assert (gpu.device, gpu.start_bytes, gpu.peak_bytes, gpu.end_bytes) == (
        "GPU 0",
        1000,
        2536,
        2024,
    )
    assert (gpu.peak_after_ns, gpu.peak_reserved_bytes) == (2, 4096)
    assert gpu.curve_after_ns == [1, 2, 3]
    assert gpu.allocated_curve_bytes == [1512, 2536, 2024]
    assert [(h.operator, h.held_bytes, h.held_ratio) for h in gpu.peak.holders] == [
        (RELU, 1024, 1024 / 2536),
        (LINEAR, 512, 512 / 2536),
    ]
    assert gpu.peak.before_bytes == 1000
    assert "backward" in gpu.peak.missing
    assert [(b.operator, b.allocated_after_ns, b.released_after_ns) for b in gpu.blocks] == [
        (RELU, 2, None),
        (LINEAR, 1, 3),
    ]
    assert [(o.name, o.self_size_increase_bytes) for o in gpu.operators] == [
        (RELU, 1024),
        (LINEAR, 512),
    ]
    assert (gpu.outside_count, gpu.outside_size_increase_bytes) == (1, -512)


@pytest.mark.seed("PTP-07")
def test_memory_of_some_operators(run: Run) -> None:
    (gpu,) = only(run, "memory", name="relu").devices
    assert [o.name for o in gpu.operators] == [RELU]
    assert [b.operator for b in gpu.blocks] == [RELU]


def test_memory_of_a_recording_without_totals_and_addresses(tmp_path: Path) -> None:
    drawn = full()
    for column in ("address", "allocated_bytes", "reserved_bytes"):
        del drawn["memory_events"][column]
    (gpu,) = only(write_run(tmp_path / "run", drawn), "memory").devices
    assert not gpu.absolute
    assert (gpu.start_bytes, gpu.peak_bytes, gpu.peak) == (0, 1536, None)
    assert len(gpu.notes) == 2
    assert gpu.operators[0].name == RELU


@pytest.mark.seed("PTP-18")
def test_no_memory(bare: Run) -> None:
    assert "profile_memory" in only(bare, "memory").missing


@pytest.mark.seed("PTP-09")
def test_modules(run: Run) -> None:
    payload = only(run, "modules")
    assert [(m.name, m.depth, m.host_self_ns, m.device_total_ns) for m in payload.modules] == [
        ("Net_0", 0, 20, 100),
        ("  Linear_0", 1, 20, 80),
    ]
    assert (payload.source, payload.outside_device_ns) == ("torch.nn", 0)
    assert "does not link" in payload.notes[0]


@pytest.mark.seed("PTP-18")
def test_no_modules(bare: Run) -> None:
    assert "with_modules" in only(bare, "modules").missing


def test_modules_and_their_operators(run: Run) -> None:
    payload = only(run, "modules-flame", by="device")
    (net,) = payload.roots
    assert (net.name, net.total_ns, net.self_ns) == ("Net_0", 100, 0)
    assert [(node.name, node.total_ns) for node in net.children] == [("Linear_0", 80), (RELU, 20)]
    assert (payload.total_ns, payload.outside_ns, payload.left_out_ns) == (100, 0, 0)


def test_no_modules_to_draw(bare: Run) -> None:
    assert "with_modules" in only(bare, "modules-flame").missing


@pytest.mark.seed("SMP-23")
def test_annotations(run: Run) -> None:
    payload = only(run, "annotations")
    assert [(a.name, a.on_device, a.count) for a in payload.annotations] == [
        ("step", False, 2),
        ("step", True, 1),
    ]
    longest = max(payload.annotations, key=lambda row: row.self_ns)
    processor = "device" if longest.on_device else "host"
    assert payload.sentence.startswith(f"step itself takes 100% of annotated {processor} time, ")
    histogram = only(run, "annotations", name="st*", bucket_ns=50)
    assert histogram.annotations == []
    host, device = histogram.histograms
    assert [(b.from_ns, b.count) for b in host.buckets] == [(100, 1), (150, 0), (200, 1)]
    assert device.duration_ns.count == 1
    assert "available: step" in only(run, "annotations", name="forward").missing


def test_steps_that_old_recorders_wrote_down_as_operators(tmp_path: Path) -> None:
    drawn = {"operators": operator_columns(op("ProfilerStep#1", 1, op(RELU, 5)))}
    payload = only(write_run(tmp_path / "run", drawn), "annotations")
    assert [(a.name, a.total_ns) for a in payload.annotations] == [("ProfilerStep#*", 6)]
    assert payload.sentence.startswith("Only the steps are annotated: ")


def test_annotations_of_the_script_itself(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    for number in range(2):
        builder.rank(number).draw("annotation:load 5 | forward 3 | annotation:load ?", 2)
    run = builder.open()
    payload: Any = VIEWS["annotations"](run, ViewOptions(rank=1))
    (source,) = payload.sources
    assert (source.rank, source.trace, payload.missing) == (1, None, None)
    assert [(a.name, a.count, a.max_ns) for a in source.annotations] == [("load", 2, 5_000_000)]
    payload = VIEWS["annotations"](run, ViewOptions(name="load"))
    assert [source.histograms[0].total_ns for source in payload.sources] == [10_000_000] * 2


def test_no_annotations(bare: Run) -> None:
    assert "no annotations" in only(bare, "annotations").missing
