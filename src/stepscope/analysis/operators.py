"""Large operators or the overhead of small ones: what a profiler window says about compute.

Formulas, over the compute phases (forward, loss, backward, optimizer) inside the window:

    covered    union of the operators' extents on all host threads; on a GPU, of device work
    small      leaf operators shorter than `SMALL_NS`
    overhead = 1 - union(leaf operators of at least SMALL_NS) / compute time       on CPU
    overhead = 1 - union(device work) / compute time                               on GPU

A leaf is an operator that contains no other; its own time is work, while the time of an outer
operator around its leaves is dispatch. The profiler itself adds about a microsecond to every
operator, which makes the overhead of very small ones look somewhat larger than it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.intervals import Int, Intervals, nesting_order, overlap, parents, union

SMALL_NS = 20_000
"""An operator shorter than this costs about as much to dispatch as to run."""
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
    leaf_count_per_step: float
    small_ratio: float
    """Share of leaf operators that are shorter than 20 us."""
    median_work_ns: float
    """Half of the operators' time is spent in leaf operators at least this long."""
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
    device = np.isin(events.category, DEVICE_CATEGORIES)
    leaves = _leaves(events)
    if not compute_ns or not len(leaves):
        return None
    on_device = bool(device.any())
    inside = overlap(Intervals(events.start[leaves], events.end[leaves]), merged) > 0
    leaves = leaves[inside]
    if not len(leaves):
        return None
    durations = events.end[leaves] - events.start[leaves]
    if on_device:
        work = union(Intervals(events.start[device], events.end[device]))
    else:
        large = leaves[durations >= SMALL_NS]
        work = union(Intervals(events.start[large], events.end[large]))
    worked_ns = int(overlap(merged, work).sum())
    return ComputeProfile(
        step_count=step_count,
        compute_ns=compute_ns,
        overhead_ratio=max(0.0, 1 - worked_ns / compute_ns),
        leaf_count_per_step=len(leaves) / max(1, step_count),
        small_ratio=float((durations < SMALL_NS).mean()),
        median_work_ns=_weighted_median(durations),
        on_device=on_device,
        largest=_largest(events.name[leaves], durations, compute_ns),
    )


def _leaves(events: WindowEvents) -> Int:
    """Indices of operators that contain no operator on their thread."""
    found = []
    operators = np.flatnonzero((events.category == "cpu_op") & (events.end > events.start))
    for thread in np.unique(events.thread[operators].astype(str)):
        own = operators[events.thread[operators] == thread]
        own = own[nesting_order(events.start[own], events.end[own])]
        parent = parents(events.start[own], events.end[own])
        leaf = np.ones(len(own), dtype=np.bool_)
        leaf[parent[parent >= 0]] = False
        found.append(own[leaf])
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


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
