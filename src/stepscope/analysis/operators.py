"""Work and framework overhead of compute phases, from the operators of a profiler window.

Over the compute phases (forward, loss, backward, optimizer) inside the window:

    self time of an operator = its duration - the durations of the operators and runtime calls
                               that it calls
    work = self times of at least WORK_NS, summed over operators     on CPU
    work = union of kernels, copies and sets                         on GPU
    overhead = 1 - work / compute time

An operator that computes has a self time that matches its work; the many operators that only
dispatch, reshape or allocate have self times of a few microseconds. The profiler adds about a
microsecond to every operator, so the overhead of very small ones is somewhat overestimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns, Strings
from stepscope.analysis.kernel_classes import match_rows
from stepscope.intervals import EMPTY, Int, Intervals, contains, overlap, union, unite

NODE_PREFIX = "autograd::engine::evaluate_function:"
NAN_CHECKS = frozenset(["aten::isnan", "aten::_is_any_true", "aten::item"])
"""Operators by which anomaly detection checks the gradients that a node returns."""
WORK_NS = 20_000
"""An operator with less self time costs about as much to dispatch as to run."""
MAX_CALL_NS = 100_000
"""Maximum time for calling an operator through Python and the framework; 5 to 50 µs are usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    """Breakdown of the compute phases of a window."""

    step_count: int
    compute_ns: int
    """Time in compute phases inside the window: the denominator of the ratios."""
    overhead_ratio: float
    operator_count_per_step: float
    """Number of top-level operators per step."""
    small_ratio: float
    """Share of top-level operators that take less than 20 us."""
    median_work_ns: float
    """Half of the self time is in operators with at least this much self time."""
    on_device: bool
    largest: dict[str, float]
    """The five operators with the largest self time, as shares of compute time."""
    operator_names: frozenset[str]
    """Names of all operators."""
    overhead_by_phase: dict[str, float]
    """Share of each phase's own time without a sizeable operator, 0 to 1."""
    overhead_per_call_ns: float
    """Overhead per top-level operator, in the phase with the largest overhead."""
    node_count_per_step: float
    """Number of nodes of the autograd graph that the engine evaluated per step."""
    nan_check_ns_per_step: float
    """Time of the operators that check values for NaN in backward passes, per step."""


def profile_compute(
    operators: Columns, device: Intervals, phases: Mapping[str, Intervals], *, step_count: int
) -> ComputeProfile | None:
    """Break down the compute time of a window; None without recorded operators.

    Args:
        operators: `name`, `start_ns`, `duration_ns`, `host_self_ns` and `parent` of the operators
            in the window.
        device: kernels, copies and sets in the window.
        phases: compute phases inside the window, by name.
        step_count: number of steps in the window.
    """
    merged = unite(*phases.values())
    merged_phases = {name: union(phase) for name, phase in phases.items()}
    compute_ns = merged.total_ns
    start, duration = operators["start_ns"], operators["duration_ns"]
    inside = overlap(Intervals(start, start + duration), merged) > 0
    if not compute_ns or not inside.any():
        return None
    self_ns = operators["host_self_ns"][inside]
    on_device = len(device.start) > 0
    is_work, busy = self_ns >= WORK_NS, union(device)
    operator_start = start[inside]

    def measure_overhead_ns(phase: Intervals) -> int:
        if on_device:
            return phase.total_ns - int(overlap(phase, busy).sum())
        return phase.total_ns - int(self_ns[is_work & contains(phase, operator_start)].sum())

    overhead_ns = {
        name: max(0, measure_overhead_ns(phase)) for name, phase in merged_phases.items()
    }
    worst = max(overhead_ns, key=lambda name: overhead_ns[name])
    work_ns = int(overlap(merged, busy).sum()) if on_device else int(self_ns[is_work].sum())
    top_level = inside & (operators["parent"] < 0)
    top_level_ns = duration[top_level]
    names = operators["name"]
    is_node = match_rows(names, lambda name: name.startswith(NODE_PREFIX))
    backward = merged_phases.get("backward", EMPTY)
    is_check = match_rows(names, NAN_CHECKS.__contains__) & contains(backward, start)
    worst_call_count = int(contains(merged_phases[worst], start[top_level]).sum())
    return ComputeProfile(
        step_count=step_count,
        compute_ns=compute_ns,
        overhead_ratio=max(0.0, 1 - work_ns / compute_ns),
        operator_count_per_step=len(top_level_ns) / max(1, step_count),
        small_ratio=float((top_level_ns < WORK_NS).mean()),
        median_work_ns=_find_weighted_median(self_ns),
        on_device=on_device,
        largest=_find_largest(operators["name"], inside, self_ns, compute_ns),
        operator_names=frozenset(map(str, operators["name"].values)),
        overhead_by_phase={
            name: ns / merged_phases[name].total_ns
            for name, ns in overhead_ns.items()
            if merged_phases[name].total_ns
        },
        overhead_per_call_ns=overhead_ns[worst] / max(1, worst_call_count),
        node_count_per_step=int((inside & is_node).sum()) / max(1, step_count),
        nan_check_ns_per_step=int(duration[is_check].sum()) / max(1, step_count),
    )


def _find_weighted_median(durations: Int) -> float:
    ordered = np.sort(durations)
    half = np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)
    return float(ordered[min(half, len(ordered) - 1)])


def _find_largest(
    names: Strings, rows: NDArray[np.bool_], durations: Int, compute_ns: int
) -> dict[str, float]:
    totals = np.bincount(names.codes[rows], weights=durations, minlength=len(names.values))
    top = np.argsort(-totals, kind="stable")[:5]
    return {
        str(names.values[code]): float(totals[code]) / compute_ns for code in top if totals[code]
    }
