"""Tracks of the timeline and their ids, and steps of the processes of a run.

An id consists of words joined by colons; other characters are quoted as in a URL:

    critical-path                 pieces of the critical paths of the steps
    trace:NUMBER:TRACK            a thread or a stream of a trace
    ranges:NUMBER:TRACK           the shadows of host ranges on a stream
    spans:PROCESS:LOG             spans of a thread of the job
    metric:NODE:METRIC:DEVICE     samples of the monitor
    counter:NUMBER:TRACK:NAME:SERIES    a counter of a trace
    memory:NUMBER:TYPE:DEVICE:MEASURE   memory held by the allocator of the framework
    estimate:NUMBER:DEVICE:MEASURE    load of a device, computed from the kernels of a trace
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

import numpy as np

from stepscope import analysis, errors, intervals, schema
from stepscope.run import Run, marked_steps

PATH = "critical-path"
_WORDS = {
    PATH: 0,
    "trace": 2,
    "ranges": 2,
    "spans": 2,
    "metric": 3,
    "counter": 4,
    "memory": 4,
    "estimate": 3,
}
_NUMBERS = {"trace": 2, "ranges": 2, "counter": 2, "memory": 3, "estimate": 2}
"""Number of leading words of an id that are numbers."""
SLICED = (PATH, "trace", "ranges", "spans")
"""Kinds of tracks with slices; the others have values."""


class TrackId(NamedTuple):
    """Id of a track, split into its words."""

    kind: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return ":".join([self.kind, *(quote(word, safe="") for word in self.words)])

    @property
    def trace(self) -> int:
        """Number of its trace."""
        return int(self.words[0])

    @property
    def track(self) -> int:
        """Number of the track within its trace."""
        return int(self.words[1])

    @property
    def is_sliced(self) -> bool:
        """Return True if the track has slices."""
        return self.kind in SLICED


def track_id(kind: str, *words: object) -> TrackId:
    """Build the id of a track from its words."""
    return TrackId(kind, tuple(map(str, words)))


def parse_track(text: str) -> TrackId:
    """Parse the id of a track; raises UsageError if it is invalid."""
    kind, *quoted = text.strip().split(":")
    words = tuple(map(unquote, quoted))
    numbers = words[: _NUMBERS.get(kind, 0)]
    if _WORDS.get(kind) != len(words) or not all(map(_is_number, numbers)):
        raise errors.UsageError(
            f"{text!r} is not a track of the timeline; the view `timeline` lists its tracks."
        )
    return TrackId(kind, words)


def parse_tracks(text: str | None) -> Sequence[TrackId]:
    """Parse comma-separated ids of tracks; duplicates are dropped, the order is kept."""
    ids = [part for part in (text or "").split(",") if part.strip()]
    return list(dict.fromkeys(map(parse_track, ids)))


def _is_number(word: str) -> bool:
    return word.removeprefix("-").isascii() and word.removeprefix("-").isdigit() and len(word) < 20


MAX_SPANS = 3_000_000
"""Spans of all processes that steps are searched in; reading them takes a few seconds."""


def find_steps_of_run(
    run: Run,
) -> tuple[list[tuple[schema.ProcessInfo, analysis.Steps]], list[schema.ProcessInfo]]:
    """Find the steps of the training processes.

    Also returns the processes left out because the limit on spans was exceeded before them.
    """
    steps_by_process: list[tuple[schema.ProcessInfo, analysis.Steps]] = []
    main = [process for process in run.processes if process.role == "main"]
    span_count = 0
    for index, process in enumerate(main):
        if span_count > MAX_SPANS:
            return steps_by_process, main[index:]
        spans = run.step_spans(process)
        span_count += len(spans)
        steps = analysis.find_steps(spans)
        if steps is not None:
            steps_by_process.append((process, steps))
    return steps_by_process, []


def find_steps_of_process(run: Run, name: str) -> analysis.Steps | None:
    """Find the steps of one process; None if it does not train."""
    if run.whole_run.has_ranks:  # to find them again takes long
        ranks = [rank for rank in run.whole_run.all_ranks if rank.process.process == name]
        sources = {"marked", *analysis.STEP_SOURCES[0]}  # as of `find_steps_of_run`
        return next((rank.steps for rank in ranks if rank.steps.source in sources), None)
    process = next((p for p in run.processes if p.process == name and p.role == "main"), None)
    return analysis.find_steps(run.step_spans(process)) if process else None


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
        extent, base = intervals.Intervals(steps.start, steps.end), run.clock.origin_ns
    start_ns = after_ns + base
    inside = np.flatnonzero((extent.start <= start_ns) & (start_ns < extent.end))
    return names[inside[0]] if len(names) and len(inside) else None


def find_outlier_steps(steps: analysis.Steps) -> list[int]:
    """Find the measured steps that take far longer than the others."""
    is_measured = steps.measured()
    summary = analysis.summarize(steps.duration_ns[is_measured])
    if summary is None:
        return []
    outliers: list[int] = np.flatnonzero(
        is_measured & (steps.duration_ns > summary.outlier_threshold)
    ).tolist()
    return outliers
