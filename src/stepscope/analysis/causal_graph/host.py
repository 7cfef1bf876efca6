"""Host threads of a causal graph: own time of operators and calls, handovers between threads.

A thread is a chain of points, at each start and end of a range on it. The weight of the edge
between two points is the time between them, which belongs to the innermost range, or to the
thread's other code (Python) where no range is open. So a thread that waits for nothing replays
exactly.

A thread other than that of the steps, such as that of the backward pass, runs in bursts. Before
each it waits for the thread of the steps, or for what another thread did since (an edge of kind
HANDOVER). If the thread of the steps does nothing meanwhile, or goes on as soon as they end, it
waits for the last of the bursts, and their time is not its own.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.arrays.columns import group_rows
from stepscope.analysis.causal_graph import graph

Int = intervals.Int
Mask = NDArray[np.bool_]


JOIN_NS = 200_000
JOIN_PARTS = 10
"""A thread has waited for a burst that it overlaps if it goes on within the larger of this time and
this part of the overlap."""


class HostRanges(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Operators, runtime calls and named ranges of all threads; one entry per range."""

    track: Int
    start: Int
    end: Int
    activity: Int
    """Number of the range in the graph."""
    category: NDArray[np.int8]
    """Category of the range's own time."""
    is_input: Mask
    """True for fetches of batches: the time of all ranges inside is input."""
    is_busy: Mask
    """True where the thread works in the range's own time: operators and calls, not ranges around
    them, in which it may wait for another thread."""


class HostThreads(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Chains of points of all threads, those of one thread after another."""

    time: Int
    track: Int
    edges: graph.CausalEdges
    """Edges between neighbours first, in the order of their sources, then handovers."""
    edge_after: Int
    """Edge from each point to its neighbour, -1 for the last one of a thread."""
    keys: Int
    base: int
    stride: int
    tracks: Int

    def find(self, track: Int, time: Int, *, before: bool = False) -> Int:
        """Find points by thread and time; -1 where the thread is not one of these.

        Args:
            track, time: thread and time of each.
            before: the last point at or before the time, instead of the first at or after it.
        """
        row = np.searchsorted(self.tracks, track)
        row = np.minimum(row, max(len(self.tracks) - 1, 0))
        if not len(self.tracks):
            return np.full(len(track), -1, dtype=np.int64)
        key = row * self.stride + np.clip(time - self.base, 0, self.stride - 1)
        point = (
            np.searchsorted(self.keys, key, side="right") - 1
            if before
            else np.searchsorted(self.keys, key)
        )
        is_known = (self.tracks[row] == track) & (point >= 0) & (point < len(self.keys))
        point = np.where(is_known, point, 0)
        is_known &= self.track[point] == track
        return np.where(is_known, point, -1)


def build_threads(ranges: HostRanges, main_track: int) -> HostThreads:
    """Build the chains of the threads.

    Args:
        ranges: ranges of the host.
        main_track: thread of the steps.
    """
    rows = np.flatnonzero(ranges.end > ranges.start)
    groups = group_rows(ranges.track[rows])
    tracks, thread = ranges.track[rows][groups.first], groups.group
    base = int(ranges.start[rows].min()) if len(rows) else 0
    stride = int(ranges.end[rows].max()) - base + 2 if len(rows) else 1
    start = thread * stride + ranges.start[rows] - base
    end = thread * stride + ranges.end[rows] - base
    order = intervals.nesting_order(start, end)
    rows, start, end = rows[order], start[order], end[order]
    nesting = intervals.nest(start, end, intervals.OVERHANG_NS)
    end = _clip_to_parents(end, nesting)
    is_input = intervals.first_ancestors(nesting.parent, ranges.is_input[rows]) >= 0
    is_kept = end > start
    parent = _skip_dropped(nesting.parent, is_kept)
    rows, start, end = (part[is_kept] for part in (rows, start, end))
    is_input = is_input[is_kept]
    pieces = intervals.segments(start, end, parent)
    inside = pieces.start // stride == pieces.end // stride
    piece_start, piece_end, owner = (part[inside] for part in pieces)
    # Pieces are in order: each starts where the one before it ends, but for the first of a thread.
    opens = np.concatenate([[True], piece_start[1:] != piece_end[:-1]])[: len(piece_start)]
    keys = np.sort(np.concatenate([piece_start[opens], piece_end]))
    source = np.searchsorted(keys, piece_start)
    owner_row = np.append(rows, -1)[owner]
    has_owner = owner >= 0
    category = np.append(ranges.category, 0)[owner_row]
    category[~has_owner] = graph.PathCategory.PYTHON
    category[has_owner & np.append(is_input, False)[owner]] = graph.PathCategory.INPUT
    edges = graph.make_edges(
        source,
        np.searchsorted(keys, piece_end),
        piece_end - piece_start,
        graph.EdgeKind.HOST,
        category.astype(np.int8),
        np.where(has_owner, np.append(ranges.activity, -1)[owner_row], graph.NO_ACTIVITY),
    )
    edge_after = np.full(len(keys), -1, dtype=np.int64)
    edge_after[source] = np.arange(len(source), dtype=np.int64)
    threads = HostThreads(
        time=keys % stride + base,
        track=tracks[keys // stride] if len(tracks) else keys,
        edges=edges,
        edge_after=edge_after,
        keys=keys,
        base=base,
        stride=stride,
        tracks=tracks,
    )
    is_busy = has_owner & np.append(ranges.is_busy, False)[owner_row]
    return _hand_over(threads, is_busy, has_owner, main_track)


def _clip_to_parents(end: Int, nesting: intervals.Nesting) -> Int:
    """End ranges with the ranges around them: some end a little later, by another clock."""
    end = end.copy()
    for depth in range(1, int(nesting.depth.max(initial=0)) + 1):
        rows = np.flatnonzero(nesting.depth == depth)
        end[rows] = np.minimum(end[rows], end[nesting.parent[rows]])
    return end


def _skip_dropped(parent: Int, is_kept: Mask) -> Int:
    """Return the parents of the ranges that are kept, by their new numbers."""
    number = np.cumsum(is_kept) - 1
    if is_kept.all():
        return parent
    above = intervals.first_ancestors(parent, is_kept)
    # From the parent on: a range that is kept is its own first goal.
    outer = np.where(parent >= 0, above[parent], -1)
    outer = outer[is_kept]
    return np.where(outer >= 0, number[outer], -1)


def _hand_over(
    threads: HostThreads, is_busy: Mask, has_owner: Mask, main_track: int
) -> HostThreads:
    """Add the handovers between the thread of the steps and the gaps."""
    main = np.flatnonzero(threads.track == main_track)
    edges = threads.edges
    gaps = np.flatnonzero((threads.track[edges.source] != main_track) & ~has_owner)
    if not len(main) or not (threads.track != main_track).any():
        return threads
    main_time = threads.time[main]
    # Gaps in which the thread of the steps went on: before the next burst, its end is waited for.
    gap_start, gap_end = (threads.time[part[gaps]] for part in (edges.source, edges.target))
    went_on = np.searchsorted(main_time, gap_end) > np.searchsorted(
        main_time, gap_start, side="right"
    )
    waits = gaps[went_on]
    weight = edges.weight_ns.copy()
    weight[waits] = 0
    is_first = np.flatnonzero(
        (np.diff(threads.track, prepend=-1) != 0) & (threads.track != main_track)
    )
    is_last = np.flatnonzero(
        (np.diff(threads.track, append=-1) != 0) & (threads.track != main_track)
    )
    start_point = np.sort(np.concatenate([is_first, edges.target[waits]]))
    end_point = np.sort(np.concatenate([edges.source[waits], is_last]))
    start, end = threads.time[start_point], threads.time[end_point]
    before = np.searchsorted(main_time, start, side="right") - 1
    has_fork = before >= 0
    is_rest = threads.track != main_track
    is_rest[start_point] = False
    rest = np.flatnonzero(is_rest)
    source = _find_last_points(threads.time, main[before], rest, start)[has_fork]
    fork = graph.make_edges(
        source,
        start_point[has_fork],
        start[has_fork] - threads.time[source],
        graph.EdgeKind.HANDOVER,
        graph.PathCategory.PYTHON,
    )
    rows, piece = _find_joins(threads, main, is_busy, start, end)
    waited, wait = np.unique(piece, return_inverse=True)
    last_end = np.full(len(waited), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(last_end, wait, end[rows])
    join = graph.make_edges(
        end_point[rows],
        edges.target[piece],
        threads.time[edges.target[piece]] - last_end[wait],
        graph.EdgeKind.HANDOVER,
        graph.PathCategory.PYTHON,
    )
    extent = intervals.Intervals(
        threads.time[edges.source[waited]], threads.time[edges.target[waited]]
    )
    bursts = intervals.union(intervals.Intervals(start[rows], end[rows]))
    weight[waited] -= intervals.overlap(extent, bursts)
    chains = msgspec.structs.replace(edges, weight_ns=weight)
    return msgspec.structs.replace(threads, edges=graph.join_edges([chains, fork, join]))


def _find_joins(
    threads: HostThreads, main: Int, is_busy: Mask, start: Int, end: Int
) -> tuple[Int, Int]:
    """Find the bursts that the thread of the steps waits for.

    Args:
        threads: the threads.
        main: points of the thread of the steps.
        is_busy: by edge of a thread, true where it works.
        start, end: times of the bursts.

    Returns:
        The rows of these bursts, and the edge during which it waits for each.
    """
    main_time = threads.time[main]
    after = np.searchsorted(main_time, end)
    rows = np.flatnonzero((after > 0) & (after < len(main)))
    after = after[rows]
    piece = threads.edge_after[main[after - 1]]
    from_ns, until_ns = main_time[after - 1], main_time[after]
    is_inside = start[rows] >= from_ns
    waited_ns = end[rows] - np.maximum(start[rows], from_ns)
    goes_on = until_ns - end[rows] <= np.maximum(JOIN_NS, waited_ns // JOIN_PARTS)
    is_joined = ~is_busy[piece] & (is_inside | goes_on)
    return rows[is_joined], piece[is_joined]


def _find_last_points(time: Int, points: Int, more: Int, until: Int) -> Int:
    """Replace points by the last one of more that comes after it, at or before a time each."""
    if not len(more):
        return points
    more = more[np.argsort(time[more], kind="stable")]
    at = np.searchsorted(time[more], until, side="right") - 1
    is_later = (at >= 0) & (time[more[at]] > time[points])
    return np.where(is_later, more[at], points)
