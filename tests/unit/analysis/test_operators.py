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
