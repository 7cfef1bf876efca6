"""Equal time buckets, for curves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.intervals import Int, Intervals, overlap

MAX_AUTOMATIC_BUCKETS = 100
"""Limit for a curve without a requested bucket width."""
_MIN_WIDTH_NS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """`count` buckets of `width_ns` from `start_ns`; the last one extends to `end_ns`."""

    start_ns: int
    end_ns: int
    width_ns: int
    count: int

    @property
    def edges(self) -> Int:
        """Starts of the buckets, then the end of the last one."""
        starts = self.start_ns + self.width_ns * np.arange(self.count, dtype=np.int64)
        return np.append(starts, self.end_ns)

    @property
    def intervals(self) -> Intervals:
        """One interval per bucket."""
        edges = self.edges
        return Intervals(edges[:-1], edges[1:])

    def covered_ratio(self, merged: Intervals) -> list[float]:
        """Share of each bucket covered by a union of intervals."""
        intervals = self.intervals
        return list((overlap(intervals, merged) / (intervals.end - intervals.start)).tolist())


def cut_into_buckets(start_ns: int, end_ns: int, width_ns: int | None = None) -> Buckets | None:
    """Cut a time range into equal buckets; None for an empty range.

    Args:
        start_ns, end_ns: the range.
        width_ns: bucket width. By default the smallest power of ten microseconds that gives at
            most a hundred buckets: 10 ms for a range of 0.1 to 1 s.
    """
    length = end_ns - start_ns
    if length <= 0:
        return None
    if width_ns is None:
        width_ns = _MIN_WIDTH_NS
        while length > MAX_AUTOMATIC_BUCKETS * width_ns:
            width_ns *= 10
    count = max(1, length // width_ns)
    return Buckets(start_ns=start_ns, end_ns=end_ns, width_ns=width_ns, count=count)
