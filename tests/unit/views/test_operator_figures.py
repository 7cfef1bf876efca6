"""Operators, kernels and memory of public recordings, as other tools count them.

The figures of the ResNet-50 recordings are PyTorch's TensorBoard plugin's (0.4.3), those of the
two H100 recordings TraceLens's, whose tables lie beside them.
"""

from __future__ import annotations

import ast
import csv
import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.run import Run
from stepscope.views import VIEWS, ViewOptions
from stepscope.views.timeline.payload import FlameNode
from tests.support.drawn_trace import event
from tests.support.imported_runs import REAL_TRACES

Real = Callable[[str], Run]
RESNET = "resnet50_num_workers_0.v100.json.gz"
H100 = ["bert_small.h100", "qwen_0_5b.h100"]
EVERYTHING = 0


def show(real: Real, trace: str, view: str, **options: Any) -> Any:
    """Show one trace of a run, with all rows."""
    payload: Any = VIEWS[view](real(trace), ViewOptions(top=EVERYTHING, **options))
    (trace,) = payload.traces
    return trace


@pytest.mark.seed("PTP-04")
def test_resnet50_operators(real: Real) -> None:
    payload = show(real, RESNET, "operators")
    assert payload.group_count == 76
    top = payload.operators[0]
    assert top.name == "aten::cudnn_convolution_backward_weight"
    assert (top.calls, top.device_self_ns) == (318, 142_461_000)
    share = round(100 * 142_461_000 / payload.device_self_ns)
    assert (
        payload.sentence == f"{top.name} itself takes {share}% of device time, 142 ms in 318 calls."
    )
    assert top.tensor_core_eligible
    assert show(real, RESNET, "operators", by="shape").group_count == 577


@pytest.mark.seed("PTP-04")
def test_resnet50_operators_with_stacks(real: Real) -> None:
    by_name = {o.name: o for o in show(real, RESNET, "operators").operators}
    sums: dict[str, int] = defaultdict(int)
    for row in show(real, RESNET, "operators", by="stack").stacks:
        sums[row.name] += row.device_self_ns
    assert sums == {name: row.device_self_ns for name, row in by_name.items()}


def test_calls_shorter_than_the_clock_of_the_trace_are_counted(
    imported: Callable[..., Run],
) -> None:
    calls = [event("Operator", "aten::as_strided", 5 + at // 5, 0) for at in range(100)]
    run = imported(a=[event("Operator", "aten::unbind", 0, 100), *calls])
    (trace,) = VIEWS["operators"](run, ViewOptions(top=EVERYTHING)).traces
    assert {row.name: row.calls for row in trace.operators} == {
        "aten::unbind": 1,
        "aten::as_strided": 100,
    }
    assert run.reader.sql("SELECT DISTINCT depth FROM operators ORDER BY depth")[
        "depth"
    ].tolist() == [0, 1]


@pytest.mark.seed("PTP-05")
def test_resnet50_kernels(real: Real) -> None:
    payload = show(real, RESNET, "kernels")
    assert (payload.group_count, payload.call_count, payload.total_ns) == (67, 8772, 591_532_000)
    assert (payload.tensor_core_ratio, payload.communication_ratio) == (0, 0)
    assert sum(kernel.share_ratio for kernel in payload.kernels) == pytest.approx(1)
    assert show(real, RESNET, "kernels", by="properties").group_count == 226


@pytest.mark.seed("PTP-07")
def test_resnet50_memory(real: Real) -> None:
    gpu, cpu = show(real, RESNET, "memory").devices
    assert (gpu.device, cpu.device) == ("GPU 0", "CPU")
    assert not gpu.absolute
    top = gpu.operators[0]
    assert top.name == "aten::empty"
    assert round(top.self_size_increase_bytes / 1024) == 33_203_886


@pytest.mark.parametrize("trace", H100)
def test_operators_equal_tracelens(real: Real, trace: str) -> None:
    """It lists operators that launch kernels themselves, and counts only calls that did."""
    payload = show(real, f"{trace}.json.gz", "operators")
    ours = {row.name: row for row in payload.operators}
    theirs = rows(trace, "ops_summary")
    for row in theirs:
        mine = ours[row["name"]]
        # It subtracts microseconds of uptime in doubles, a quarter of a nanosecond apart.
        direct = float(row["total_direct_kernel_time_sum"])
        tolerance = 1e-3 * int(row["Count"])
        assert mine.device_self_ns / 1000 == pytest.approx(direct, abs=tolerance, rel=0)
        assert mine.calls >= int(row["Count"])
    listed = {row["name"] for row in theirs}
    assert {name for name, row in ours.items() if row.calls and row.device_self_ns} == listed


@pytest.mark.parametrize("trace", H100)
def test_operators_by_shape_equal_tracelens(real: Real, trace: str) -> None:
    """It tells apart by types and strides too: those of one shape are added up here."""
    payload = show(real, f"{trace}.json.gz", "operators", by="shape")
    ours = {(row.name, row.input_dims): row.device_self_ns for row in payload.shapes if row.calls}
    theirs: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows(trace, "ops_unique_args"):
        dims = json.dumps(ast.literal_eval(row["Input Dims"]), separators=(",", ":"))
        sums = theirs[row["name"], dims]
        sums[0] += float(row["total_direct_kernel_time_sum"])
        sums[1] += int(row["operation_count"])
    for key, (direct, count) in theirs.items():
        assert ours[key] / 1000 == pytest.approx(direct, abs=1e-3 * count, rel=0)
    assert {key for key, values in ours.items() if values} == set(theirs)


@pytest.mark.parametrize("trace", H100)
def test_kernels_equal_tracelens(real: Real, trace: str) -> None:
    payload = show(real, f"{trace}.json.gz", "kernels", by="properties")
    ours: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in payload.launches:
        ours[row.operator or "", row.name].append(row)
    theirs = rows(trace, "kernel_summary")
    assert len(theirs) == len(ours)
    for row in theirs:
        mine = ours[row["Parent cpu_op"], row["Kernel name"]]
        total, count, mean, shortest, longest = map(float, list(row.values())[4:9])
        assert sum(kernel.calls for kernel in mine) == count
        assert sum(kernel.total_ns for kernel in mine) / 1000 == pytest.approx(total, rel=1e-6)
        assert min(kernel.min_ns for kernel in mine) / 1000 == pytest.approx(shortest, rel=1e-6)
        assert max(kernel.max_ns for kernel in mine) / 1000 == pytest.approx(longest, rel=1e-6)
        assert total / count == pytest.approx(mean, rel=1e-6)


def rows(trace: str, table: str) -> list[dict[str, str]]:
    """Read one of TraceLens's tables."""
    path = REAL_TRACES / "tracelens_reference" / trace / f"{table}.csv"
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_carried_over_kernels_are_counted_apart(real: Real) -> None:
    complete = show(real, "qwen_0_5b.h100.json.gz", "kernels")
    dropped = show(real, "qwen_0_5b.h100.json.gz", "kernels", carry_over="drop")
    assert complete.carry_over_count == dropped.carry_over_count == 436
    assert complete.total_ns - dropped.total_ns == complete.carry_over_ns
    assert complete.call_count - dropped.call_count == 436


@pytest.mark.seed("PTP-07")
@pytest.mark.parametrize("trace", [*H100, "ddp_2ranks_memory.v100"])
def test_the_peak_is_explained_to_the_byte(real: Real, trace: str) -> None:
    for device in show(real, f"{trace}.json.gz", "memory").devices:
        peak = device.peak
        assert device.absolute
        assert peak.allocated_bytes == device.peak_bytes == max(device.allocated_curve_bytes)
        assert (
            sum(holder.held_bytes for holder in peak.holders) + peak.before_bytes
            == device.peak_bytes
        )
        assert 0 <= peak.before_bytes <= device.start_bytes
        if peak.purposes and device.device != "CPU":
            text = show(real, f"{trace}.json.gz", "memory").sentence
            largest = max(peak.purposes, key=lambda purpose: purpose.held_bytes)
            assert f"{round(100 * largest.held_bytes / device.peak_bytes)}% of it" in text
        if peak.purposes:
            assert sum(purpose.held_bytes for purpose in peak.purposes) == device.peak_bytes


def test_modules_of_bert(real: Real) -> None:
    payload = show(real, "bert_small.h100.json.gz", "modules")
    assert payload.modules[0].name == "BertLMHeadModel_0"
    assert payload.modules[0].device_total_ns == payload.operator_device_ns == 309_437
    assert payload.outside_device_ns == 0
    assert sum(module.device_self_ns for module in payload.modules) == 309_437
    by_class: dict[str, list[Any]] = defaultdict(list)
    for module in payload.modules:
        by_class[module.name.strip().rpartition("_")[0]].append(module)
    name, modules = max(by_class.items(), key=lambda item: sum(m.device_self_ns for m in item[1]))
    share = round(100 * sum(module.device_self_ns for module in modules) / 309_437)
    start = f"The {len(modules)} {name} modules themselves take {share}% of device time, "
    assert payload.sentence.startswith(start)


@pytest.mark.parametrize("name", ["bert_small.h100.json.gz", "qwen_0_5b.h100.json.gz"])
def test_the_flame_graph_of_modules_is_their_table(real: Real, name: str) -> None:
    table = show(real, name, "modules").modules
    outermost = [module for module in table if not module.depth]
    for by in ("host", "device"):
        payload = show(real, name, "modules-flame", by=by)
        host = [m.host_total_ns + (m.backward_host_ns or 0) for m in outermost]
        device = [m.device_total_ns for m in outermost]
        assert payload.total_ns == sum(host if by == "host" else device)
        assert payload.left_out_ns + sum(map(_selves, payload.roots)) == payload.total_ns


def _selves(node: FlameNode) -> int:
    return node.self_ns + sum(map(_selves, node.children))


def test_gradients_go_back_to_their_modules(real: Real) -> None:
    payload = show(real, "resnet_checkpointing_8ranks.mi300x.json.gz", "modules")
    top = payload.modules[0]
    assert (top.name, top.occurrences) == ("DistributedDataParallel_0", 3)
    assert top.backward_device_ns > top.device_total_ns / 2
    inside = sum(module.device_self_ns for module in payload.modules)
    assert inside + payload.outside_device_ns == payload.operator_device_ns


@pytest.mark.seed("PTP-09")
def test_modules_on_a_cpu(real: Real) -> None:
    payload = show(real, "../samples/torch213_cpu_all.json", "modules")
    assert [(m.name.strip(), m.depth, m.occurrences) for m in payload.modules] == [
        ("Sequential_0", 0, 8),
        ("Conv2d_0", 1, 8),
        ("ReLU_0", 1, 8),
        ("Flatten_0", 1, 8),
        ("Linear_0", 1, 8),
    ]
    assert payload.modules[0].device_total_ns is None
    assert payload.modules[1].backward_host_ns > 0
    longest = max(payload.modules, key=lambda module: module.host_self_ns)
    host_ns = sum(module.host_total_ns for module in payload.modules if not module.depth)
    share = round(100 * longest.host_self_ns / host_ns)
    start = f"{longest.name.strip()[:-2]} itself takes {share}% of the host time of modules, "
    assert payload.sentence.startswith(start)


def test_steps_are_annotations_in_old_and_new_recordings(real: Real) -> None:
    for trace, count in ((RESNET, 6), ("ddp_2ranks_nccl.a100.json.gz", 3)):
        view: Any = VIEWS["annotations"](real(trace), ViewOptions(name="ProfilerStep#*"))
        assert view.sources[0].histograms[0].duration_ns.count == count
