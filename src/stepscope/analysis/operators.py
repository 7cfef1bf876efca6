"""Large operators or the overhead of small ones: what a profiler window says about compute.

Formulas, over the compute phases (forward, loss, backward, optimizer) inside the window:

    own time of an operator = its duration - the durations of the operators it calls
    work = own times of at least WORK_NS, summed over operators      on CPU
    work = union of kernels, copies and sets                         on GPU
    overhead = 1 - work / compute time

An operator that does something has an own time of its own size, and the many that only dispatch,
reshape or allocate have own times of a few microseconds. The profiler itself adds about a
microsecond to every operator, so the overhead of very small ones looks somewhat larger than it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.intervals import (
    Int,
    Intervals,
    nesting_order,
    overlap,
    parents,
    self_times,
    union,
)

WORK_NS = 20_000
"""An operator with less time of its own than this costs about as much to dispatch as to run."""
DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEvents:
    """Events of one profiler window. `category`, `name`, `thread` are object arrays of str."""

    category: NDArray[np.object_]
    name: NDArray[np.object_]
    thread: NDArray[np.object_]
    start: Int
    end: Int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    """What the compute phases of a window are made of."""

    step_count: int
    compute_ns: int
    """Time in compute phases inside the window: the denominator of the ratios."""
    overhead_ratio: float
    operator_count_per_step: float
    """Operators that are called by no other."""
    small_ratio: float
    """Share of those that take less than 20 us."""
    median_work_ns: float
    """Half of the operators' own time is in operators with at least this much."""
    on_device: bool
    largest: dict[str, float]
    """The five operators with the most time of their own, as shares of compute time."""


def profile_compute(
    events: WindowEvents, compute: Intervals, *, step_count: int
) -> ComputeProfile | None:
    """What a window's compute time is made of; None when it recorded no operators.

    Args:
        events: the window.
        compute: the compute phases inside it, disjoint.
    """
    merged = union(compute)
    compute_ns = merged.total_ns
    operators = _Operators.of(events)
    inside = overlap(Intervals(operators.start, operators.end), merged) > 0
    if not compute_ns or not inside.any():
        return None
    device = np.isin(events.category, DEVICE_CATEGORIES)
    own = operators.own_ns[inside]
    if device.any():
        device_work = union(Intervals(events.start[device], events.end[device]))
        worked_ns = int(overlap(merged, device_work).sum())
    else:
        worked_ns = int(own[own >= WORK_NS].sum())
    called = inside & operators.outermost
    durations = (operators.end - operators.start)[called]
    return ComputeProfile(
        step_count=step_count,
        compute_ns=compute_ns,
        overhead_ratio=max(0.0, 1 - worked_ns / compute_ns),
        operator_count_per_step=float(called.sum()) / max(1, step_count),
        small_ratio=float((durations < WORK_NS).mean()),
        median_work_ns=_weighted_median(own),
        on_device=bool(device.any()),
        largest=_largest(operators.name[inside], own, compute_ns),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operators:
    """Host operators with their own times."""

    name: NDArray[np.object_]
    start: Int
    end: Int
    own_ns: Int
    outermost: NDArray[np.bool_]

    @classmethod
    def of(cls, events: WindowEvents) -> _Operators:
        order, own, outermost = [], [], []
        operators = np.flatnonzero((events.category == "cpu_op") & (events.end > events.start))
        threads = events.thread[operators].astype(str)
        for thread in np.unique(threads):
            mine = operators[threads == thread]
            mine = mine[nesting_order(events.start[mine], events.end[mine])]
            start, end = events.start[mine], events.end[mine]
            parent = parents(start, end)
            order.append(mine)
            own.append(self_times(start, end, parent))
            outermost.append(parent < 0)
        empty = np.empty(0, dtype=np.int64)
        chosen = np.concatenate(order) if order else empty
        return cls(
            name=events.name[chosen],
            start=events.start[chosen],
            end=events.end[chosen],
            own_ns=np.concatenate(own) if own else empty,
            outermost=np.concatenate(outermost) if outermost else empty.astype(np.bool_),
        )


def _weighted_median(durations: Int) -> float:
    ordered = np.sort(durations)
    half = np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)
    return float(ordered[min(half, len(ordered) - 1)])


def _largest(names: NDArray[np.object_], durations: Int, compute_ns: int) -> dict[str, float]:
    totals: dict[str, int] = {}
    for name, duration in zip(names, durations.tolist(), strict=True):
        totals[name] = totals.get(name, 0) + duration
    top = sorted(totals.items(), key=lambda item: -item[1])[:5]
    return {name: total / compute_ns for name, total in top}
