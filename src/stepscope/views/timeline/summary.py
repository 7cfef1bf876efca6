"""`timeline-summary`: a range of some tracks in numbers."""

from __future__ import annotations

import numpy as np

from stepscope.analysis import LineSums, NameSums, clip_events
from stepscope.intervals import Intervals, union
from stepscope.run import Run
from stepscope.timeline import TrackId, chunks
from stepscope.views.names import shown
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.asked import nesting_lines, range_of, tracks_of
from stepscope.views.timeline.payload import NameTime, SummaryView, TrackSummary

MOST_TRACKS = 500
"""That are looked at when nobody chose any, or too many."""


def timeline_summary(run: Run, options: ViewOptions) -> SummaryView:
    """What happened on some tracks within a range."""
    extent = range_of(run.clock, options)
    asked = tracks_of(run, options, sliced=True)
    tracks = asked[:MOST_TRACKS]
    sums = [LineSums() for _ in tracks]
    nests = nesting_lines(run, tracks)
    for begin, end, slices in chunks(run, tracks, extent):
        events = clip_events(slices, (begin, end), is_first=begin == extent[0], nests=nests)
        order = np.argsort(events.line, kind="stable")
        borders = np.searchsorted(events.line[order], np.arange(len(tracks) + 1))
        for line in np.flatnonzero(np.diff(borders)).tolist():
            rows = order[borders[line] : borders[line + 1]]
            sums[line].add_names(events, rows)
            sums[line].add_busy(*union(Intervals(events.start[rows], events.end[rows])))
    notes = []
    if len(asked) > len(tracks):
        notes.append(f"only the first {MOST_TRACKS:,} of {len(asked):,} tracks are summed up")
    return SummaryView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        tracks=[
            _track(track, its, extent[1] - extent[0], options.top)
            for track, its in zip(tracks, sums, strict=True)
            if its.event_count
        ],
        notes=notes,
    )


def _track(track: TrackId, sums: LineSums, range_ns: int, top: int) -> TrackSummary:
    names = sorted(sums.names.items(), key=lambda each: (-each[1].self_ns, each[0]))
    return TrackSummary(
        track=str(track),
        event_count=sums.event_count,
        busy_ns=sums.busy_ns,
        busy_ratio=sums.busy_ns / range_ns,
        gap_count=sums.gap_count,
        longest_gap_ns=sums.longest_gap_ns,
        name_count=len(names),
        names=[_name(name, its) for name, its in names[: top or None]],
    )


def _name(name: str, sums: NameSums) -> NameTime:
    return NameTime(
        name=shown(name),
        count=sums.count,
        total_ns=sums.total_ns,
        self_ns=sums.self_ns,
        mean_ns=sums.total_ns / max(1, sums.count),
        max_ns=sums.max_ns,
    )
