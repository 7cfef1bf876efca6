"""What was asked for: a range of time, and tracks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stepscope.run import Run, RunClock
from stepscope.timeline import TrackId, parse_track, parse_tracks, timelines_of
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.groups import groups_of
from stepscope.views.timeline.payload import Track, TrackGroup


def range_of(clock: RunClock, options: ViewOptions) -> tuple[int, int]:
    """The range, after the run's origin; at least a nanosecond long."""
    begin = options.from_ns or 0
    end = clock.end_ns - clock.origin_ns + 1 if options.to_ns is None else options.to_ns
    return begin, max(end, begin + 1)


def tracks_of(run: Run, options: ViewOptions, *, sliced: bool) -> Sequence[TrackId]:
    """The tracks with slices, or those with values; without a choice, all that are listed."""
    if options.tracks is None:
        groups, _ = groups_of(run)
        chosen = [parse_track(track.id) for group in groups for track in every_track(group)]
    else:
        chosen = list(parse_tracks(options.tracks))
    return [track for track in chosen if track.sliced == sliced]


def every_track(group: TrackGroup) -> Iterator[Track]:
    """The tracks of a group and of those in it."""
    yield from group.tracks
    for each in group.groups:
        yield from every_track(each)


def nesting_lines(run: Run, tracks: Sequence[TrackId]) -> NDArray[np.bool_]:
    """Of each track, whether its events lie in each other: all but those of a device's stream."""

    def is_stream(track: TrackId) -> bool:
        if track.kind != "trace" or track.trace not in timelines_of(run):
            return False
        content = timelines_of(run).contents[track.trace].get(track.track)
        return content is not None and content.is_stream

    return np.array([not is_stream(track) for track in tracks], dtype=np.bool_)
