"""`timeline-summary`: a range of tracks in numbers."""

from __future__ import annotations

from stepscope.analysis import LineSums, NameSums
from stepscope.quantities import count
from stepscope.run import Run
from stepscope.timeline import TrackId, sum_tracks
from stepscope.views.names import shorten_name
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.payload import NameTime, SummaryView, TrackSummary
from stepscope.views.timeline.selection import get_range, list_tracks

MAX_TRACKS = 500
"""Tracks that are summed up."""


def timeline_summary(run: Run, options: ViewOptions) -> SummaryView:
    """Sum up the events of tracks within a range."""
    extent = get_range(run.clock, options)
    requested = list_tracks(run, options, is_sliced=True)
    tracks = requested[:MAX_TRACKS]
    notes = []
    if len(requested) > len(tracks):
        notes.append(
            f"only the first {count(MAX_TRACKS)} of {count(len(requested))} tracks are summed up"
        )
    return SummaryView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        tracks=[
            _summarize_track(track, sums, extent[1] - extent[0], options.top)
            for track, sums in zip(tracks, sum_tracks(run, tracks, extent), strict=True)
            if sums.event_count
        ],
        notes=notes,
    )


def _summarize_track(track: TrackId, sums: LineSums, range_ns: int, top: int) -> TrackSummary:
    names = sorted(sums.names.items(), key=lambda item: (-item[1].self_ns, item[0]))
    return TrackSummary(
        track=str(track),
        event_count=sums.event_count,
        busy_ns=sums.busy_ns,
        busy_ratio=sums.busy_ns / range_ns,
        gap_count=sums.gap_count,
        longest_gap_ns=sums.longest_gap_ns,
        name_count=len(names),
        names=[_summarize_name(name, name_sums) for name, name_sums in names[: top or None]],
    )


def _summarize_name(name: str, sums: NameSums) -> NameTime:
    return NameTime(
        name=shorten_name(name),
        count=sums.count,
        total_ns=sums.total_ns,
        self_ns=sums.self_ns,
        mean_ns=sums.duration_ns / max(1, sums.count),
        max_ns=sums.max_ns,
    )
