"""Large operators or small ones, on CPU and on a GPU. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stepscope.analysis.operators import ComputeProfile, profile_compute
from stepscope.intervals import Int, Intervals, nesting_order, parents
from stepscope.store import DictColumn
from stepscope.testing import Drawing
from stepscope.testing.drawing import DrawnEvent


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


def test_large_operator_is_work_under_any_caller() -> None:
    compute = profile("forward 10 ( op:linear 9 ( op:addmm 8 ) ) | backward 10 ( op:mm 10 )")
    assert compute is not None
    assert compute.compute_ns == 20_000_000
    assert compute.overhead_ratio == pytest.approx(1 - 19 / 20)
    assert compute.overhead_by_phase == pytest.approx({"forward": 0.1, "backward": 0})
    assert compute.operator_count_per_step == 2
    assert compute.largest == pytest.approx({"mm": 0.5, "addmm": 0.4, "linear": 0.05})
    assert compute.small_ratio == 0
    assert not compute.on_device


def test_many_small_operators_are_overhead() -> None:
    small = " | ".join(["op:add 0.01 | do 0.01"] * 100)
    compute = profile(f"forward ( {small} ) | do 5 | optimizer 2 ( op:step 1 )", steps=2)
    assert compute is not None
    assert compute.compute_ns == 4_000_000
    assert compute.overhead_ratio == pytest.approx(1 - 1 / 4)
    assert compute.operator_count_per_step == 101 / 2
    assert compute.small_ratio == pytest.approx(100 / 101)
    assert compute.largest == pytest.approx({"step": 0.25, "add": 0.25})


def test_operators_of_twenty_microseconds_are_work() -> None:
    compute = profile("forward 1 ( op:a 0.02 | op:b 0.019999 )")
    assert compute is not None
    assert compute.overhead_ratio == pytest.approx(1 - 0.02)
    assert compute.small_ratio == 0.5


def test_half_of_the_work_is_in_operators_of_at_least_the_median() -> None:
    compute = profile("forward 10 ( op:a 1 | op:a 1 | op:a 1 | op:b 3 | op:c 4 )")
    assert compute is not None
    assert compute.median_work_ns == 3_000_000


def test_on_a_gpu_kernels_and_copies_are_the_work() -> None:
    compute = profile(
        "forward 10 ( op:linear 1 | kernel:gemm 4 ( memcpy:HtoD 2 ) | memcpy:DtoH 1 )"
        " | kernel:late 50"
    )
    assert compute is not None
    assert compute.on_device
    assert compute.overhead_ratio == pytest.approx(1 - 5 / 10)


def test_operators_outside_the_compute_phases_do_not_count() -> None:
    compute = profile("op:load 90 | forward 10 ( op:linear 10 )")
    assert compute is not None
    assert compute.overhead_ratio == 0
    assert compute.largest == {"linear": 1}


def test_without_operators_there_is_no_profile() -> None:
    assert profile("forward 10 | op:load 90") is None
    assert profile("op:load 90") is None
    assert profile("forward 10 ( kernel:gemm 10 )") is None
