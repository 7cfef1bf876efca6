"""Time without a core of a training thread, by phase.

The kernel counts how long a thread was runnable without a core; the stack sampler reads that at
each sample. The delay between two samples is divided between the phases in proportion to the time
in which the thread wanted a core: not while it waits for a batch that is not ready, unless it did
nothing else between the samples. The delay of a host that runs ahead of its device costs nothing.
"""

from __future__ import annotations

import numpy as np

from stepscope.analysis.phases import PhaseSpans, find_device_busy
from stepscope.analysis.spans import Spans
from stepscope.analysis.steps import Steps, find_step_at
from stepscope.intervals import Int, Intervals, overlap, union, unite


def measure_core_delays(spans: Spans, delays: Spans, steps: Steps) -> dict[str, float]:
    """Measure the nanoseconds without a core of each phase, in the measured steps.

    Args:
        spans: spans of the process.
        delays: spans of its kind `run_queue`: the extent of each is the time between two samples,
            its value the time without a core.
        steps: steps of the process.
    """
    spans = spans.take(spans.thread == steps.thread)
    step = find_step_at((delays.start + delays.end) // 2, steps)
    delays = delays.take((step >= 0) & steps.measured()[np.maximum(step, 0)])
    if not len(delays):
        return {}
    borders = _make_disjoint(delays)
    free = unite(steps.evaluation, find_device_busy(spans))
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


def _make_disjoint(delays: Spans) -> Int:
    """Return start and end of each delay in turn, without overlaps. Delays end in order."""
    start = delays.start.copy()
    start[1:] = np.clip(start[1:], delays.end[:-1], delays.end[1:])
    return np.stack([start, delays.end], axis=1).ravel()
