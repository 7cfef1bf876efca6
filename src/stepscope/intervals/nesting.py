"""Intervals that contain each other: order, parents, depths, innermost; rows of a picture."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.intervals._nesting import open_nesting
from stepscope.intervals.sets import EMPTY, Int, Intervals, Mask
from stepscope.native_library import address_of

OVERHANG_NS = 1_000
"""Tolerance for a range that ends after the enclosing one: clocks are read at different times."""


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
    depth: Int
    """Number of intervals that enclose it."""
    excess: Int
    """Time by which each interval ends after the innermost interval in which it starts; 0 if it is
    nested in that."""


def parents(start: Int, end: Int, tolerance: int = 0) -> Int:
    """Return the index of each interval's innermost enclosing interval, -1 for none; see `nest`."""
    if _is_consecutive(start, end):  # of those of a long run, a value each would take much memory
        return np.broadcast_to(np.int64(-1), len(start))
    return nest(start, end, tolerance).parent


def _is_consecutive(start: Int, end: Int) -> bool:
    return bool((end[:-1] <= start[1:]).all() and (end[:-1] < end[1:]).all())


def nest(start: Int, end: Int, tolerance: int = 0) -> Nesting:
    """Find each interval's innermost enclosing interval.

    Args:
        start, end: in nesting order.
        tolerance: an interval that starts inside another and ends after it counts as its child if
            it ends at most this much later. An empty interval contains none.
    """
    library = open_nesting()
    if library is None:
        return nest_by_numpy(start, end, tolerance)
    start, end = (np.ascontiguousarray(times, dtype=np.int64) for times in (start, end))
    _check_lengths(start, end)
    result = Nesting(*(np.empty(len(start), dtype=np.int64) for _ in Nesting._fields))
    library.stepscope_nest(
        *map(address_of, (start, end)), len(start), tolerance, *map(address_of, result)
    )
    return result


def nest_by_numpy(start: Int, end: Int, tolerance: int = 0) -> Nesting:
    """Do what `nest` does, without the library in C.

    The first candidate for the parent of an interval is its predecessor. While the candidate does
    not contain the interval, the candidate's parent is tried. Paths are halved, so this takes
    O(depth + log n) passes.
    """
    excess = np.zeros(len(start), dtype=np.int64)
    if _is_consecutive(start, end):
        return Nesting(np.full(len(start), -1, dtype=np.int64), np.zeros_like(excess), excess)
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
        late = overlaps & (excess[pending] == 0)
        excess[pending[late]] = (pending_end - parent_end)[late]
        # A candidate that ended before the start is not a parent, however small the gap.
        wrong = np.flatnonzero(~overlaps | (parent_end + tolerance < pending_end))
        grandparent = parent[parent[pending[wrong]]]
        parent[pending[wrong]] = grandparent
        wrong = wrong[grandparent >= 0]
        pending = pending[wrong]
        pending_start, pending_end = pending_start[wrong], pending_end[wrong]
        parent_end = reach[parent[pending]]
    return Nesting(parent, depths(parent), excess)


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
    """Sum `values` over each interval and all intervals inside it, which come after it."""
    total = np.array(values, dtype=np.int64)
    _check_lengths(total, parent)
    library = open_nesting()
    if library is not None:
        parent = np.ascontiguousarray(parent, dtype=np.int64)
        library.stepscope_add_up(address_of(parent), len(parent), address_of(total))
        return total
    nested = np.flatnonzero(parent >= 0)
    deepest_first = nested[np.argsort(-depth[nested], kind="stable")]
    borders = np.flatnonzero(np.diff(depth[deepest_first])) + 1
    for level in np.split(deepest_first, borders):
        np.add.at(total, parent[level], total[level])
    return total


def _check_lengths(first: Int, second: Int) -> None:
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} values are not of the same intervals")


def innermost_at(times: Int, start: Int, end: Int, parent: NDArray[Any]) -> Int:
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


MAX_KEY = 2**62
"""Limit of sort keys that combine a line and a time on it."""
MAX_ROWS = 64
"""Rows searched for a free one; a row further down would not be visible."""


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
    rows[order] = nest(key_start[order], key_end[order], OVERHANG_NS).depth
    return rows


def order_by_row(line: Int, row: Int, start: Int) -> Int:
    """Return indices that sort ranges by line, row and start; stable."""
    if not len(line):
        return np.empty(0, dtype=np.int64)
    # Parts are nearly sorted by line and start; small numbers are sorted without comparisons.
    stretch = int(np.ptp(start)) + 1
    if int(line.max()) < MAX_KEY // stretch:
        order = np.argsort(line * stretch + (start - start.min()), kind="stable")
    else:
        order = np.lexsort((start, line))
    narrow = line * (int(row.max()) + 1) + row
    narrow = narrow.astype(np.min_scalar_type(int(narrow.max())))
    return order[np.argsort(narrow[order], kind="stable")]


def separate_overlaps(line: Int, row: Int, start: Int, end: Int, order: Int | None = None) -> Int:
    """Assign rows on which ranges of a line do not overlap.

    Of two ranges that overlap, as kernels of one stream may, the later one moves to the first row
    below that is free.

    Args:
        line, row, start, end: of each range.
        order: indices that sort by line, row and start, if they are known.
    """
    if order is None:
        order = order_by_row(line, row, start)
    lines, starts, ends = line[order], start[order], end[order]
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = (lines[1:] != lines[:-1]) | np.diff(row[order]).astype(np.bool_)
    # Of two that start together, either one may be the longer.
    may_overlap = ~opens[1:] & (
        (starts[1:] < ends[:-1]) | ((starts[1:] == starts[:-1]) & (starts[1:] < ends[1:]))
    )
    if not may_overlap.any():
        return row
    group = np.cumsum(opens) - 1
    is_suspect = np.zeros(group[-1] + 1, dtype=np.bool_)
    is_suspect[group[1:][may_overlap]] = True
    suspects = np.flatnonzero(is_suspect[group])
    suspects = suspects[np.lexsort((-ends[suspects], starts[suspects], group[suspects]))]
    is_first = np.diff(group[suspects], prepend=-1) != 0
    late = suspects[_overlaps_earlier(starts[suspects], ends[suspects], is_first)]
    moving = order[late]
    moving = moving[np.argsort(start[moving], kind="stable")]
    stays = np.isin(lines[opens], line[moving])[group]  # on a line where ranges move
    stays[late] = False
    fixed = order[stays]
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


class _Row(msgspec.Struct, frozen=True):
    """Ranges of one row of a line, none of which overlap; few of them have moved."""

    fixed: Intervals = EMPTY
    moved: list[tuple[int, int]] = msgspec.field(default_factory=list)

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
