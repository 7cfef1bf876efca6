"""Compute phases of a process as seen in its profiler windows."""

from __future__ import annotations

from stepscope.analysis import (
    COMPUTE_PHASES,
    PHASE_OF_KIND,
    ComputeProfile,
    Spans,
    Steps,
    find_losses,
    profile_compute,
)
from stepscope.intervals import Intervals, contains
from stepscope.run.traces import Trace

_PROFILED = ("name", "start_ns", "duration_ns", "host_self_ns", "parent")


def profile_window(
    trace: Trace, spans: Spans, steps: Steps, windows: Intervals
) -> ComputeProfile | None:
    """Profile the compute phases of a process inside its windows; None without device work.

    Args:
        trace: trace of a window.
        spans, steps: those of the process.
        windows: when the windows were open.
    """
    kinds = [kind for kind, phase in PHASE_OF_KIND.items() if phase in COMPUTE_PHASES]
    # The profiler starts and stops between steps, so a window holds whole phases.
    inside = spans.take(contains(windows, spans.start))
    phases = {PHASE_OF_KIND[kind]: inside.of(kind).intervals for kind in kinds}
    loss = find_losses(spans, steps)
    recorded = contains(windows, loss.start)
    phases["loss"] = Intervals(loss.start[recorded], loss.end[recorded])
    step_count = int(contains(windows, steps.end - 1).sum())
    return profile_compute(
        trace.columns("operators", _PROFILED),
        trace.device_intervals(),
        phases,
        step_count=max(1, step_count),
    )
