"""Time without a core of a training thread, by phase.

The kernel counts how long a thread was runnable without a core; the stack sampler reads that at
each sample. The delay between two samples is divided between the phases in proportion to the time
in which the thread wanted a core: not while it waits for a batch that is not ready, unless it did
nothing else between the samples. The delay of a host that runs ahead of its device costs nothing.

An operator that runs in several threads ends with the last of them, so the compute phases are also
delayed by the other threads. Only the mean number of those without a core is recorded. If delays of
threads are independent of each other, one of them at least has no core for the share

    1 - exp(-mean number)

of the time, which delays the phases where the training thread has a core itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from stepscope.analysis.phases import COMPUTE_PHASES, PhaseSpans, find_device_busy
from stepscope.analysis.spans import Spans
from stepscope.analysis.steps import Steps, find_step_at
from stepscope.intervals import Int, Intervals, overlap, union, unite


def measure_core_delays(
    spans: Spans, delays: Spans, steps: Steps, waiting_threads: float = 0.0
) -> dict[str, float]:
    """Measure the nanoseconds without a core of each phase, in the measured steps.

    Args:
        spans: spans of the process.
        delays: spans of its kind `run_queue`: the extent of each is the time between two samples,
            its value the time without a core.
        steps: steps of the process.
        waiting_threads: mean number of its other threads that compute but have no core. Where a
            device computes, they do not matter.
    """
    spans = spans.take(spans.thread == steps.thread)
    device_busy, measured = find_device_busy(spans), steps.measured()
    own_delays = _measure_own_delays(spans, delays, steps, device_busy)
    if len(device_busy.start) or not waiting_threads:
        return own_delays
    phase_ns = {phase: float(times[measured].sum()) for phase, times in steps.phase_ns.items()}
    return _add_thread_delays(own_delays, phase_ns, waiting_threads)


def _measure_own_delays(
    spans: Spans, delays: Spans, steps: Steps, device_busy: Intervals
) -> dict[str, float]:
    """Measure the delays of the training thread itself."""
    step = find_step_at((delays.start + delays.end) // 2, steps)
    delays = delays.take((step >= 0) & steps.measured()[np.maximum(step, 0)])
    if not len(delays):
        return {}
    borders = _make_disjoint(delays)
    free = unite(steps.evaluation, device_busy)
    phases = PhaseSpans.from_spans(spans).measure_host_phases(borders, free)
    times = {phase: values[::2].astype(np.float64) for phase, values in phases.items()}
    extent_ns = np.maximum(1, borders[1::2] - borders[::2])
    delay_ns = np.minimum(delays.value, extent_ns)
    waits = spans.take(spans.is_kind("data_wait", "loader_start"))
    is_blocked = waits.is_kind("loader_start") | (waits.value == 0)
    blocked = waits.take(is_blocked)
    blocked_ns = np.zeros(len(delays))
    if len(blocked):
        extents = Intervals(borders[::2], borders[1::2])
        blocked_ns = np.minimum(times["data_wait"], overlap(extents, union(blocked.intervals)))
    wanted_ns = extent_ns - blocked_ns
    is_only_blocked = wanted_ns < delay_ns
    times["data_wait"] = times["data_wait"] - np.where(is_only_blocked, 0, blocked_ns)
    share = delay_ns / np.where(is_only_blocked, extent_ns, np.maximum(1, wanted_ns))
    return {phase: float((values * share).sum()) for phase, values in times.items()}


def _add_thread_delays(
    delays: Mapping[str, float], phase_ns: Mapping[str, float], waiting_threads: float
) -> dict[str, float]:
    """Add the delays of the threads that compute beside the training thread to its own.

    Args:
        delays: nanoseconds without a core of the training thread, by phase.
        phase_ns: wall time of each phase.
        waiting_threads: mean number of other threads without a core, over all of that time.
    """
    left_ns = {
        phase: max(0.0, phase_ns[phase] - delays.get(phase, 0.0)) for phase in COMPUTE_PHASES
    }
    compute_ns, all_ns = sum(left_ns.values()), sum(phase_ns.values())
    if not compute_ns or not all_ns:
        return dict(delays)
    has_core_ratio = 1 - sum(delays.values()) / all_ns
    delayed_ns = (1 - math.exp(-waiting_threads)) * max(0.0, has_core_ratio) * all_ns
    ratio = min(1.0, delayed_ns / compute_ns)
    return {**delays, **{p: delays.get(p, 0.0) + ratio * ns for p, ns in left_ns.items()}}


def _make_disjoint(delays: Spans) -> Int:
    """Return start and end of each delay in turn, without overlaps. Delays end in order."""
    start = delays.start.copy()
    start[1:] = np.clip(start[1:], delays.end[:-1], delays.end[1:])
    return np.stack([start, delays.end], axis=1).ravel()
