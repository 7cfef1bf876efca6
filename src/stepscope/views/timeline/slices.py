"""`timeline-slices`: a window of some tracks at the detail that so many pixels can show."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import Slices, choose_width, limit_slices
from stepscope.run import Run
from stepscope.timeline import TrackId, read_window
from stepscope.views.names import shown
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.asked import range_of, tracks_of
from stepscope.views.timeline.payload import SlicesView, TrackSlices

MOST_SLICES = 20_000
"""Of one answer; a picture of more would be drawn too slowly."""
MOST_TRACKS = 2_000


def timeline_slices(run: Run, options: ViewOptions) -> SlicesView:
    """A window of some tracks."""
    extent = range_of(run.clock, options)
    asked = tracks_of(run, options, sliced=True)
    tracks = asked[:MOST_TRACKS]
    width = choose_width(extent[1] - extent[0], options.pixels)
    found = limit_slices(read_window(run, tracks, extent, width=width), MOST_SLICES, width)
    codes, name = np.unique(found.name, return_inverse=True)
    places: dict[str, int] = {}  # several codes may have one name
    called = [places.setdefault(shown(found.names[code]), len(places)) for code in codes.tolist()]
    name = np.asarray(called, dtype=np.int64)[name]
    borders = np.searchsorted(found.line, np.arange(len(tracks) + 1)).tolist()
    return SlicesView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        tracks=[
            _track(track, found.take(slice(begin, end)), name[begin:end], extent[0])
            for track, (begin, end) in zip(tracks, itertools.pairwise(borders), strict=True)
        ],
        names=list(places),
        omitted_tracks=[str(track) for track in asked[MOST_TRACKS:]],
    )


def _track(track: TrackId, slices: Slices, name: NDArray[np.int64], begin: int) -> TrackSlices:
    busy = slices.busy / np.maximum(slices.duration, 1)
    busy_ratio = np.where(slices.event >= 0, 1.0, np.minimum(busy, 1.0))
    return TrackSlices(
        track=str(track),
        row_count=int(slices.row.max(initial=-1)) + 1,
        row=slices.row.tolist(),
        after_ns=(slices.start - begin).tolist(),
        duration_ns=slices.duration.tolist(),
        name=name.tolist(),
        count=slices.count.tolist(),
        busy_ratio=np.round(busy_ratio, 4).tolist(),
        event=slices.event.tolist(),
    )
