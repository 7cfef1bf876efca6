"""The algebra of intervals: nesting, self time, unions, overlaps.

Intervals are pairs of equally long int64 arrays, half-open, in nanoseconds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]

OVERHANG_NS = 1_000
"""A range may end so much after the range around it: clocks are read at different moments."""
LARGEST = 2**62
"""Of numbers that hold a line and a time on it."""
MOST_ROWS = 64
"""So far down a free row is looked for; below that nobody would see it."""


class Intervals(NamedTuple):
    """Starts and ends, `start[i] <= end[i]`."""

    start: Int
    end: Int

    @property
    def total_ns(self) -> int:
        """Sum of the durations."""
        return int((self.end - self.start).sum())


EMPTY = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def sort_order(first: Int, *ties: Int) -> Int:
    """Indices that sort by one key; what is equal there by the next, and so on; stable.

    The same as `np.lexsort` with its keys the other way around, which sorts all rows by every key.
    Recorders write nearly in the order of time: few rows are equal there, and a sort by another
    key first would destroy that order.
    """
    order = np.argsort(first, kind="stable")
    along = first[order]
    same = along[1:] == along[:-1]
    if ties and same.any():
        tied = np.zeros(len(order), dtype=np.bool_)
        tied[1:] = same
        tied[:-1] |= same
        places = np.flatnonzero(tied)
        rows = order[places]
        keys = [key[rows] for key in (first, *ties)]
        order[places] = rows[np.lexsort(keys[::-1])]
    return order.astype(np.int64, copy=False)


def nesting_order(start: Int, end: Int) -> Int:
    """Indices that put an interval before those it contains: by start, longer first."""
    return sort_order(start, -end)


class Nesting(NamedTuple):
    """How intervals lie in each other."""

    parent: Int
    """Index of the innermost interval around each one, -1 for none."""
    excess: Int
    """How much later each one ends than the innermost interval in which it begins; 0 where it
    lies inside that."""


def parents(start: Int, end: Int, tolerance: int = 0) -> Int:
    """Index of the innermost interval around each one, -1 for none; see `nest`."""
    return _parents(start, end, tolerance, None)


def nest(start: Int, end: Int, tolerance: int = 0) -> Nesting:
    """The innermost interval around each one.

    Args:
        start, end: in nesting order. An interval that begins inside another and ends after it
            is no child of it,
        tolerance: unless it ends at most this much later.
    """
    excess = np.zeros(len(start), dtype=np.int64)
    return Nesting(_parents(start, end, tolerance, excess), excess)


def _parents(start: Int, end: Int, tolerance: int, excess: Int | None) -> Int:
    """The innermost interval around each one; `excess` is filled in where it is given.

    Each interval first takes its predecessor for its parent and, while that does not contain
    it, asks that one's own; the paths halve, so it takes O(depth + log n) passes.
    """
    if (end[:-1] <= start[1:]).all() and (end[:-1] < end[1:]).all():  # one after the other
        return np.full(len(start), -1, dtype=np.int64)
    parent = np.arange(-1, len(start) - 1, dtype=np.int64)
    asking = np.arange(1, len(start), dtype=np.int64)
    begin, finish, reach = start[1:], end[1:], end[:-1]
    while len(asking):
        # What reaches as far contains it, even an empty interval at its very end.
        short = np.flatnonzero(reach < finish)
        asking, begin, finish, reach = (each[short] for each in (asking, begin, finish, reach))
        over = reach > begin
        if excess is not None and over.any():
            late = asking[over]
            excess[late] = np.maximum(excess[late], (finish - reach)[over])
        # What ended before is no parent, however shortly before.
        wrong = np.flatnonzero(~over | (reach + tolerance < finish))
        above = parent[parent[asking[wrong]]]
        parent[asking[wrong]] = above
        wrong = wrong[above >= 0]
        asking, begin, finish = asking[wrong], begin[wrong], finish[wrong]
        reach = end[parent[asking]]
    return parent


def depths(parent: Int) -> Int:
    """How many intervals are around each one: follows parents by doubling jumps."""
    depth = (parent >= 0).astype(np.int64)
    jump = parent.copy()
    while (going := np.flatnonzero(jump >= 0)).size:
        over = jump[going]
        depth[going] += depth[over]
        jump[going] = jump[over]
    return depth


def subtree_sums(own: Int, parent: Int, depth: Int) -> Int:
    """Of each interval, the sum of `own` over itself and everything inside it."""
    total = own.copy()
    nested = np.flatnonzero(parent >= 0)
    deepest_first = nested[np.argsort(-depth[nested], kind="stable")]
    borders = np.flatnonzero(np.diff(depth[deepest_first])) + 1
    for level in np.split(deepest_first, borders):
        np.add.at(total, parent[level], total[level])
    return total


def innermost_at(times: Int, start: Int, end: Int, parent: Int) -> Int:
    """Index of the innermost interval that covers each time, -1 for none."""
    if not len(start):
        return np.full(len(times), -1, dtype=np.int64)
    found = np.searchsorted(start, times, side="right").astype(np.int64) - 1
    while True:
        asked = np.maximum(found, 0)
        outside = (found >= 0) & (end[asked] <= times)
        if not outside.any():
            return found
        found[outside] = parent[found[outside]]


class Segments(NamedTuple):
    """Time cut where the innermost interval changes: who owns each piece."""

    start: Int
    end: Int
    owner: Int
    """Index of the interval, -1 where none is open."""


def segments(start: Int, end: Int, parent: Int) -> Segments:
    """The pieces of time between consecutive starts and ends, with their innermost owner.

    Args:
        start, end, parent: properly nested, in nesting order, of positive duration.
    """
    count = len(start)
    if not count:
        return Segments(*(np.empty(0, dtype=np.int64) for _ in range(3)))
    # At one time, ends come first, the inner before the outer; then starts, the outer first.
    times = np.concatenate([end[::-1], start])
    order = np.argsort(times, kind="stable")
    owner = np.concatenate([parent[::-1], np.arange(count, dtype=np.int64)]).take(order)
    cuts = times.take(order)
    kept = np.flatnonzero(cuts[1:] > cuts[:-1])
    return Segments(cuts.take(kept), cuts.take(kept + 1), owner.take(kept))


def union(intervals: Intervals) -> Intervals:
    """The same time without overlaps, sorted."""
    if not len(intervals.start):
        return EMPTY
    start, end = intervals
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.concatenate([[True], start[1:] > reach[:-1]])
    closes = np.concatenate([opens[1:], [True]])
    return Intervals(start[opens], reach[closes])


def covered_until(times: Int, merged: Intervals) -> Int:
    """Nanoseconds of a union that lie before each time."""
    if not len(merged.start) or not len(times):
        return np.zeros(len(times), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(merged.end - merged.start)])
    reach = np.concatenate([[times.min()], merged.end])  # nothing reaches beyond the first time
    position = np.searchsorted(merged.start, times, side="right")
    found: Int = before.take(position) - np.maximum(reach.take(position) - times, 0)
    return found


def overlap(intervals: Intervals, merged: Intervals) -> Int:
    """Nanoseconds of each interval that a union covers."""
    return covered_until(intervals.end, merged) - covered_until(intervals.start, merged)


def contains(merged: Intervals, times: Int) -> NDArray[np.bool_]:
    """Whether a union covers each time."""
    if not len(merged.start):
        return np.zeros(len(times), dtype=np.bool_)
    position = np.searchsorted(merged.start, times, side="right") - 1
    return (position >= 0) & (merged.end[np.maximum(position, 0)] > times)


# --- rows of a picture: what is nested lies below what is around it, and nothing lies on anything


def nesting_rows(line: Int, start: Int, end: Int, *ties: Int) -> Int:
    """Ranges around each one on its line, itself left out.

    Args:
        line: of each range; lines know nothing of each other.
        start, end: where two are the same, the one that comes first is around the other.
        ties: by which it comes first; without, its place.
    """
    if not len(line):
        return np.zeros(0, dtype=np.int64)
    first, lowest = int(start.min()), int(line.min())
    stretch = int(end.max()) - first + 2 * OVERHANG_NS
    span = int(line.max()) - lowest
    if span and span >= LARGEST // stretch:  # so many lines of so long a time: one half at a time
        found = np.empty(len(line), dtype=np.int64)
        upper = line > lowest + span // 2
        for half in (~upper, upper):
            keys = (key[half] for key in ties)
            found[half] = nesting_rows(line[half], start[half], end[half], *keys)
        return found
    at = start - first + (line - lowest) * stretch
    until = at + (end - start)
    order = sort_order(at, start - end, *ties)
    found = np.empty(len(line), dtype=np.int64)
    found[order] = depths(parents(at[order], until[order], OVERHANG_NS))
    return found


def without_overlaps(line: Int, row: Int, start: Int, end: Int) -> Int:
    """Rows on which ranges of a line do not overlap.

    Of those that do, as kernels of one stream may, the later one goes to the first row below where
    it is free.
    """
    order = np.lexsort((start - end, start, row, line))
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = np.diff(line[order]).astype(np.bool_) | np.diff(row[order]).astype(np.bool_)
    if not (~opens[1:] & (start[order][1:] < end[order][:-1])).any():
        return row
    suspects = order[_within_reach(start[order], end[order], opens)]
    suspects = suspects[np.argsort(start[suspects], kind="stable")]
    stays = np.isin(line, line[suspects])
    stays[suspects] = False
    taken: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    staying = np.flatnonzero(stays)
    for index in staying[np.argsort(start[staying], kind="stable")].tolist():
        taken[int(line[index]), int(row[index])].append((int(start[index]), int(end[index])))
    found = row.copy()
    for index in suspects.tolist():
        on, at, extent = int(line[index]), int(row[index]), (int(start[index]), int(end[index]))
        lowest = at + MOST_ROWS
        while at < lowest and not _is_free(taken[on, at], extent):
            at += 1
        insort(taken[on, at], extent)
        found[index] = at
    return found


def _within_reach(start: Int, end: Int, opens: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which sorted ranges begin before the end of an earlier one of their group."""
    stretch = int(end.max()) - int(start.min()) + 1
    offset = (np.cumsum(opens) - 1) * stretch - int(start.min())
    reach = np.maximum.accumulate(end + offset)
    return np.concatenate([[False], start[1:] + offset[1:] < reach[:-1]])


def _is_free(taken: list[tuple[int, int]], extent: tuple[int, int]) -> bool:
    start, end = extent
    place = bisect_left(taken, extent)
    if place and taken[place - 1][1] > start:
        return False
    while place < len(taken) and taken[place][0] < end:
        if taken[place][1] > start:
            return False
        place += 1
    return True
