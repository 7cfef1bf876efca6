"""Host in compute phases: work, framework overhead, waits for copies and for requests.

Over the compute phases (forward, loss, backward, optimizer) inside the window:

    self time of an operator = its duration - the durations of the operators and runtime calls
                               that it calls
    work = self times of at least WORK_NS, summed over operators     on CPU
    work = union of kernels, copies and sets                         on GPU
    overhead = 1 - work / compute time

An operator that computes has a self time that matches its work; the many operators that only
dispatch, reshape or allocate have self times of a few microseconds. The profiler adds about a
microsecond to every operator, so the overhead of very small ones is somewhat overestimated.

Waits of the host for copies between host and device memory. Of the calls of one thread that launch
work or wait for the device, a copy's wait is the next one after its own call, if it is a wait:
nothing else was launched in between. The host waits for the copy if the call that started it, or
that wait, lasts until the copy is done.

The wait belongs to the copy if one operator makes both calls, as `aten::copy_` does for memory
that is not pinned, or without `non_blocking`.

Waits of a process for requests: times in which it gives its device, or itself, no work. A trace
trains if it has a backward pass, an optimizer step or a fetch of a DataLoader. In one that does
not, the host has no work while it runs no operator and makes no runtime call, and

    with Python functions       every thread that runs operators is in a function that waits: for
                                a queue, a lock, a socket, a poll, or asleep
    without Python functions    this lasts for more than `MAX_CALL_NS`; whether the host waits for
                                requests or runs Python code is then not known
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.arrays.columns import Columns, Strings
from stepscope.analysis.kernel_classes import match_rows

NODE_PREFIX = "autograd::engine::evaluate_function:"
NAN_CHECKS = frozenset(["aten::isnan", "aten::_is_any_true", "aten::item"])
"""Operators by which anomaly detection checks the gradients that a node returns."""
WORK_NS = 20_000
"""An operator with less self time costs about as much to dispatch as to run."""
MAX_CALL_NS = 100_000
"""Maximum time for calling an operator through Python and the framework; 5 to 50 µs are usual."""


class ComputeProfile(msgspec.Struct, frozen=True, kw_only=True):
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
    operators: Columns,
    device: intervals.Intervals,
    phases: Mapping[str, intervals.Intervals],
    *,
    step_count: int,
) -> ComputeProfile | None:
    """Break down the compute time of a window; None without recorded operators.

    Args:
        operators: `name`, `start_ns`, `duration_ns`, `host_self_ns` and `parent` of the operators
            in the window.
        device: kernels, copies and sets in the window.
        phases: compute phases inside the window, by name.
        step_count: number of steps in the window.
    """
    merged = intervals.unite(*phases.values())
    merged_phases = {name: intervals.union(phase) for name, phase in phases.items()}
    compute_ns = merged.total_ns
    start, duration = operators["start_ns"], operators["duration_ns"]
    inside = intervals.overlap(intervals.Intervals(start, start + duration), merged) > 0
    if not compute_ns or not inside.any():
        return None
    self_ns = operators["host_self_ns"][inside]
    on_device = len(device.start) > 0
    is_work, busy = self_ns >= WORK_NS, intervals.union(device)
    operator_start = start[inside]

    def measure_overhead_ns(phase: intervals.Intervals) -> int:
        if on_device:
            return phase.total_ns - int(intervals.overlap(phase, busy).sum())
        return phase.total_ns - int(
            self_ns[is_work & intervals.contains(phase, operator_start)].sum()
        )

    overhead_ns = {
        name: max(0, measure_overhead_ns(phase)) for name, phase in merged_phases.items()
    }
    worst = max(overhead_ns, key=lambda name: overhead_ns[name])
    work_ns = (
        int(intervals.overlap(merged, busy).sum()) if on_device else int(self_ns[is_work].sum())
    )
    top_level = inside & (operators["parent"] < 0)
    top_level_ns = duration[top_level]
    names = operators["name"]
    is_node = match_rows(names, lambda name: name.startswith(NODE_PREFIX))
    backward = merged_phases.get("backward", intervals.EMPTY)
    is_check = match_rows(names, NAN_CHECKS.__contains__) & intervals.contains(backward, start)
    worst_call_count = int(intervals.contains(merged_phases[worst], start[top_level]).sum())
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


def _find_weighted_median(durations: intervals.Int) -> float:
    ordered = np.sort(durations)
    half = np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)
    return float(ordered[min(half, len(ordered) - 1)])


def _find_largest(
    names: Strings, rows: NDArray[np.bool_], durations: intervals.Int, compute_ns: int
) -> dict[str, float]:
    totals = np.bincount(names.codes[rows], weights=durations, minlength=len(names.values))
    top = np.argsort(-totals, kind="stable")[:5]
    return {
        str(names.values[code]): float(totals[code]) / compute_ns for code in top if totals[code]
    }


class HostCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Runtime calls; arrays have one entry per call, in any order."""

    track: intervals.Int
    """Thread."""
    start: intervals.Int
    end: intervals.Int
    operator: intervals.Int
    """Id of the operator that made the call; below 0 for none."""
    is_wait: NDArray[np.bool_]
    """True for calls in which the host waits for a device, whatever they launch."""
    is_launch: NDArray[np.bool_]
    """True for calls that launch work."""


class CopyWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Waits for some copies; arrays have one entry per copy."""

    is_waited_for: NDArray[np.bool_]
    """False where no call is known to have started the copy."""
    call: intervals.Int
    """Index of the call that started the copy if it lasts until the copy is done, else -1."""
    wait: intervals.Int
    """Index of the wait that the operator of the copy makes, else -1."""


def find_copy_waits(calls: HostCalls, start_call: intervals.Int, end: intervals.Int) -> CopyWaits:
    """Find the waits for some copies.

    Args:
        calls: runtime calls of the trace.
        start_call: index of the call that started each copy, -1 where it is not known.
        end: end of each copy.
    """
    if not len(calls.start) or not len(start_call):
        none = np.full(len(start_call), -1, dtype=np.int64)
        return CopyWaits(is_waited_for=none >= 0, call=none, wait=none)
    is_started = start_call >= 0
    is_blocking = is_started & (calls.end[start_call] >= end)
    following = _find_following(calls)[start_call]
    has_wait = is_started & (following >= 0) & calls.is_wait[following]
    is_of_copy = has_wait & (calls.operator[start_call] >= 0)
    is_of_copy &= calls.operator[following] == calls.operator[start_call]
    return CopyWaits(
        is_waited_for=is_blocking | (has_wait & (calls.end[following] >= end)),
        call=np.where(is_blocking, start_call, -1),
        wait=np.where(is_of_copy, following, -1),
    )


def _find_following(calls: HostCalls) -> intervals.Int:
    """Find the next call of the same thread that launches work or waits, -1 for none."""
    order = np.lexsort((calls.start, calls.track))
    matters = np.flatnonzero((calls.is_wait | calls.is_launch)[order])
    position = np.searchsorted(matters, np.arange(len(order)), side="right")
    row = np.append(order[matters], -1)[position]
    row[(row >= 0) & (calls.track[row] != calls.track[order])] = -1
    following = np.empty(len(order), dtype=np.int64)
    following[order] = row
    return following


_TRAINING = re.compile(r"autograd::engine::evaluate_function|\w*Backward\d*$|Optimizer\.")
WAIT_FUNCTIONS = (
    r"^<(built-in )?(method|function) '?(acquire|poll|select|control|sleep|accept|recv\w*)\b"
    r"|(^|[/\\])queue\.py\(\d+\): get$"
    r"|(^|[/\\])(threading|selectors)\.py\(\d+\): (wait|acquire|_?select)$"
    r"|(^|[/\\])multiprocessing[/\\]connection\.py\(\d+\): (wait|poll|_?recv\w*|accept)$"
)
"""Pattern of the names of Python functions that wait, of `re` and of DuckDB."""
_WAIT_FUNCTION = re.compile(WAIT_FUNCTIONS)


def is_training(name: str) -> bool:
    """Return True if an operator or a range is of a backward pass or an optimizer.

    >>> is_training("AddmmBackward0"), is_training("Optimizer.step#SGD.step")
    (True, True)
    >>> is_training("aten::addmm")
    False
    """
    return _TRAINING.match(name) is not None


def is_wait_function(name: str) -> bool:
    """Return True if a Python function waits for another thread or process, or sleeps.

    >>> is_wait_function("<built-in method acquire of _thread.lock object at 0x7f0>")
    True
    >>> is_wait_function("queue.py(154): get"), is_wait_function("dict.py(3): get")
    (True, False)
    """
    return _WAIT_FUNCTION.search(name) is not None


def find_waits_of_threads(
    threads: Sequence[tuple[intervals.Intervals, intervals.Intervals]],
    activity: intervals.Intervals,
) -> intervals.Intervals:
    """Find the times in which all of some threads wait in a Python function, or run none.

    Args:
        threads: Python functions of each thread, and those among them that wait.
        activity: operators, runtime calls and the like, of any thread.
    """
    waits = [intervals.union(waiting) for _, waiting in threads]
    busy = [
        intervals.subtract(intervals.union(functions), waiting)
        for (functions, _), waiting in zip(threads, waits, strict=True)
    ]
    return intervals.subtract(
        intervals.unite(intervals.EMPTY, *waits), intervals.unite(activity, *busy)
    )


def find_unrecorded_time(
    extent: tuple[int, int], activity: intervals.Intervals
) -> intervals.Intervals:
    """Find the times without any activity that are longer than `MAX_CALL_NS`.

    Args:
        extent: start and end of the trace.
        activity: operators, runtime calls and the like.
    """
    gaps = intervals.find_gaps(intervals.union(activity), extent)
    rows = gaps.end - gaps.start > MAX_CALL_NS
    return intervals.Intervals(gaps.start[rows], gaps.end[rows])
