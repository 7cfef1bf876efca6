"""Windows of the timeline over tracks of any kind, and sums; times count from the run's origin."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals
from stepscope.run import Run
from stepscope.timeline.critical_path import get_path_timeline
from stepscope.timeline.spans import SlicePart
from stepscope.timeline.trace import get_timelines
from stepscope.timeline.tracks import PATH, TrackId

CHUNK_EVENTS = 200_000
"""Approximate number of events per chunk."""


def read_window(
    run: Run,
    tracks: Sequence[TrackId],
    extent: tuple[int, int],
    *,
    width: int = 1,
    only_work: bool = False,
) -> analysis.Slices:
    """Read the slices of tracks that overlap a range.

    Args:
        run: the run.
        tracks: the line of a slice is the index of its track among these.
        extent: nanoseconds after the run's origin, the end exclusive.
        width: events shorter than this may be summarized; 1 for single events.
        only_work: leave out spans that do no work: aggregates, which are no intervals, and marks.
    """
    parts: list[analysis.Slices] = []
    clock = run.clock
    indices_by_trace, span_indices = _group_by_source(run, tracks)
    for trace, indices in indices_by_trace.items():
        base = clock.origin_in(trace)
        timeline, trace_extent = get_timelines(run)[trace], (extent[0] + base, extent[1] + base)
        slices = (
            timeline.window(*trace_extent, width) if width > 1 else timeline.events(*trace_extent)
        )
        lines = _map_lines([tracks[index] for index in indices], indices, slices)
        parts += [part.renumber_lines(lines).shift(-base) for part in slices]
    if span_indices:
        trace_extent = extent[0] + clock.origin_ns, extent[1] + clock.origin_ns
        span_slices = get_timelines(run).spans.window(
            [tracks[index] for index in span_indices],
            span_indices,
            trace_extent,
            width,
            only_work=only_work,
        )
        parts.append(span_slices.shift(-clock.origin_ns))
    for index, track in enumerate(tracks):
        if track.kind == PATH:
            pieces = get_path_timeline(run).slices.overlapping(*extent)
            parts.append(pieces.renumber_lines(np.array([index])))
    get_timelines(run).evict()
    return analysis.merge_slices(parts)


def read_parts(
    run: Run, tracks: Sequence[TrackId], extent: tuple[int, int], *, min_duration_ns: int
) -> list[SlicePart]:
    """Read the aggregates inside the slices of tracks.

    Args:
        run, tracks, extent: as for `read_window`; lines are indices of tracks.
        min_duration_ns: of the slices.
    """
    _, span_indices = _group_by_source(run, tracks)
    if not span_indices:
        return []
    origin_ns = run.clock.origin_ns
    return get_timelines(run).spans.parts(
        [tracks[index] for index in span_indices],
        span_indices,
        (extent[0] + origin_ns, extent[1] + origin_ns),
        min_duration_ns,
    )


def read_chunks(
    run: Run, tracks: Sequence[TrackId], extent: tuple[int, int]
) -> Iterator[tuple[int, int, analysis.Slices]]:
    """Read every event of tracks in a range, chunk by chunk, without those that do no work.

    Yields start and end of a chunk, and the events that overlap it. A chunk bounds the memory used.
    """
    indices_by_trace, span_indices = _group_by_source(run, tracks)
    span_ns = max(1, run.clock.end_ns - run.clock.origin_ns)
    events = sum(
        get_timelines(run).contents[trace][tracks[index].track].total_count
        for trace, indices in indices_by_trace.items()
        for index in indices
        if tracks[index].track in get_timelines(run).contents[trace]
    )
    rate = events / span_ns
    if span_indices:
        rate += run.reader.row_count("spans") / span_ns
    chunk_count = max(1, math.ceil(rate * (extent[1] - extent[0]) / CHUNK_EVENTS))
    chunk_count = min(chunk_count, extent[1] - extent[0])
    borders = [
        extent[0] + (extent[1] - extent[0]) * i // chunk_count for i in range(chunk_count + 1)
    ]
    for start, end in itertools.pairwise(borders):
        yield start, end, read_window(run, tracks, (start, end), only_work=True)


def split_by_line(slices: analysis.Slices, count: int) -> list[analysis.Slices]:
    """Split slices, which are sorted by line, into those of each of `count` lines."""
    borders = np.searchsorted(slices.line, np.arange(count + 1)).tolist()
    return [slices.take(slice(start, end)) for start, end in itertools.pairwise(borders)]


def compute_busy_ratios(slices: analysis.Slices) -> list[float]:
    """Compute the share of each slice that its events cover: 1 for a single event."""
    ratios = np.minimum(slices.busy / np.maximum(slices.duration, 1), 1.0)
    ratios = np.where(slices.event >= 0, 1.0, ratios)
    rounded: list[float] = np.round(ratios, 4).tolist()
    return rounded


def _group_by_source(run: Run, tracks: Sequence[TrackId]) -> tuple[dict[int, list[int]], list[int]]:
    """Return the indices of the tracks of each trace, and of the tracks with spans."""
    indices_by_trace: dict[int, list[int]] = defaultdict(list)
    span_indices = [index for index, track in enumerate(tracks) if track.kind == "spans"]
    for index, track in enumerate(tracks):
        if track.kind in {"trace", "ranges"} and track.trace in get_timelines(run):
            indices_by_trace[track.trace].append(index)
    return indices_by_trace, span_indices


def _map_lines(
    tracks: Sequence[TrackId], indices: Sequence[int], parts: Sequence[analysis.Slices]
) -> intervals.Int:
    """Map each line of a trace to the index of its track; -1 if not requested."""
    trace_lines = [2 * track.track + (track.kind == "ranges") for track in tracks]
    highest = max([*trace_lines, *(int(part.line.max(initial=0)) for part in parts)])
    lines = np.full(highest + 1, -1, dtype=np.int64)
    for line, index in zip(trace_lines, indices, strict=True):
        if line >= 0:
            lines[line] = index
    return lines


def sum_tracks(
    run: Run, tracks: Sequence[TrackId], extent: tuple[int, int]
) -> list[analysis.LineSums]:
    """Sum up the events of each track within a range, after the run's origin."""
    sums = [analysis.LineSums() for _ in tracks]
    nests = _flag_nesting(run, tracks)
    for start, end, slices in read_chunks(run, tracks, extent):
        events = analysis.clip_events(
            slices, (start, end), is_first=start == extent[0], nests=nests
        )
        order = np.argsort(events.line, kind="stable")
        borders = np.searchsorted(events.line[order], np.arange(len(tracks) + 1))
        for line in np.flatnonzero(np.diff(borders)).tolist():
            rows = order[borders[line] : borders[line + 1]]
            sums[line].add_names(events, rows)
            sums[line].add_busy(
                *intervals.union(intervals.Intervals(events.start[rows], events.end[rows]))
            )
    return sums


def build_call_tree(
    run: Run, tracks: Sequence[TrackId], extent: tuple[int, int]
) -> analysis.CallTree:
    """Sum up the events of tracks within a range, after the run's origin, by path of names."""
    tree = analysis.CallTree()
    nests = _flag_nesting(run, tracks)
    for start, end, slices in read_chunks(run, tracks, extent):
        tree.add(
            analysis.clip_events(slices, (start, end), is_first=start == extent[0], nests=nests)
        )
    return tree


def _flag_nesting(run: Run, tracks: Sequence[TrackId]) -> NDArray[np.bool_]:
    """Flag the tracks whose events nest: all except streams of devices."""
    return np.array([not is_stream(run, track) for track in tracks], dtype=np.bool_)


def is_stream(run: Run, track: TrackId) -> bool:
    """Return True for the stream of a device in a trace."""
    if track.kind != "trace" or track.trace not in get_timelines(run):
        return False
    content = get_timelines(run).contents[track.trace].get(track.track)
    return content is not None and content.is_stream
