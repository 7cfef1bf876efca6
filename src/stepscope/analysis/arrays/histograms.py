"""Values in bins, those outside counted separately, and equal time buckets for curves."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepscope.intervals import Int, Intervals, overlap

Float = NDArray[np.float64]
RATIO_BIN = 0.02
"""Default bin width for ratios."""
DURATION_BINS = 50


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Number of values in each bin; edges are in the unit of the values.

    Bins are half-open, but the last one includes its upper edge: a device that was busy all the
    time falls into it.
    """

    edges: Float
    """Edges of the bins, one more than there are bins."""
    counts: Int
    under_count: int
    """Values below the first edge."""
    over_count: int
    """Values above the last edge."""

    @property
    def count(self) -> int:
        """Number of all values, inside and outside the bins."""
        return int(self.counts.sum()) + self.under_count + self.over_count


def build_histogram(values: ArrayLike, edges: Float) -> Histogram:
    """Count values in bins with the given ascending edges. NaN values are ignored."""
    sample = np.asarray(values, dtype=np.float64)
    sample = sample[~np.isnan(sample)]
    bins = np.searchsorted(edges, sample, side="right") - 1
    bins[sample == edges[-1]] = len(edges) - 2
    inside = (bins >= 0) & (bins < len(edges) - 1)
    return Histogram(
        edges=edges,
        counts=np.bincount(bins[inside], minlength=len(edges) - 1).astype(np.int64),
        under_count=int((bins < 0).sum()),
        over_count=int((bins >= len(edges) - 1).sum()),
    )


def make_ratio_edges(width: float = RATIO_BIN) -> Float:
    """Make edges of equal bins from 0 to 1, of the width closest to `width` that divides 1.

    Each edge is the double nearest to its fraction, like a percentage divided by 100: 0.58 is
    exactly the start of a bin and falls into it.
    """
    count = max(1, round(1 / width))
    return np.arange(count + 1) / count


def make_range_edges(*samples: ArrayLike, bins: int = DURATION_BINS) -> Float | None:
    """Make edges of equal bins from the smallest value of some samples to the largest.

    None without values.
    """
    sample = _pool(samples)
    sample = sample[~np.isnan(sample)]
    return _edges(float(sample.min()), float(sample.max()), bins) if len(sample) else None


def make_duration_edges(*samples: ArrayLike, bins: int = DURATION_BINS) -> Float | None:
    """Make edges of equal bins for all durations of some samples; None without values.

    Bins extend from the shortest duration to the median plus two (population) standard
    deviations, or to the longest duration if that is shorter: a few outliers would otherwise
    squeeze all other values into one bin. They are counted in `over_count`.
    """
    sample = _pool(samples)
    if not len(sample):
        return None
    upper = min(float(np.median(sample) + 2 * sample.std()), float(sample.max()))
    return _edges(float(sample.min()), upper, bins)


def _pool(samples: Sequence[ArrayLike]) -> Float:
    return np.concatenate([np.empty(0), *(np.asarray(sample, np.float64) for sample in samples)])


def _edges(lower: float, upper: float, bins: int) -> Float:
    if upper <= lower:  # all values are equal: one bin
        return np.array([lower, np.nextafter(lower, np.inf)])
    return np.linspace(lower, upper, bins + 1)


MAX_AUTOMATIC_BUCKETS = 100
"""Limit for a curve without a requested bucket width."""
_MIN_WIDTH_NS = 1_000


class Buckets(msgspec.Struct, frozen=True, kw_only=True):
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
