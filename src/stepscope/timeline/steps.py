"""Steps of the processes of a run, within a limit on the spans that are read."""

from __future__ import annotations

import numpy as np

from stepscope.analysis import Steps, find_steps, summarize
from stepscope.intervals import Intervals
from stepscope.run import Run, marked_steps
from stepscope.schema import ProcessInfo
from stepscope.timeline.tracks import TrackId

MAX_SPANS = 3_000_000
"""Spans of all processes that steps are searched in; reading them takes a few seconds."""


def find_steps_of_run(run: Run) -> tuple[list[tuple[ProcessInfo, Steps]], list[ProcessInfo]]:
    """Find the steps of the training processes.

    Also returns the processes left out because the limit on spans was exceeded before them.
    """
    steps_by_process: list[tuple[ProcessInfo, Steps]] = []
    main = [process for process in run.processes if process.role == "main"]
    span_count = 0
    for index, process in enumerate(main):
        if span_count > MAX_SPANS:
            return steps_by_process, main[index:]
        spans = run.step_spans(process)
        span_count += len(spans)
        steps = find_steps(spans)
        if steps is not None:
            steps_by_process.append((process, steps))
    return steps_by_process, []


def find_steps_of_process(run: Run, name: str) -> Steps | None:
    """Find the steps of one process; None if it does not train."""
    process = next((p for p in run.processes if p.process == name and p.role == "main"), None)
    return find_steps(run.step_spans(process)) if process else None


def find_step_at(run: Run, track: TrackId, after_ns: int) -> str | None:
    """Find the name of the step that contains an instant on a track; None if there is none."""
    if track.kind != "spans":
        (trace,) = (trace for trace in run.traces if trace.trace == track.trace)
        marked = marked_steps(run, trace)
        names = marked.steps.names if marked.marked else []
        extent, base = marked.steps.extent, run.clock.origin_in(trace.trace)
    else:
        steps = find_steps_of_process(run, track.words[0])
        if steps is None:
            return None
        names = [str(number) for number in range(len(steps))]
        extent, base = Intervals(steps.start, steps.end), run.clock.origin_ns
    start_ns = after_ns + base
    inside = np.flatnonzero((extent.start <= start_ns) & (start_ns < extent.end))
    return names[inside[0]] if len(names) and len(inside) else None


def find_outlier_steps(steps: Steps) -> list[int]:
    """Find the measured steps that take far longer than the others."""
    is_measured = steps.measured()
    summary = summarize(steps.wall_ns[is_measured])
    if summary is None:
        return []
    outliers: list[int] = np.flatnonzero(
        is_measured & (steps.wall_ns > summary.outlier_threshold)
    ).tolist()
    return outliers
