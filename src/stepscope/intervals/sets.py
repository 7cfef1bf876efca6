"""Sets of intervals: unions, gaps, overlaps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Intervals(NamedTuple):
    """Starts and ends, `start[i] <= end[i]`."""

    start: Int
    end: Int

    @property
    def total_ns(self) -> int:
        """Sum of the durations."""
        return int((self.end - self.start).sum())


EMPTY = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def union(intervals: Intervals) -> Intervals:
    """Merge overlapping intervals; the result is sorted and disjoint."""
    if not len(intervals.start):
        return EMPTY
    start, end = intervals
    if (start[1:] > end[:-1]).all():
        return intervals
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.concatenate([[True], start[1:] > reach[:-1]])
    closes = np.concatenate([opens[1:], [True]])
    return Intervals(start[opens], reach[closes])


def select_near(merged: Intervals, start: int, end: int) -> Intervals:
    """Select the intervals of a union that reach into the time from a start to an end."""
    rows = slice(
        np.searchsorted(merged.end, start, side="right"), np.searchsorted(merged.start, end)
    )
    return Intervals(merged.start[rows], merged.end[rows])


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
    filled = [times for times in sets if len(times.start)]
    if len(filled) < 2:
        return union(filled[0]) if filled else EMPTY
    starts, ends = zip(*filled, strict=True)
    return union(Intervals(np.concatenate(starts), np.concatenate(ends)))


def find_gaps(merged: Intervals, extent: tuple[int, int]) -> Intervals:
    """Find the times of an extent that a union does not cover."""
    return subtract(Intervals(*(np.array([time], dtype=np.int64) for time in extent)), merged)


def subtract(merged: Intervals, removed: Intervals) -> Intervals:
    """Subtract one union from another; the result is sorted and disjoint.

    A piece starts where the union starts outside of what is removed, or where that ends inside the
    union; it ends likewise.
    """
    merged = _drop_empty(merged)
    removed = _select_overlapping(_drop_empty(removed), merged)
    start = [
        merged.start[~contains(removed, merged.start)],
        removed.end[_contains_inside(merged, removed.end)],
    ]
    end = [
        merged.end[~contains(removed, merged.end - 1)],
        removed.start[_contains_inside(merged, removed.start)],
    ]
    return Intervals(np.sort(np.concatenate(start)), np.sort(np.concatenate(end)))


def _select_overlapping(intervals: Intervals, merged: Intervals) -> Intervals:
    """Select the intervals of a union that another one overlaps."""
    first = np.searchsorted(intervals.end, merged.start, side="right")
    stop = np.searchsorted(intervals.start, merged.end)
    first[1:] = np.maximum(first[1:], stop[:-1])  # of two pieces that one overlaps, the first
    counts = stop - first
    rows = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
    return Intervals(intervals.start[rows], intervals.end[rows])


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
