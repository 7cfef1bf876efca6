"""Sums over every event of tracks within a range: per name, and per path of names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import CallTree, LineSums, clip_events
from stepscope.intervals import Intervals, union
from stepscope.run import Run
from stepscope.timeline.trace import get_timelines
from stepscope.timeline.tracks import TrackId
from stepscope.timeline.window import read_chunks


def sum_tracks(run: Run, tracks: Sequence[TrackId], extent: tuple[int, int]) -> list[LineSums]:
    """Sum up the events of each track within a range, after the run's origin."""
    sums = [LineSums() for _ in tracks]
    nests = _flag_nesting(run, tracks)
    for start, end, slices in read_chunks(run, tracks, extent):
        events = clip_events(slices, (start, end), is_first=start == extent[0], nests=nests)
        order = np.argsort(events.line, kind="stable")
        borders = np.searchsorted(events.line[order], np.arange(len(tracks) + 1))
        for line in np.flatnonzero(np.diff(borders)).tolist():
            rows = order[borders[line] : borders[line + 1]]
            sums[line].add_names(events, rows)
            sums[line].add_busy(*union(Intervals(events.start[rows], events.end[rows])))
    return sums


def build_call_tree(run: Run, tracks: Sequence[TrackId], extent: tuple[int, int]) -> CallTree:
    """Sum up the events of tracks within a range, after the run's origin, by path of names."""
    tree = CallTree()
    nests = _flag_nesting(run, tracks)
    for start, end, slices in read_chunks(run, tracks, extent):
        tree.add(clip_events(slices, (start, end), is_first=start == extent[0], nests=nests))
    return tree


def _flag_nesting(run: Run, tracks: Sequence[TrackId]) -> NDArray[np.bool_]:
    """Flag the tracks whose events nest: all except streams of devices."""

    def is_stream(track: TrackId) -> bool:
        if track.kind != "trace" or track.trace not in get_timelines(run):
            return False
        content = get_timelines(run).contents[track.trace].get(track.track)
        return content is not None and content.is_stream

    return np.array([not is_stream(track) for track in tracks], dtype=np.bool_)
