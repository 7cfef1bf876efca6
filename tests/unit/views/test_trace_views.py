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
    """A run of recordings, each given as the columns that matter of the tables that matter."""
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
                writer.append(table, whole(table, number, columns))
    return Run(open_run(path))


def whole(table: str, trace: int, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Every column of a table: what is not given is null or 0."""
    first = next(iter(columns.values()))
    rows = len(first.codes) if isinstance(first, Strings) else len(first)
    made: dict[str, Any] = {}
    for column in TABLES[table].columns:
        given = columns.get(column.name)
        if column.name == "trace":
            made["trace"] = np.full(rows, trace)
        elif column.type == "VARCHAR":
            empty = None if column.nullable else ""
            made[column.name] = DictColumn(*(given or strings([empty] * rows)))
        elif given is None and not column.nullable:
            made[column.name] = np.zeros(rows, dtype=np.int64)
        elif given is None:
            made[column.name] = np.ma.masked_all(rows, dtype=np.int64)
        else:
            missing = np.isnan(given) if given.dtype.kind == "f" else given == -1
            made[column.name] = np.ma.MaskedArray(given, mask=missing & column.nullable)
    return made


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
    """Operators on the CPU, and no more."""
    return {"operators": operator_columns(op(LINEAR, 10), op(RELU, 5))}


def no_events() -> dict[str, dict[str, Any]]:
    return {}


@pytest.mark.parametrize("view", MINE)
@pytest.mark.parametrize("drawn", [full, without_extras, no_events])
def test_json_and_back(tmp_path: Path, drawn: Any, view: str) -> None:
    signals = write_run(tmp_path / "run", drawn(), drawn())
    for by in VIEWS[view].by or (None,):
        payload: Any = VIEWS[view](signals, ViewOptions(by=by))
        encoded = msgspec.json.encode(payload)
        assert msgspec.json.decode(encoded, type=type(payload)) == payload
        if view != "annotations":
            assert [trace.rank for trace in payload.traces] == [0, 1]


@pytest.mark.parametrize("view", MINE)
def test_a_run_without_recordings_says_so(tmp_path: Path, view: str) -> None:
    payload: Any = VIEWS[view](write_run(tmp_path / "run"))
    assert "no recording" in payload.missing


@pytest.fixture
def signals(tmp_path: Path) -> Run:
    return write_run(tmp_path / "run", full())


@pytest.fixture
def bare(tmp_path: Path) -> Run:
    return write_run(tmp_path / "run", without_extras())


def only(signals: Run, view: str, **options: Any) -> Any:
    """What a view says of the only recording."""
    payload: Any = VIEWS[view](signals, ViewOptions(**options))
    (found,) = payload.sources if view == "annotations" else payload.traces
    return found


def test_operators(signals: Run) -> None:
    found = only(signals, "operators")
    assert [(o.name, o.device_self_ns, o.device_self_ratio) for o in found.operators] == [
        (LINEAR, 80, 0.8),
        (RELU, 20, 0.2),
    ]
    assert (found.group_count, found.device_self_ns, found.host_self_ns) == (2, 100, 15)
    assert found.operators[0].tensor_core_eligible
    assert [o.name for o in only(signals, "operators", top=1).operators] == [LINEAR]
    shaped = only(signals, "operators", by="shape")
    assert [o.input_dims for o in shaped.shapes] == ["[[2,2]]", "[[2]]"]
    stacked = only(signals, "operators", by="stack")
    assert [o.stack for o in stacked.stacks] == [
        "nn.Module: Linear_0;nn.Module: Net_0",
        "nn.Module: Net_0",
    ]
    assert (shaped.notes, stacked.notes) == ([], [])
    assert (shaped.operators, shaped.stacks, stacked.shapes) == ([], [], [])


def test_operators_say_what_was_not_recorded(bare: Run) -> None:
    found = only(bare, "operators")
    assert found.device_self_ns is None
    assert found.operators[0].device_total_ns is None
    assert "record_shapes" in only(bare, "operators", by="shape").notes[0]
    assert "with_stack" in only(bare, "operators", by="stack").notes[0]


def test_kernels(signals: Run) -> None:
    found = only(signals, "kernels")
    assert [(k.name, k.calls, k.share_ratio) for k in found.kernels] == [
        (GEMM, 2, 0.8),
        (COPY, 1, 0.2),
    ]
    assert (found.tensor_core_ratio, found.communication_ratio) == (0.8, 0)
    assert (found.carry_over_count, found.carry_over_ns) == (1, 30)
    assert [(g.graph, g.kernel_count, g.share_ratio) for g in found.graphs] == [(7, 1, 0.2)]
    assert found.launches == []


def test_kernels_by_properties_without_what_was_carried_over(signals: Run) -> None:
    found = only(signals, "kernels", by="properties", carry_over="drop")
    assert [(k.name, k.operator, k.grid, k.share_ratio) for k in found.launches] == [
        (GEMM, LINEAR, None, 50 / 70),
        (COPY, RELU, None, 20 / 70),
    ]
    assert (found.kernels, found.carry_over_count) == ([], 1)


def test_no_kernels(bare: Run) -> None:
    found = only(bare, "kernels")
    assert "CUDA" in found.missing
    assert found.tensor_core_ratio is None


def test_memory(signals: Run) -> None:
    (gpu,) = only(signals, "memory").devices
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


def test_memory_of_some_operators(signals: Run) -> None:
    (gpu,) = only(signals, "memory", name="relu").devices
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


def test_no_memory(bare: Run) -> None:
    assert "profile_memory" in only(bare, "memory").missing


def test_modules(signals: Run) -> None:
    found = only(signals, "modules")
    assert [(m.name, m.depth, m.host_self_ns, m.device_total_ns) for m in found.modules] == [
        ("Net_0", 0, 20, 100),
        ("  Linear_0", 1, 20, 80),
    ]
    assert (found.source, found.outside_device_ns) == ("torch.nn", 0)
    assert "arrows" in found.notes[0]


def test_no_modules(bare: Run) -> None:
    assert "with_modules" in only(bare, "modules").missing


def test_modules_and_their_operators(signals: Run) -> None:
    found = only(signals, "modules-flame", by="device")
    (net,) = found.roots
    assert (net.name, net.total_ns, net.self_ns) == ("Net_0", 100, 0)
    assert [(node.name, node.total_ns) for node in net.children] == [("Linear_0", 80), (RELU, 20)]
    assert (found.total_ns, found.outside_ns, found.left_out_ns) == (100, 0, 0)


def test_no_modules_to_draw(bare: Run) -> None:
    assert "with_modules" in only(bare, "modules-flame").missing


def test_annotations(signals: Run) -> None:
    found = only(signals, "annotations")
    assert [(a.name, a.on_device, a.count) for a in found.annotations] == [
        ("step", False, 2),
        ("step", True, 1),
    ]
    named = only(signals, "annotations", name="st*", bucket_ns=50)
    assert named.annotations == []
    host, device = named.histograms
    assert [(b.from_ns, b.count) for b in host.buckets] == [(100, 1), (150, 0), (200, 1)]
    assert device.duration_ns.count == 1
    assert "there are step" in only(signals, "annotations", name="forward").missing


def test_steps_that_old_recorders_wrote_down_as_operators(tmp_path: Path) -> None:
    drawn = {"operators": operator_columns(op("ProfilerStep#1", 1, op(RELU, 5)))}
    found = only(write_run(tmp_path / "run", drawn), "annotations")
    assert [(a.name, a.total_ns) for a in found.annotations] == [("ProfilerStep#*", 6)]


def test_annotations_of_the_script_itself(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    for number in range(2):
        run.rank(number).draw("annotation:load 5 | forward 3 | annotation:load ?", 2)
    signals = run.open()
    payload: Any = VIEWS["annotations"](signals, ViewOptions(rank=1))
    (found,) = payload.sources
    assert (found.rank, found.trace, payload.missing) == (1, None, None)
    assert [(a.name, a.count, a.max_ns) for a in found.annotations] == [("load", 2, 5_000_000)]
    payload = VIEWS["annotations"](signals, ViewOptions(name="load"))
    assert [source.histograms[0].total_ns for source in payload.sources] == [10_000_000] * 2


def test_no_annotations(bare: Run) -> None:
    assert "no annotation" in only(bare, "annotations").missing
