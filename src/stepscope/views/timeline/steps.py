"""Steps of ranks and of recordings, to jump to."""

from __future__ import annotations

import msgspec
import numpy as np

from stepscope.analysis import HostSteps, Steps, summarize
from stepscope.intervals import Intervals
from stepscope.run import Run, RunClock, Trace, marked_steps, named_steps, reading_ahead
from stepscope.schema import ProcessInfo
from stepscope.timeline import TrackId, steps_of_process, watched_steps
from stepscope.views.timeline.groups import process_group, recording_group
from stepscope.views.timeline.payload import RankSteps

MOST_LISTED = 5_000
"""Steps of one rank; a picture of more is no list of places to jump to."""
MOST_SENT = 50_000
"""Steps of all ranks."""
MOST_RECORDINGS = 200
"""Recordings that are looked through for steps."""


def steps_of(run: Run) -> tuple[list[RankSteps], list[str]]:
    """The steps of each training process and of each imported recording; and sentences on those
    that are not listed."""
    clock = run.clock
    watched, not_looked_at = watched_steps(run)
    known = {process.process for process, _ in watched}
    traces = [trace for trace in run.traces if trace.process not in known]
    most = max(1, min(MOST_LISTED, MOST_SENT // max(1, len(watched) + len(traces))))
    found = [_of_process(process, steps, clock, most) for process, steps in watched]
    for trace in reading_ahead(traces[:MOST_RECORDINGS]):
        steps = named_steps(trace)
        if steps is not None:
            found.append(_of_recording(trace, steps, clock, most))
    notes = []
    if not_looked_at:
        notes.append(
            f"the steps of {len(not_looked_at):,} more processes are not listed: so long a run "
            "would take too long to look through"
        )
    if len(traces) > MOST_RECORDINGS:
        notes.append(f"the steps of the first {MOST_RECORDINGS:,} recordings are listed")
    return [steps for steps in found if steps.numbers], notes


def step_at(run: Run, track: TrackId, after_ns: int) -> str | None:
    """The step in which something begins on a track; None where it is in none."""
    if track.kind != "spans":
        (trace,) = (trace for trace in run.traces if trace.trace == track.trace)
        marked = marked_steps(run, trace)
        names = marked.steps.names if marked.marked else []
        extent, base = marked.steps.extent, run.clock.origin_in(trace.trace)
    else:
        steps = steps_of_process(run, track.words[0])
        if steps is None:
            return None
        names = [str(number) for number in range(len(steps))]
        extent, base = Intervals(steps.start, steps.end), run.clock.origin_ns
    at = after_ns + base
    inside = np.flatnonzero((extent.start <= at) & (at < extent.end))
    return names[inside[0]] if len(names) and len(inside) else None


def _of_process(process: ProcessInfo, steps: Steps, clock: RunClock, most: int) -> RankSteps:
    summary = summarize(steps.wall_ns[steps.measured()])
    slow = steps.measured() & (steps.wall_ns > summary.outlier_threshold) if summary else None
    return _listed(
        RankSteps(
            group=process_group(process),
            title=process.title,
            numbers=list(range(len(steps))),
            after_ns=(steps.start - clock.origin_ns).tolist(),
            duration_ns=steps.wall_ns.tolist(),
            outliers=[] if slow is None else np.flatnonzero(slow).tolist(),
            left_out_count=0,
        ),
        most,
    )


def _of_recording(trace: Trace, steps: HostSteps, clock: RunClock, most: int) -> RankSteps:
    names, (start, end) = steps.names, steps.extent
    numbers = [int(name) for name in names if name.isdecimal() and len(name) < 16]
    if len(numbers) < len(names):
        numbers = list(range(len(names)))
    summary = summarize(end - start) if len(names) else None
    slow = (end - start > summary.outlier_threshold).tolist() if summary else []
    base = clock.origin_in(trace.trace)
    return _listed(
        RankSteps(
            group=recording_group(trace),
            title=trace.name,
            numbers=numbers,
            after_ns=(start - base).tolist(),
            duration_ns=(end - start).tolist(),
            outliers=[number for number, is_slow in zip(numbers, slow, strict=True) if is_slow],
            left_out_count=0,
        ),
        most,
    )


def _listed(steps: RankSteps, most: int) -> RankSteps:
    """At most so many of the steps."""
    numbers = steps.numbers[:most]
    listed = set(numbers)
    return msgspec.structs.replace(
        steps,
        numbers=numbers,
        after_ns=steps.after_ns[:most],
        duration_ns=steps.duration_ns[:most],
        outliers=[number for number in steps.outliers if number in listed],
        left_out_count=len(steps.numbers) - len(numbers),
    )
