"""Algebra of intervals: nesting, self time, unions, overlaps.

Intervals are two int64 arrays of equal length, half-open, in nanoseconds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Mask = NDArray[np.bool_]

OVERHANG_NS = 1_000
"""Tolerance for a range that ends after the enclosing one: clocks are read at different times."""
MAX_KEY = 2**62
"""Limit of sort keys that combine a line and a time on it."""
MAX_ROWS = 64
"""Rows searched for a free one; a row further down would not be visible."""


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
    """Return indices that sort by the first key, ties by the next one, and so on; stable.

    Equals `np.lexsort` with the keys in reverse order, which sorts all rows by every key. Profilers
    write events almost in order of time: few rows are tied, and a first sort by another key would
    destroy that order.
    """
    order = np.argsort(first, kind="stable")
    ordered = first[order]
    is_equal = ordered[1:] == ordered[:-1]
    if ties and is_equal.any():
        is_tied = np.zeros(len(order), dtype=np.bool_)
        is_tied[1:] = is_equal
        is_tied[:-1] |= is_equal
        positions = np.flatnonzero(is_tied)
        rows = order[positions]
        keys = [key[rows] for key in (first, *ties)]
        order[positions] = rows[np.lexsort(keys[::-1])]
    return order.astype(np.int64, copy=False)


def nesting_order(start: Int, end: Int) -> Int:
    """Return indices that sort an interval before those it contains: by start, longer first."""
    return sort_order(start, -end)


class Nesting(NamedTuple):
    """Tree of intervals that contain each other."""

    parent: Int
    """Index of each interval's innermost enclosing interval, -1 for none."""
    excess: Int
    """Time by which each interval ends after the innermost interval in which it starts; 0 if it is
    nested in that."""


def parents(start: Int, end: Int, tolerance: int = 0) -> Int:
    """Return the index of each interval's innermost enclosing interval, -1 for none; see `nest`."""
    return _parents(start, end, tolerance, None)


def nest(start: Int, end: Int, tolerance: int = 0) -> Nesting:
    """Find each interval's innermost enclosing interval.

    Args:
        start, end: in nesting order.
        tolerance: an interval that starts inside another and ends after it counts as its child if
            it ends at most this much later. An empty interval contains none.
    """
    excess = np.zeros(len(start), dtype=np.int64)
    return Nesting(_parents(start, end, tolerance, excess), excess)


def _parents(start: Int, end: Int, tolerance: int, excess: Int | None) -> Int:
    """Find each interval's innermost enclosing interval; write the excess if an array is passed.

    The first candidate for the parent of an interval is its predecessor. While the candidate does
    not contain the interval, the candidate's parent is tried. Paths are halved, so this takes
    O(depth + log n) passes.
    """
    if (end[:-1] <= start[1:]).all() and (end[:-1] < end[1:]).all():  # consecutive
        return np.full(len(start), -1, dtype=np.int64)
    # Calls that took no microsecond follow each other at one time: they are not inside each other.
    reach = np.where(end > start, end, start - 1)
    parent = np.arange(-1, len(start) - 1, dtype=np.int64)
    pending = np.arange(1, len(start), dtype=np.int64)
    pending_start, pending_end, parent_end = start[1:], end[1:], reach[:-1]
    while len(pending):
        # A candidate that ends as late contains the interval, even an empty one at its end.
        short = np.flatnonzero(parent_end < pending_end)
        pending, parent_end = pending[short], parent_end[short]
        pending_start, pending_end = pending_start[short], pending_end[short]
        overlaps = parent_end > pending_start
        if excess is not None and overlaps.any():
            late = pending[overlaps]
            excess[late] = np.maximum(excess[late], (pending_end - parent_end)[overlaps])
        # A candidate that ended before the start is not a parent, however small the gap.
        wrong = np.flatnonzero(~overlaps | (parent_end + tolerance < pending_end))
        grandparent = parent[parent[pending[wrong]]]
        parent[pending[wrong]] = grandparent
        wrong = wrong[grandparent >= 0]
        pending = pending[wrong]
        pending_start, pending_end = pending_start[wrong], pending_end[wrong]
        parent_end = reach[parent[pending]]
    return parent


def depths(parent: Int) -> Int:
    """Count the enclosing intervals of each interval, following parents by doubling jumps."""
    depth = (parent >= 0).astype(np.int64)
    jump = parent.copy()
    while (active := np.flatnonzero(jump >= 0)).size:
        ancestor = jump[active]
        depth[active] += depth[ancestor]
        jump[active] = jump[ancestor]
    return depth


def first_ancestors(parent: Int, is_goal: Mask) -> Int:
    """Return the first goal on the way up from each interval, itself included, -1 for none.

    Every jump reaches as far as all jumps before it, so this takes O(log depth) passes.
    """
    reached = np.where(is_goal, np.arange(len(parent), dtype=np.int64), parent)
    climbing = np.flatnonzero(~is_goal & (parent >= 0))
    while len(climbing := climbing[~is_goal[reached[climbing]]]):
        reached[climbing] = reached[reached[climbing]]
        climbing = climbing[reached[climbing] >= 0]
    return reached


def subtree_sums(values: Int, parent: Int, depth: Int) -> Int:
    """Sum `values` over each interval and all intervals inside it."""
    total = values.copy()
    nested = np.flatnonzero(parent >= 0)
    deepest_first = nested[np.argsort(-depth[nested], kind="stable")]
    borders = np.flatnonzero(np.diff(depth[deepest_first])) + 1
    for level in np.split(deepest_first, borders):
        np.add.at(total, parent[level], total[level])
    return total


def innermost_at(times: Int, start: Int, end: Int, parent: Int) -> Int:
    """Return the index of the innermost interval that covers each time, -1 for none."""
    if not len(start):
        return np.full(len(times), -1, dtype=np.int64)
    innermost = np.searchsorted(start, times, side="right").astype(np.int64) - 1
    while True:
        candidate = np.maximum(innermost, 0)
        outside = (innermost >= 0) & (end[candidate] <= times)
        if not outside.any():
            return innermost
        innermost[outside] = parent[innermost[outside]]


class Segments(NamedTuple):
    """Pieces of time between changes of the innermost interval."""

    start: Int
    end: Int
    owner: Int
    """Index of the innermost interval, -1 where none is open."""


def segments(start: Int, end: Int, parent: Int) -> Segments:
    """Cut time at all starts and ends and find the innermost interval of each piece.

    Args:
        start, end, parent: properly nested, in nesting order, of positive duration.
    """
    count = len(start)
    if not count:
        return Segments(*(np.empty(0, dtype=np.int64) for _ in range(3)))
    index = np.arange(count, dtype=np.int64)
    if (end[:-1] <= start[1:]).all():  # consecutive
        cuts = np.stack([start, end], axis=1).reshape(-1)
        owner = np.stack([index, np.full(count, -1, dtype=np.int64)], axis=1).reshape(-1)
    else:
        # At equal times, ends come first, inner before outer; then starts, outer before inner.
        times = np.concatenate([end[::-1], start])
        order = np.argsort(times, kind="stable")
        owner = np.concatenate([parent[::-1], index]).take(order)
        cuts = times.take(order)
    pieces = np.flatnonzero(cuts[1:] > cuts[:-1])
    return Segments(cuts.take(pieces), cuts.take(pieces + 1), owner.take(pieces))


def union(intervals: Intervals) -> Intervals:
    """Merge overlapping intervals; the result is sorted and disjoint."""
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


def take_outermost(intervals: Intervals) -> Intervals:
    """Select the intervals that start in no earlier one.

    Args:
        intervals: in nesting order.
    """
    is_outermost = np.ones(len(intervals.start), dtype=np.bool_)
    is_outermost[1:] = intervals.start[1:] >= np.maximum.accumulate(intervals.end)[:-1]
    return Intervals(intervals.start[is_outermost], intervals.end[is_outermost])


def unite(*sets: Intervals) -> Intervals:
    """Unite several sets of intervals into one union."""
    starts, ends = zip(*sets, strict=True)
    return union(Intervals(np.concatenate(starts), np.concatenate(ends)))


def find_gaps(merged: Intervals, extent: tuple[int, int]) -> Intervals:
    """Find the times of an extent that a union does not cover."""
    return subtract(Intervals(*(np.array([time], dtype=np.int64) for time in extent)), merged)


def subtract(merged: Intervals, removed: Intervals) -> Intervals:
    """Subtract one union from another; the result is sorted and disjoint.

    A piece starts where the union starts outside of what is removed, or where that ends inside the
    union; it ends likewise.
    """
    merged, removed = _drop_empty(merged), _drop_empty(removed)
    start = [
        merged.start[~contains(removed, merged.start)],
        removed.end[_contains_inside(merged, removed.end)],
    ]
    end = [
        merged.end[~contains(removed, merged.end - 1)],
        removed.start[_contains_inside(merged, removed.start)],
    ]
    return Intervals(np.sort(np.concatenate(start)), np.sort(np.concatenate(end)))


def _drop_empty(intervals: Intervals) -> Intervals:
    rows = intervals.end > intervals.start
    return Intervals(intervals.start[rows], intervals.end[rows])


def _contains_inside(merged: Intervals, times: Int) -> NDArray[np.bool_]:
    """Test for each time if a union covers the nanoseconds before and after it."""
    return contains(merged, times) & contains(merged, times - 1)


def covered_until(times: Int, merged: Intervals) -> Int:
    """Measure the nanoseconds of a union before each time."""
    if not len(merged.start) or not len(times):
        return np.zeros(len(times), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(merged.end - merged.start)])
    ends = np.concatenate([[times.min()], merged.end])  # before the union, nothing to subtract
    position = np.searchsorted(merged.start, times, side="right")
    covered: Int = before.take(position) - np.maximum(ends.take(position) - times, 0)
    return covered


def overlap(intervals: Intervals, merged: Intervals) -> Int:
    """Measure the nanoseconds of each interval that a union covers."""
    return covered_until(intervals.end, merged) - covered_until(intervals.start, merged)


def contains(merged: Intervals, times: Int) -> NDArray[np.bool_]:
    """Test for each time if a union covers it."""
    if not len(merged.start):
        return np.zeros(len(times), dtype=np.bool_)
    position = np.searchsorted(merged.start, times, side="right") - 1
    return (position >= 0) & (merged.end[np.maximum(position, 0)] > times)


# --- rows of a picture: a nested range is below its parent, and ranges never overlap


def nesting_rows(line: Int, start: Int, end: Int, *ties: Int) -> Int:
    """Count the enclosing ranges of each range on its line.

    Args:
        line: line of each range; lines are independent.
        start, end: of two equal ranges, the one that sorts first encloses the other.
        ties: sort keys for equal ranges; without them, the index.
    """
    if not len(line):
        return np.zeros(0, dtype=np.int64)
    first, lowest = int(start.min()), int(line.min())
    stretch = int(end.max()) - first + 2 * OVERHANG_NS
    span = int(line.max()) - lowest
    if span and span >= MAX_KEY // stretch:  # the keys would overflow: split the lines in half
        rows = np.empty(len(line), dtype=np.int64)
        upper = line > lowest + span // 2
        for half in (~upper, upper):
            keys = (key[half] for key in ties)
            rows[half] = nesting_rows(line[half], start[half], end[half], *keys)
        return rows
    key_start = start - first + (line - lowest) * stretch
    key_end = key_start + (end - start)
    order = sort_order(key_start, start - end, *ties)
    rows = np.empty(len(line), dtype=np.int64)
    rows[order] = depths(parents(key_start[order], key_end[order], OVERHANG_NS))
    return rows


def separate_overlaps(line: Int, row: Int, start: Int, end: Int) -> Int:
    """Assign rows on which ranges of a line do not overlap.

    Of two ranges that overlap, as kernels of one stream may, the later one moves to the first row
    below that is free.
    """
    # By line, row and nesting order; small numbers are sorted without comparisons.
    order = nesting_order(start, end)
    for key in (row, line):
        narrow = key - key.min(initial=0)
        narrow = narrow.astype(np.min_scalar_type(int(narrow.max(initial=0))))
        order = order[np.argsort(narrow[order], kind="stable")]
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = np.diff(line[order]).astype(np.bool_) | np.diff(row[order]).astype(np.bool_)
    if not (~opens[1:] & (start[order][1:] < end[order][:-1])).any():
        return row
    is_moving = _overlaps_earlier(start[order], end[order], opens)
    moving = order[is_moving]
    moving = moving[np.argsort(start[moving], kind="stable")]
    fixed = order[~is_moving & np.isin(line[order], line[moving])]
    rows = _fixed_rows(line[fixed], row[fixed], start[fixed], end[fixed])
    new_row = row.copy()
    for index in moving.tolist():
        line_number, target = int(line[index]), int(row[index])
        extent = int(start[index]), int(end[index])
        lowest = target + MAX_ROWS
        while target < lowest and not rows[line_number, target].is_free(extent):
            target += 1
        insort(rows[line_number, target].moved, extent)
        new_row[index] = target
    return new_row


@dataclass(frozen=True, slots=True)
class _Row:
    """Ranges of one row of a line, none of which overlap; few of them have moved."""

    fixed: Intervals = EMPTY
    moved: list[tuple[int, int]] = field(default_factory=list)

    def is_free(self, extent: tuple[int, int]) -> bool:
        """Return True if no range of the row is in the way of another one."""
        if not len(self.fixed.start):  # as below the rows of nested ranges
            return _is_free(self.moved, extent)
        start, _ = extent
        first, last = self.fixed.start.searchsorted(extent).tolist()
        if first and self.fixed.end[first - 1] > start:
            return False
        if last > first and self.fixed.end[last - 1] > start:
            return False
        return _is_free(self.moved, extent)


def _fixed_rows(line: Int, row: Int, start: Int, end: Int) -> dict[tuple[int, int], _Row]:
    """Return the ranges of each row of each line, which are sorted by line, row and start."""
    opens = np.flatnonzero((np.diff(line) != 0) | (np.diff(row) != 0)) + 1
    borders = [0, *opens.tolist(), len(line)]
    rows: dict[tuple[int, int], _Row] = defaultdict(_Row)
    for first, last in pairwise(borders):
        rows[int(line[first]), int(row[first])] = _Row(
            Intervals(start[first:last], end[first:last])
        )
    return rows


def _overlaps_earlier(start: Int, end: Int, opens: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Test for each sorted range if it starts before an earlier one of its group has ended."""
    stretch = int(end.max()) - int(start.min()) + 1
    offset = (np.cumsum(opens) - 1) * stretch - int(start.min())
    reach = np.maximum.accumulate(end + offset)
    return np.concatenate([[False], start[1:] + offset[1:] < reach[:-1]])


def _is_free(occupied: list[tuple[int, int]], extent: tuple[int, int]) -> bool:
    start, end = extent
    index = bisect_left(occupied, extent)
    if index and occupied[index - 1][1] > start:
        return False
    while index < len(occupied) and occupied[index][0] < end:
        if occupied[index][1] > start:
            return False
        index += 1
    return True
