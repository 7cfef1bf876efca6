"""`timeline-slices`: a window of tracks at the detail that the requested pixels can show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from stepscope.analysis import Slices, choose_width, limit_slices
from stepscope.run import Run
from stepscope.timeline import (
    SlicePart,
    TrackId,
    compute_busy_ratios,
    read_parts,
    read_window,
    split_by_line,
)
from stepscope.views.names import shorten_name
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.payload import SlicesView, TrackSlices
from stepscope.views.timeline.selection import get_range, list_tracks

MAX_SLICES = 20_000
"""Slices of one response; drawing more takes too long."""
MAX_TRACKS = 2_000
MIN_PARTS_PIXELS = 4
"""Width of a slice from which its parts are visible."""


def timeline_slices(run: Run, options: ViewOptions) -> SlicesView:
    """Read a window of tracks."""
    extent = get_range(run.clock, options)
    requested = list_tracks(run, options, is_sliced=True)
    tracks = requested[:MAX_TRACKS]
    width = choose_width(extent[1] - extent[0], options.pixels)
    slices = limit_slices(read_window(run, tracks, extent, width=width), MAX_SLICES, width)
    slices = slices.rename(shorten_name)
    names = {name: index for index, name in enumerate(slices.names)}
    parts: dict[int, list[SlicePart]] = defaultdict(list)
    for part in read_parts(run, tracks, extent, min_duration_ns=MIN_PARTS_PIXELS * width):
        parts[part.line].append(part)
    tracks_view = [
        _build_track(track, line_slices, extent[0], parts[line], names)
        for line, (track, line_slices) in enumerate(
            zip(tracks, split_by_line(slices, len(tracks)), strict=True)
        )
    ]
    return SlicesView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        tracks=tracks_view,
        names=list(names),
        omitted_tracks=[str(track) for track in requested[MAX_TRACKS:]],
    )


def _build_track(
    track: TrackId,
    slices: Slices,
    start_ns: int,
    parts: Sequence[SlicePart],
    names: dict[str, int],
) -> TrackSlices:
    """Build the slices of a track; adds the names of its parts to `names`."""
    index_of_event = {event: index for index, event in enumerate(slices.event.tolist())}
    drawn = [part for part in parts if part.event in index_of_event]
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
        part_slice=[index_of_event[part.event] for part in drawn],
        part_name=[names.setdefault(shorten_name(part.name), len(names)) for part in drawn],
        part_ns=[part.spent_ns for part in drawn],
    )
