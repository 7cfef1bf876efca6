"""`timeline-slices`: a window of tracks at the detail that the requested pixels can show."""

from __future__ import annotations

from collections.abc import Sequence

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


class _NameIndex:
    """Index of shortened names; several names of events may be shortened alike."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._index_by_code: dict[int, int] = {}
        self._indices: dict[str, int] = {}

    @property
    def shown_names(self) -> list[str]:
        """Shown names by index."""
        return list(self._indices)

    def encode(self, codes: list[int]) -> list[int]:
        """Convert codes of slices to indices of shortened names."""
        for code in sorted(set(codes) - self._index_by_code.keys()):
            name = shorten_name(self._names[code])
            self._index_by_code[code] = self._indices.setdefault(name, len(self._indices))
        return [self._index_by_code[code] for code in codes]


def timeline_slices(run: Run, options: ViewOptions) -> SlicesView:
    """Read a window of tracks."""
    extent = get_range(run.clock, options)
    requested = list_tracks(run, options, is_sliced=True)
    tracks = requested[:MAX_TRACKS]
    width = choose_width(extent[1] - extent[0], options.pixels)
    slices = limit_slices(read_window(run, tracks, extent, width=width), MAX_SLICES, width)
    names = _NameIndex(slices.names)
    names.encode(slices.name.tolist())
    by_track = zip(tracks, split_by_line(slices, len(tracks)), strict=True)
    return SlicesView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        tracks=[_build_track(track, part, names, extent[0]) for track, part in by_track],
        names=names.shown_names,
        omitted_tracks=[str(track) for track in requested[MAX_TRACKS:]],
    )


def _build_track(track: TrackId, slices: Slices, names: _NameIndex, start_ns: int) -> TrackSlices:
    return TrackSlices(
        track=str(track),
        row_count=int(slices.row.max(initial=-1)) + 1,
        row=slices.row.tolist(),
        after_ns=(slices.start - start_ns).tolist(),
        duration_ns=slices.duration.tolist(),
        name=names.encode(slices.name.tolist()),
        count=slices.count.tolist(),
        busy_ratio=compute_busy_ratios(slices),
        event=slices.event.tolist(),
    )
