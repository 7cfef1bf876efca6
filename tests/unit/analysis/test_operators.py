"""Operators: tables, and their profile in steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis.operators.operator_table import (
    OperatorGroup,
    OperatorShape,
    OperatorStack,
    build_operator_table,
    is_tensor_core_eligible,
    measure_eligible_ratio,
)
from stepscope.analysis.operators.operator_tree import make_stack_labels, make_string_labels
from stepscope.analysis.trace_steps.host_time import ComputeProfile, profile_compute
from stepscope.intervals import Int, Intervals, nesting_order, parents
from stepscope.store import DictColumn
from stepscope.testing import Drawing
from stepscope.testing.drawing import DrawnEvent
from tests.support.drawn_operators import Op, kernel_columns, numbers, op, operator_columns, strings

FAST, SLOW = "volta_fp16_s884gemm_fp16", "vectorized_elementwise_kernel"


def table(*roots: Op, **options: Any) -> dict[str, OperatorGroup]:
    columns = operator_columns(*roots)
    operators = build_operator_table(columns, kernel_columns(*roots), **options)
    return {row.name: row for row in operators.rows}


def test_self_time_excludes_operators_and_runtime_calls_inside() -> None:
    rows = table(
        op("linear", 10, op("t", 3), op("addmm", 5, runtime=7, kernels=[(SLOW, 40)])),
        op("addmm", 2, runtime=1, kernels=[(SLOW, 60)]),
    )
    addmm, linear = rows["addmm"], rows["linear"]
    assert (addmm.calls, addmm.host_self_ns, addmm.host_total_ns) == (2, 7, 15)
    assert (addmm.device_self_ns, addmm.device_total_ns, addmm.device_self_ratio) == (100, 100, 1)
    assert (linear.host_self_ns, linear.host_total_ns) == (10, 25)
    assert (linear.device_self_ns, linear.device_total_ns) == (0, 40)
    assert linear.host_self_ratio == pytest.approx(10 / 20)


def test_only_child_of_the_same_name_is_merged() -> None:
    rows = table(
        op("empty", 1, op("empty", 2, op("empty", 4, kernels=[(SLOW, 5)]), runtime=8)),
        op("copy", 1, op("copy", 1), op("copy", 1)),
    )
    empty = rows["empty"]
    assert (empty.calls, empty.host_total_ns, empty.host_self_ns) == (1, 15, 7)
    assert (empty.device_self_ns, empty.device_total_ns) == (5, 5)
    assert (rows["copy"].calls, rows["copy"].host_total_ns) == (3, 5)


def test_calls_of_no_length_are_not_the_call_beside_them() -> None:
    views = [op("unbind", 1, op("view", 1, op("view", 0))), op("unbind", 1, op("view", 0))]
    assert table(*views)["view"].calls == 3
    dispatched = [op("to", 1, op("to", 1)), op("to", 1, op("to", 0))]
    assert table(*dispatched)["to"].calls == 2


def test_excluded_ranges_do_not_hide_operators_inside() -> None:
    rows = table(
        op("ProfilerStep#5", 1, op("add", 1)),
        op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, op("stack", 1)),
        op("Optimizer.step#SGD.step", 1, op("Optimizer.zero_grad#SGD.zero_grad", 1), op("mul", 1)),
        op("DistributedDataParallel.forward", 1, op("conv", 1)),
        op("DataParallel.forward", 1),
    )
    assert set(rows) == {"add", "stack", "mul", "conv"}


def test_work_without_an_operator_is_a_row_of_its_own() -> None:
    """Work of graphs, of carry-over and of neither; a step is no operator."""
    calls = (op("mm", 1, kernels=[(SLOW, 10)]), op("ProfilerStep#5", 1, kernels=[(FAST, 2)]))
    operators = operator_columns(*calls)
    kernels = kernel_columns(*calls, op("lost", 1, kernels=[(FAST, 60), (SLOW, 20), (SLOW, 5)]))
    kernels["operator"][2:] = -1
    kernels["launch"][2:4] = 90
    kernels["carry_over"][4] = 1
    copies = kernel_columns(op("lost", 1, kernels=[("Memcpy", 3)]))
    copies["operator"][:] = -1
    table = build_operator_table(operators, kernels, copies, graph_calls=numbers([90]))
    assert [(row.name, row.device_self_ns, row.calls) for row in table.rows] == [
        ("no operator (graph)", 80, 0),
        ("mm", 10, 1),
        ("no operator (carry-over)", 5, 0),
        ("no operator", 2 + 3, 0),
    ]
    assert table.device_self_ns == 10 + 2 + 60 + 20 + 5 + 3
    assert sum(row.device_self_ratio or 0 for row in table.rows) == pytest.approx(1)
    assert table.rows[0].tensor_core_self_ratio == 0.75
    top = build_operator_table(operators, kernels, graph_calls=numbers([90]), top=1)
    assert [row.name for row in top.rows] == ["no operator (graph)"]


def test_tensor_cores() -> None:
    rows = table(
        op("aten::linear", 1, op("aten::addmm", 1, kernels=[(FAST, 30), (SLOW, 10)])),
        op("aten::softmax", 1, kernels=[(SLOW, 20)]),
        op("block", 1, op("mine", 1, kernels=[(FAST, 1)]), kernels=[(SLOW, 3)]),
    )
    assert rows["aten::addmm"].tensor_core_self_ratio == pytest.approx(0.75)
    assert rows["aten::linear"].tensor_core_self_ratio is None
    assert rows["aten::linear"].tensor_core_total_ratio == pytest.approx(0.75)
    assert rows["aten::softmax"].tensor_core_total_ratio == 0
    assert (rows["block"].tensor_core_self_ratio, rows["block"].tensor_core_total_ratio) == (
        0,
        0.25,
    )
    unknown = table(op("mine", 1, kernels=[(FAST, 30), ("my_own_kernel", 10)]))["mine"]
    assert (unknown.tensor_core_total_ratio, unknown.unknown_tensor_core_ratio) == (0.75, 0.25)
    eligible = {name for name, row in rows.items() if row.tensor_core_eligible}
    assert eligible == {"aten::linear", "aten::addmm", "mine", "block"}


@pytest.mark.parametrize(
    "name", ["aten::convolution_backward", "MmBackward", "AddmmBackward0", "aten::bmm"]
)
def test_eligible_by_name(name: str) -> None:
    assert is_tensor_core_eligible(name)


def test_device_figures_are_none_without_a_device() -> None:
    table = build_operator_table(operator_columns(op("add", 5), op("mul", 9)), None)
    assert [row.name for row in table.rows] == ["mul", "add"]
    for row in table.rows:
        assert row.device_self_ns is row.device_total_ns is row.device_self_ratio is None
        assert row.tensor_core_eligible is row.tensor_core_self_ratio is None
    assert table.device_self_ns is None


def test_by_shape() -> None:
    columns = operator_columns(
        op("mm", 1, dims="[[2,2]]"),
        op("mm", 2, dims="[[4,4]]"),
        op("mm", 3, dims="[[2,2]]"),
        op("mm", 9),
    )
    table = build_operator_table(columns, None, shapes=make_string_labels(columns["input_dims"]))
    rows = [row for row in table.rows if isinstance(row, OperatorShape)]
    assert [(row.input_dims, row.calls, row.host_self_ns) for row in rows] == [
        (None, 1, 9),
        ("[[2,2]]", 2, 4),
        ("[[4,4]]", 1, 2),
    ]
    assert (table.group_count, table.call_count) == (3, 4)


def test_by_stack() -> None:
    functions = {
        "id": numbers([90, 91, 92, 93, 94]),
        "name": strings(["train.py(1): main", "model.py(5): f", "g", "model.py(5): f", "g"]),
        "parent": numbers([-1, 90, 91, 90, 93]),
    }
    columns = operator_columns(op("add", 1), op("add", 2), op("add", 4), op("add", 8))
    labels = make_stack_labels(functions, numbers([92, 94, 91, -1]))
    table = build_operator_table(columns, None, stacks=labels)
    rows = [row for row in table.rows if isinstance(row, OperatorStack)]
    assert [(row.stack, row.calls, row.host_self_ns) for row in rows] == [
        (None, 1, 8),
        ("model.py(5): f;train.py(1): main", 1, 4),
        ("g;model.py(5): f;train.py(1): main", 2, 3),
    ]


def test_only_the_largest() -> None:
    columns = operator_columns(op("a", 1), op("b", 3), op("c", 2))
    table = build_operator_table(columns, None, top=2)
    assert [row.name for row in table.rows] == ["b", "c"]
    assert (table.group_count, table.host_self_ns) == (3, 6)


def test_nothing_recorded() -> None:
    table = build_operator_table(operator_columns(), kernel_columns())
    assert (table.rows, table.group_count, table.call_count) == ([], 0, 0)


# --- reference by the definition, call by call ----------------------------------------------------

trees = st.recursive(
    st.builds(
        op,
        st.sampled_from(["a", "b", "aten::mm", "ProfilerStep#1"]),
        st.integers(1, 9),
        runtime=st.integers(0, 9),
        kernels=st.lists(st.tuples(st.sampled_from([FAST, SLOW]), st.integers(0, 9)), max_size=2),
    ),
    lambda inner: st.builds(
        lambda call, inside: Op(call.name, call.self_ns, inside, call.runtime, call.kernels),
        st.builds(
            op,
            st.sampled_from(["a", "b", "aten::mm"]),
            st.integers(1, 9),
            runtime=st.integers(0, 9),
            kernels=st.lists(st.tuples(st.just(FAST), st.integers(0, 9)), max_size=1),
        ),
        st.lists(inner, max_size=3),
    ),
    max_leaves=12,
)


def by_hand(roots: Sequence[Op]) -> dict[str, list[int]]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * 7)
    for root in roots:
        for call, _, _ in root.merged().walk():
            below = [kernel for c, _, _ in call.walk() for kernel in c.kernels]
            values = (
                1,
                call.self_ns,
                call.duration,
                call.device_self,
                call.device_total,
                sum(duration for name, duration in call.kernels if name == FAST),
                sum(duration for name, duration in below if name == FAST),
            )
            sums[call.name] = [a + b for a, b in zip(sums[call.name], values, strict=True)]
    return dict(sums)


@given(st.lists(trees, max_size=4))
def test_sums_equal_a_count_call_by_call(roots: list[Op]) -> None:
    expected = by_hand(roots)
    steps = expected.pop("ProfilerStep#1", [0] * 7)
    rows = table(*roots)
    outside = rows.pop("no operator", None)
    assert (outside.device_self_ns if outside else 0) == steps[3]  # a step is no operator
    assert set(rows) == set(expected)
    for name, row in rows.items():
        calls, self_ns, total_ns, device, device_total, fast, fast_total = expected[name]
        assert (row.calls, row.host_self_ns, row.host_total_ns) == (calls, self_ns, total_ns)
        assert (row.device_self_ns, row.device_total_ns) == (device, device_total)
        assert row.tensor_core_self_ratio == (pytest.approx(fast / device) if device else None)
        assert row.tensor_core_total_ratio == (
            pytest.approx(fast_total / device_total) if device_total else None
        )


def test_share_of_kernels_that_could_use_tensor_cores() -> None:
    """Eligible: 30 of `aten::mm`, and 20 of a caller of it; not 50 of an addition."""
    roots = [
        op("step", 1, op("aten::mm", 1, kernels=[(SLOW, 30)]), kernels=[(SLOW, 20)]),
        op("aten::add", 1, kernels=[(SLOW, 50)]),
    ]
    columns = operator_columns(*roots)
    assert measure_eligible_ratio(columns, kernel_columns(*roots)) == 50 / 100
    assert measure_eligible_ratio(columns, kernel_columns(op("aten::mm", 1))) is None


def profile(text: str, *, steps: int = 1) -> ComputeProfile | None:
    drawing = Drawing().draw(text)
    spans = drawing.table()
    phases = {kind: spans.of(kind).intervals for kind in ("forward", "backward", "optimizer")}
    columns, device = window_of(drawing)
    return profile_compute(columns, device, phases, step_count=steps)


def window_of(drawing: Drawing) -> tuple[dict[str, Any], Intervals]:
    """Return the drawn operators with their self times, and the drawn device work."""
    events = drawing.events
    operators = [event for event in events if event.category == "cpu_op"]
    device_work = [event for event in events if event.category != "cpu_op"]
    start, end = extents(operators)
    order = nesting_order(start, end)
    start, end = start[order], end[order]
    parent = parents(start, end)
    called_ns = np.array([(end - start)[parent == row].sum() for row in range(len(start))])
    columns = {
        "name": DictColumn.encode(operators[i].name for i in order),
        "start_ns": start,
        "duration_ns": end - start,
        "host_self_ns": end - start - called_ns,
        "parent": parent,
    }
    return columns, Intervals(*extents(device_work))


def extents(events: Sequence[DrawnEvent]) -> tuple[Int, Int]:
    return (
        np.array([event.start for event in events], dtype=np.int64),
        np.array([event.end for event in events], dtype=np.int64),
    )


SMALL = " | ".join(["op:add 0.01 | do 0.01"] * 100)
PROFILES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "a large operator is work under any caller": (
        "forward 10 ( op:linear 9 ( op:addmm 8 ) ) | backward 10 ( op:mm 10 )",
        1,
        {
            "compute_ns": 20_000_000,
            "overhead_ratio": 1 - 19 / 20,
            "overhead_by_phase": {"forward": 0.1, "backward": 0},
            "operator_count_per_step": 2,
            "largest": {"mm": 0.5, "addmm": 0.4, "linear": 0.05},
            "small_ratio": 0,
            "on_device": False,
        },
    ),
    "many small operators are overhead": (
        f"forward ( {SMALL} ) | do 5 | optimizer 2 ( op:step 1 )",
        2,
        {
            "compute_ns": 4_000_000,
            "overhead_ratio": 1 - 1 / 4,
            "operator_count_per_step": 101 / 2,
            "small_ratio": 100 / 101,
            "largest": {"step": 0.25, "add": 0.25},
        },
    ),
    "operators of twenty microseconds are work": (
        "forward 1 ( op:a 0.02 | op:b 0.019999 )",
        1,
        {"overhead_ratio": 1 - 0.02, "small_ratio": 0.5},
    ),
    "half of the work is in operators of at least the median": (
        "forward 10 ( op:a 1 | op:a 1 | op:a 1 | op:b 3 | op:c 4 )",
        1,
        {"median_work_ns": 3_000_000},
    ),
    "on a GPU kernels and copies are the work": (
        "forward 10 ( op:linear 1 | kernel:gemm 4 ( memcpy:HtoD 2 ) | memcpy:DtoH 1 ) | "
        "kernel:late 50",
        1,
        {"on_device": True, "overhead_ratio": 1 - 5 / 10},
    ),
    "operators outside the compute phases do not count": (
        "op:load 90 | forward 10 ( op:linear 10 )",
        1,
        {"overhead_ratio": 0, "largest": {"linear": 1}},
    ),
}


@pytest.mark.parametrize("name", PROFILES)
def test_profile_of_compute(name: str) -> None:
    text, step_count, expected = PROFILES[name]
    compute = profile(text, steps=step_count)
    for field, value in expected.items():
        assert getattr(compute, field) == pytest.approx(value), field


def test_without_operators_there_is_no_profile() -> None:
    assert profile("forward 10 | op:load 90") is None
    assert profile("op:load 90") is None
    assert profile("forward 10 ( kernel:gemm 10 )") is None
