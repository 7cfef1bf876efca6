"""A window of the timeline, whatever its tracks are of; times count from the run's origin."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from stepscope.analysis import Slices, merge_slices
from stepscope.intervals import Int
from stepscope.run import Run
from stepscope.timeline.trace import timelines_of
from stepscope.timeline.tracks import TrackId

PIECE_EVENTS = 200_000
"""Events that are looked at in one piece, about."""


def read_window(
    run: Run,
    tracks: Sequence[TrackId],
    extent: tuple[int, int],
    *,
    width: int = 1,
) -> Slices:
    """All slices of some tracks that lie in a range, at least in part.

    Args:
        signals: of the run.
        tracks: each slice has the place of its track among these as its line.
        extent: nanoseconds after the run's origin, the end exclusive.
        width: what is shorter may be summed up; 1 for every event by itself.
    """
    parts: list[Slices] = []
    clock = run.clock
    of_trace, spans = _by_source(run, tracks)
    for trace, places in of_trace.items():
        base = clock.origin_in(trace)
        timeline, own = timelines_of(run)[trace], (extent[0] + base, extent[1] + base)
        found = timeline.window(*own, width) if width > 1 else timeline.events(*own)
        lines = _lines([tracks[place] for place in places], places, found)
        parts += [part.renumber_lines(lines).shift(-base) for part in found]
    if spans:
        own = extent[0] + clock.origin_ns, extent[1] + clock.origin_ns
        found_spans = timelines_of(run).spans.window(
            [tracks[place] for place in spans], spans, own, width
        )
        parts.append(found_spans.shift(-clock.origin_ns))
    timelines_of(run).forget()
    return merge_slices(parts)


def chunks(
    run: Run, tracks: Sequence[TrackId], extent: tuple[int, int]
) -> Iterator[tuple[int, int, Slices]]:
    """Every event of some tracks that lies in a range, piece by piece of it: begin and end of a
    piece, and what lies in it at least in part. Memory is bounded by the piece."""
    of_trace, spans = _by_source(run, tracks)
    span_ns = max(1, run.clock.end_ns - run.clock.origin_ns)
    events = sum(
        timelines_of(run).contents[trace][tracks[place].track].all
        for trace, places in of_trace.items()
        for place in places
        if tracks[place].track in timelines_of(run).contents[trace]
    )
    rate = events / span_ns
    if spans:
        rate += run.reader.row_count("spans") / span_ns
    pieces = max(1, math.ceil(rate * (extent[1] - extent[0]) / PIECE_EVENTS))
    pieces = min(pieces, extent[1] - extent[0])
    borders = [extent[0] + (extent[1] - extent[0]) * i // pieces for i in range(pieces + 1)]
    for begin, end in itertools.pairwise(borders):
        yield begin, end, read_window(run, tracks, (begin, end))


def _by_source(run: Run, tracks: Sequence[TrackId]) -> tuple[dict[int, list[int]], list[int]]:
    """Places of tracks of each recording, and of those of the job's own."""
    of_trace: dict[int, list[int]] = defaultdict(list)
    spans = [place for place, track in enumerate(tracks) if track.kind == "spans"]
    for place, track in enumerate(tracks):
        if track.kind in {"trace", "ranges"} and track.trace in timelines_of(run):
            of_trace[track.trace].append(place)
    return of_trace, spans


def _lines(tracks: Sequence[TrackId], places: Sequence[int], found: Sequence[Slices]) -> Int:
    """By line of a recording the place of its track, -1 where that was not asked for."""
    wanted = [2 * track.track + (track.kind == "ranges") for track in tracks]
    highest = max([*wanted, *(int(part.line.max(initial=0)) for part in found)])
    lines = np.full(highest + 1, -1, dtype=np.int64)
    for line, place in zip(wanted, places, strict=True):
        if line >= 0:
            lines[line] = place
    return lines
