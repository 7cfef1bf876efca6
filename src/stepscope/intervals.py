"""The algebra of intervals: nesting, self time, unions, overlaps.

Intervals are pairs of equally long int64 arrays, half-open, in nanoseconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]


class Intervals(NamedTuple):
    """Starts and ends, `start[i] <= end[i]`."""

    start: Int
    end: Int

    @property
    def total_ns(self) -> int:
        """Sum of the durations."""
        return int((self.end - self.start).sum())


EMPTY = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def nesting_order(start: Int, end: Int) -> Int:
    """Indices that put an interval before those it contains: by start, longer first."""
    return np.lexsort((-end, start)).astype(np.int64)


class Nesting(NamedTuple):
    """How intervals lie in each other."""

    parent: Int
    """Index of the innermost interval around each one, -1 for none."""
    excess: Int
    """How much later each one ends than the innermost interval in which it begins; 0 where it
    lies inside that."""


def parents(start: Int, end: Int, tolerance: int = 0) -> Int:
    """Index of the innermost interval around each one, -1 for none; see `nest`."""
    return nest(start, end, tolerance).parent


def nest(start: Int, end: Int, tolerance: int = 0) -> Nesting:
    """The innermost interval around each one.

    Args:
        start, end: in nesting order. An interval that begins inside another and ends after it
            is no child of it,
        tolerance: unless it ends at most this much later.

    Each interval first takes its predecessor for its parent and, while that does not contain
    it, asks that one's own; the paths halve, so it takes O(depth + log n) passes.
    """
    excess = np.zeros(len(start), dtype=np.int64)
    if (end[:-1] <= start[1:]).all() and (end[:-1] < end[1:]).all():  # one after the other
        return Nesting(np.full(len(start), -1, dtype=np.int64), excess)
    parent = np.arange(-1, len(start) - 1, dtype=np.int64)
    asking = np.arange(1, len(start), dtype=np.int64)
    while len(asking):
        asked = parent[asking]
        reach = end[asked]
        over = (reach > start[asking]) & (reach < end[asking])
        if over.any():
            late = asking[over]
            excess[late] = np.maximum(excess[late], end[late] - reach[over])
        wrong = reach + tolerance < end[asking]
        if tolerance:
            # What merely ended shortly before is no parent; an empty interval at the very end is.
            wrong |= (reach <= start[asking]) & (reach < end[asking])
        asking, asked = asking[wrong], asked[wrong]
        parent[asking] = parent[asked]
        asking = asking[parent[asking] >= 0]
    return Nesting(parent, excess)


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
    index = np.arange(count, dtype=np.int64)
    times = np.concatenate([end, start])
    begins = np.repeat(np.array([0, 1]), count)
    # At one time, ends come first, the inner before the outer; then starts, the outer first.
    order = np.lexsort((np.concatenate([-index, index]), begins, times))
    owner = np.concatenate([parent, index])[order]
    cuts = times[order]
    kept = cuts[1:] > cuts[:-1]
    return Segments(cuts[:-1][kept], cuts[1:][kept], owner[:-1][kept])


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
    before = np.concatenate([[0], np.cumsum(merged.end - merged.start)])
    position = np.searchsorted(merged.start, times, side="right")
    whole = before[position]
    last = np.maximum(position - 1, 0)
    if not len(merged.start):
        return np.zeros(len(times), dtype=np.int64)
    overhang = np.where(position > 0, np.maximum(merged.end[last] - times, 0), 0)
    return (whole - overhang).astype(np.int64)


def overlap(intervals: Intervals, merged: Intervals) -> Int:
    """Nanoseconds of each interval that a union covers."""
    return covered_until(intervals.end, merged) - covered_until(intervals.start, merged)


def contains(merged: Intervals, times: Int) -> NDArray[np.bool_]:
    """Whether a union covers each time."""
    position = np.searchsorted(merged.start, times, side="right") - 1
    if not len(merged.start):
        return np.zeros(len(times), dtype=np.bool_)
    return (position >= 0) & (merged.end[np.maximum(position, 0)] > times)
