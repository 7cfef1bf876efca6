"""`timeline-slices`: a window of tracks at the detail that the requested pixels can show."""

from __future__ import annotations

from stepscope.analysis import Slices, choose_width, limit_slices
from stepscope.run import Run
from stepscope.timeline import TrackId, compute_busy_ratios, read_window, split_by_line
from stepscope.views.names import shorten_name
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.payload import SlicesView, TrackSlices
from stepscope.views.timeline.selection import get_range, list_tracks

MAX_SLICES = 20_000
"""Slices of one response; drawing more takes too long."""
MAX_TRACKS = 2_000


def timeline_slices(run: Run, options: ViewOptions) -> SlicesView:
    """Read a window of tracks."""
    extent = get_range(run.clock, options)
    requested = list_tracks(run, options, is_sliced=True)
    tracks = requested[:MAX_TRACKS]
    width = choose_width(extent[1] - extent[0], options.pixels)
    slices = limit_slices(read_window(run, tracks, extent, width=width), MAX_SLICES, width)
    slices = slices.rename(shorten_name)
    by_track = zip(tracks, split_by_line(slices, len(tracks)), strict=True)
    return SlicesView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        tracks=[_build_track(track, part, extent[0]) for track, part in by_track],
        names=list(slices.names),
        omitted_tracks=[str(track) for track in requested[MAX_TRACKS:]],
    )


def _build_track(track: TrackId, slices: Slices, start_ns: int) -> TrackSlices:
    return TrackSlices(
        track=str(track),
        row_count=int(slices.row.max(initial=-1)) + 1,
        row=slices.row.tolist(),
        after_ns=(slices.start - start_ns).tolist(),
        duration_ns=slices.duration.tolist(),
        name=slices.name.tolist(),
        count=slices.count.tolist(),
        busy_ratio=compute_busy_ratios(slices),
        event=slices.event.tolist(),
    )
