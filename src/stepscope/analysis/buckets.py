"""Time cut into equal pieces, for curves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.intervals import Int, Intervals, overlap

MOST_AUTOMATIC = 100
"""Buckets of a curve whose width nobody chose."""
_SMALLEST_NS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """`count` pieces of `width_ns` from `start_ns`; the last one reaches to `end_ns`."""

    start_ns: int
    end_ns: int
    width_ns: int
    count: int

    @property
    def edges(self) -> Int:
        """Starts of the buckets, and the end of the last."""
        starts = self.start_ns + self.width_ns * np.arange(self.count, dtype=np.int64)
        return np.append(starts, self.end_ns)

    @property
    def intervals(self) -> Intervals:
        """The buckets."""
        edges = self.edges
        return Intervals(edges[:-1], edges[1:])

    def covered_ratio(self, merged: Intervals) -> list[float]:
        """Share of each bucket that a union covers."""
        pieces = self.intervals
        return list((overlap(pieces, merged) / (pieces.end - pieces.start)).tolist())


def buckets(start_ns: int, end_ns: int, width_ns: int | None = None) -> Buckets | None:
    """Cuts a range; None when it is empty.

    Args:
        start_ns, end_ns: the range.
        width_ns: of each bucket. By default the smallest power of ten microseconds that makes
            at most a hundred of them: 10 ms for a range of 0.1 to 1 s.
    """
    length = end_ns - start_ns
    if length <= 0:
        return None
    if width_ns is None:
        width_ns = _SMALLEST_NS
        while length > MOST_AUTOMATIC * width_ns:
            width_ns *= 10
    count = max(1, length // width_ns)
    return Buckets(start_ns=start_ns, end_ns=end_ns, width_ns=width_ns, count=count)
