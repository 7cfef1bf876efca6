"""Replayed graphs, and recomputed operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.analysis import RECOMPUTATION_COLUMNS, Recomputation, find_recomputation
from stepscope.analysis.devices.device_work import KERNEL, MEMCPY
from stepscope.analysis.devices.graph_replays import (
    Capture,
    build_graph_table,
    collect_graph_work,
    list_graph_kernels,
    name_captured_operators,
    sum_replayed_operators,
)
from tests.support.drawn_operators import Op, numbers, op, operator_columns, strings
from tests.support.imported_runs import REAL_TRACES, import_into

CALL = 90


def columns(
    names: list[str], launches: list[int], *, graph: int = -1, nodes: list[int] | None = None
) -> dict[str, Any]:
    """Return kernels of 10 ns each, one after the other."""
    count = len(names)
    return {
        "name": strings(names),
        "kind": strings([None] * count),
        "start_ns": numbers([100 * index for index in range(count)]),
        "duration_ns": numbers([10] * count),
        "launch": numbers(launches),
        "operator": numbers([-1] * count),
        "graph": numbers([graph] * count),
        "graph_node": numbers(nodes or [-1] * count),
        "captured_operator": numbers([-1] * count),
    }


def capture(kernels: list[str | None], operators: list[str | None]) -> Capture:
    return Capture(
        kinds=(KERNEL,) * len(kernels), kernels=tuple(kernels), operators=tuple(operators)
    )


def operators_of(work: Any, *captures: Capture) -> list[str | None]:
    return name_captured_operators(work, captures)


def test_work_of_calls_without_numbers_of_graphs_is_grouped_by_its_kernels() -> None:
    """HIP records neither graphs nor nodes: the same kernels in the same order are one graph."""
    kernels = columns(["a", "b", "a", "b", "c", "a"], [CALL, CALL, 91, 91, 92, 5])
    work = collect_graph_work(kernels, columns([], []), numbers([CALL, 91, 92]))
    assert len(work) == 5  # call 5 launched a single kernel
    pair, single = build_graph_table(work, 60)
    assert (pair.number, pair.graph, pair.replays, pair.kernel_count) == (1, None, 2, 4)
    assert (pair.distinct_kernel_count, pair.share_ratio) == (2, pytest.approx(40 / 60))
    assert (single.number, single.replays, single.total_ns) == (2, 1, 10)


def test_a_capture_fits_by_the_names_of_its_kernels() -> None:
    work = collect_graph_work(
        columns(["a", "b", "a"], [CALL] * 3), columns([], []), numbers([CALL])
    )
    fitting = capture(["a", "b", "a"], ["mm", "relu", None])
    assert operators_of(work, fitting) == ["mm", "relu", None]
    assert operators_of(work, fitting, fitting) == ["mm", "relu", None]
    assert operators_of(work, capture(["a", "a", "b"], ["mm", "mm", "relu"])) == [None] * 3
    assert operators_of(work, capture(["a", "b"], ["mm", "relu"])) == [None] * 3
    rival = capture(["a", "b", "a"], ["mm", "gelu", None])
    assert operators_of(work, fitting, rival) == [None] * 3
    replayed = sum_replayed_operators(work, ["mm", "relu", None], 40)
    assert [(row.name, row.work_count, row.device_ns, row.device_ratio) for row in replayed] == [
        ("mm", 1, 10, 0.25),
        ("relu", 1, 10, 0.25),
    ]
    kernels = list_graph_kernels(work, ["mm", "relu", None], 40)
    assert {(row.name, row.operator): row.calls for row in kernels} == {
        ("a", "mm"): 1,
        ("b", "relu"): 1,
        ("a", None): 1,
    }


def test_without_names_of_kernels_a_capture_needs_numbered_nodes_and_no_rival() -> None:
    unnamed = capture([None, None], ["mm", "relu"])
    calls, nothing = numbers([CALL, 91]), columns([], [])
    with_nodes = columns(["b", "a"], [CALL] * 2, graph=3, nodes=[8, 7])
    work = collect_graph_work(with_nodes, nothing, calls)
    assert [work.names[code] for code in work.name] == ["a", "b"]  # in the order of nodes
    assert operators_of(work, unnamed) == ["mm", "relu"]
    without_nodes = collect_graph_work(columns(["a", "b"], [CALL] * 2), nothing, calls)
    assert operators_of(without_nodes, unnamed) == [None, None]
    two = columns(["a", "b", "c", "d"], [CALL, CALL, 91, 91], graph=3, nodes=[7, 8, 7, 8])
    two["graph"][2:] = 4
    assert operators_of(collect_graph_work(two, nothing, calls), unnamed) == [None] * 4


def test_copies_are_work_of_the_graph_too() -> None:
    copies = columns(["Memcpy DtoD"], [CALL])
    copies["kind"], copies["start_ns"] = strings(["memcpy"]), numbers([50])
    work = collect_graph_work(columns(["a", "b"], [CALL] * 2), copies, numbers([CALL]))
    assert work.kind.tolist() == [KERNEL, MEMCPY, KERNEL]
    fitting = Capture(
        kinds=(KERNEL, MEMCPY, KERNEL), kernels=("a", None, "b"), operators=("mm", "copy_", "relu")
    )
    assert operators_of(work, fitting) == ["mm", "copy_", "relu"]


def test_no_graphs() -> None:
    work = collect_graph_work(columns(["a"], [CALL]), columns([], []), numbers([]))
    assert build_graph_table(work, 10) == []
    assert operators_of(work) == []


NODE = "autograd::engine::evaluate_function: "
MM, ADD = "aten::mm", "aten::add"


def find(*roots: Op, with_gradient: set[str], top: int = 0) -> Recomputation | None:
    """Find the recomputation of drawn calls; backward nodes have the number of their forward."""
    columns = operator_columns(*roots)
    names = [columns["name"].values[code] for code in columns["name"].codes]
    is_backward = [name.startswith("autograd") or "Backward" in name for name in names]
    numbered = [b or n in with_gradient for b, n in zip(is_backward, names, strict=True)]
    columns["sequence"] = numbers([7 if is_numbered else -1 for is_numbered in numbered])
    columns["forward_thread"] = numbers(
        [int(b) if n else -1 for b, n in zip(is_backward, numbered, strict=True)]
    )
    return find_recomputation(columns, top=top)


def engine(name: str, *inside: Op) -> Op:
    return op(NODE + name, 1, op(name, 1, *inside))


def test_operators_with_gradients_inside_a_node_are_recomputed() -> None:
    forward = op(MM, 10, kernels=[("k", 100)])
    again = [
        op(MM, 10, op("aten::inner", 3, kernels=[("k", 50)]), kernels=[("k", 100)])
        for _ in range(2)
    ]
    node = engine(
        "ReluBackward0", *again, op(ADD, 5), op("aten::threshold_backward", 4, kernels=[("k", 30)])
    )
    result = find(forward, node, with_gradient={MM, ADD})
    assert [(row.name, row.calls, row.device_ns, row.host_ns) for row in result.operators] == [
        (MM, 2, 300, 26), (ADD, 1, 0, 5),
    ]  # fmt: skip
    assert (result.call_count, result.device_ns, result.host_ns) == (3, 300, 31)
    assert result.device_ratio == 300 / (100 + 300 + 30)
    assert result.host_ratio == 31 / (10 + 1 + 1 + 31 + 4)


def test_a_checkpoint_node_recomputes_before_its_own_backward_pass() -> None:
    inner = engine("MmBackward0", op("aten::t", 2))
    node = engine("CheckpointFunctionBackward", op(MM, 10, kernels=[("k", 100)]), inner)
    result = find(op(MM, 10), node, with_gradient={MM})
    assert [(row.name, row.calls) for row in result.operators] == [(MM, 1)]


def test_gradients_of_gradients_are_no_recomputation() -> None:
    result = find(
        op(MM, 10), engine("MulBackward0", op("aten::mul", 2)), with_gradient={MM, "aten::mul"}
    )
    assert (result.call_count, result.device_ratio, result.operators) == (0, None, [])


def test_unknown_is_not_none() -> None:
    assert find(op(MM, 10), with_gradient={MM}) is None
    assert find(op(MM, 10), engine("MmBackward0", op("aten::t", 2)), with_gradient=set()) is None


@pytest.mark.parametrize("mode", ["plain", "reentrant", "non-reentrant"])
def test_a_recorded_step(tmp_path: Path, mode: str) -> None:
    torch = pytest.importorskip("torch")
    checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint
    block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 4))
    data = torch.ones(2, 4, requires_grad=True)

    def step() -> None:
        output: Any = (
            block(data)
            if mode == "plain"
            else checkpoint(block, data, use_reentrant=mode == "reentrant")
        )
        output.sum().backward()

    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        step()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    (trace,) = import_into(tmp_path / "run", tmp_path / "trace.json").traces
    result = find_recomputation(trace.columns("operators", RECOMPUTATION_COLUMNS))
    calls = {row.name: row.calls for row in result.operators}
    # The last operator of a segment need not run again: nothing saved it.
    expected = {"plain": {}, "reentrant": {"aten::linear": 2, "aten::gelu": 1}}
    if mode == "non-reentrant":
        assert calls["aten::gelu"] == 1
        assert calls["aten::linear"] in {1, 2}
    else:
        assert {name: calls[name] for name in expected[mode]} == expected[mode]
        assert bool(calls) == (mode != "plain")


def test_a_real_trace(tmp_path: Path) -> None:
    path = REAL_TRACES / "resnet_checkpointing_8ranks.mi300x.json.gz"
    if not path.exists():
        pytest.skip(f"needs {path}")
    (trace,) = import_into(tmp_path / "run", path).traces
    result = find_recomputation(trace.columns("operators", RECOMPUTATION_COLUMNS))
    columns = trace.columns("operators", ("name", "track"))
    names = np.array(columns["name"].values)[columns["name"].codes]
    # All convolutions run twice but those of the stem, which are not in a checkpoint.
    calls = {row.name: row.calls for row in result.operators}
    backward_count = int((names == "aten::convolution_backward").sum())
    assert calls["aten::conv2d"] == int((names == "aten::conv2d").sum()) - backward_count
