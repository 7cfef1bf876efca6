"""Requested range and tracks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stepscope.run import Run, RunClock
from stepscope.timeline import TrackId, parse_track, parse_tracks
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.groups import build_groups
from stepscope.views.timeline.payload import Track, TrackGroup


def get_range(clock: RunClock, options: ViewOptions) -> tuple[int, int]:
    """Return the requested range after the run's origin, at least 1 ns long."""
    start = options.from_ns or 0
    end = clock.end_ns - clock.origin_ns + 1 if options.to_ns is None else options.to_ns
    return start, max(end, start + 1)


def list_tracks(run: Run, options: ViewOptions, *, is_sliced: bool) -> Sequence[TrackId]:
    """List the requested tracks with slices, or those with values; by default all listed ones."""
    if options.tracks is None:
        groups, _ = build_groups(run)
        tracks = [parse_track(track.id) for group in groups for track in iterate_tracks(group)]
    else:
        tracks = list(parse_tracks(options.tracks))
    return [track for track in tracks if track.is_sliced == is_sliced]


def iterate_tracks(group: TrackGroup) -> Iterator[Track]:
    """Iterate over the tracks of a group and of its subgroups."""
    yield from group.tracks
    for subgroup in group.groups:
        yield from iterate_tracks(subgroup)
