"""Large operators or the overhead of small ones: what a profiler window says about compute.

Formulas, over the compute phases (forward, loss, backward, optimizer) inside the window:

    own time of an operator = its duration - the durations of the operators and runtime calls
                              that it calls
    work = own times of at least WORK_NS, summed over operators      on CPU
    work = union of kernels, copies and sets                         on GPU
    overhead = 1 - work / compute time

An operator that does something has an own time of its own size, and the many that only dispatch,
reshape or allocate have own times of a few microseconds. The profiler itself adds about a
microsecond to every operator, so the overhead of very small ones looks somewhat larger than it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns, Strings
from stepscope.intervals import Int, Intervals, contains, overlap, union

WORK_NS = 20_000
"""An operator with less time of its own than this costs about as much to dispatch as to run."""


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
    overhead_by_phase: dict[str, float]
    """What of the compute time is overhead in each phase, the largest first."""
    overhead_per_call_ns: float
    """Overhead over the operators that are called by no other, in the phase with most of it."""


def profile_compute(
    operators: Columns, device: Intervals, phases: Mapping[str, Intervals], *, step_count: int
) -> ComputeProfile | None:
    """What a window's compute time is made of; None when it recorded no operators.

    Args:
        operators: `name`, `start_ns`, `duration_ns`, `host_self_ns` and `parent` of the window's
            operators.
        device: its kernels, copies and sets.
        phases: the compute phases inside it, by name.
    """
    merged = union(
        Intervals(
            np.concatenate([phase.start for phase in phases.values()]),
            np.concatenate([phase.end for phase in phases.values()]),
        )
    )
    apart = {name: union(phase) for name, phase in phases.items()}
    compute_ns = merged.total_ns
    start, duration = operators["start_ns"], operators["duration_ns"]
    inside = overlap(Intervals(start, start + duration), merged) > 0
    if not compute_ns or not inside.any():
        return None
    own = operators["host_self_ns"][inside]
    on_device = len(device.start) > 0
    sizeable, busy = own >= WORK_NS, union(device)
    begins = start[inside]

    def overhead_ns(phase: Intervals) -> int:
        if on_device:
            return phase.total_ns - int(overlap(phase, busy).sum())
        return phase.total_ns - int(own[sizeable & contains(phase, begins)].sum())

    by_phase = sorted(
        ((name, overhead_ns(phase)) for name, phase in apart.items()), key=lambda each: -each[1]
    )
    worst, worst_ns = by_phase[0]
    worked_ns = int(overlap(merged, busy).sum()) if on_device else int(own[sizeable].sum())
    outer = inside & (operators["parent"] < 0)
    called = duration[outer]
    calls_of_worst = int(contains(apart[worst], start[outer]).sum())
    return ComputeProfile(
        step_count=step_count,
        compute_ns=compute_ns,
        overhead_ratio=max(0.0, 1 - worked_ns / compute_ns),
        operator_count_per_step=len(called) / max(1, step_count),
        small_ratio=float((called < WORK_NS).mean()),
        median_work_ns=_weighted_median(own),
        on_device=on_device,
        largest=_largest(operators["name"], inside, own, compute_ns),
        overhead_by_phase={name: max(0.0, ns / compute_ns) for name, ns in by_phase},
        overhead_per_call_ns=max(0, worst_ns) / max(1, calls_of_worst),
    )


def _weighted_median(durations: Int) -> float:
    ordered = np.sort(durations)
    half = np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)
    return float(ordered[min(half, len(ordered) - 1)])


def _largest(
    names: Strings, chosen: NDArray[np.bool_], durations: Int, compute_ns: int
) -> dict[str, float]:
    totals = np.bincount(names.codes[chosen], weights=durations, minlength=len(names.values))
    top = np.argsort(-totals, kind="stable")[:5]
    return {
        str(names.values[code]): float(totals[code]) / compute_ns for code in top if totals[code]
    }
