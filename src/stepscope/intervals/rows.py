"""Rows of a picture: a nested range is below its parent, and ranges never overlap."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals.nesting import OVERHANG_NS, nest, sort_order
from stepscope.intervals.sets import EMPTY, Int, Intervals

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
