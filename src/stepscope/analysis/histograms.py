"""Histograms that lose nothing: what lies outside the bins is counted beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepscope.intervals import Int

Float = NDArray[np.float64]
RATIO_BIN = 0.02
"""Width of the bins of a ratio, where nobody chose one."""
DURATION_BINS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How many values lie in each bin, in the unit of the values.

    Bins are half-open, only the last one holds its upper edge too: a device that was busy all the
    time is in it.
    """

    edges: Float
    """One more than there are bins."""
    counts: Int
    under_count: int
    """Values below the first edge."""
    over_count: int
    """Values above the last edge."""

    @property
    def count(self) -> int:
        """All values."""
        return int(self.counts.sum()) + self.under_count + self.over_count


def histogram(values: ArrayLike, edges: Float) -> Histogram:
    """Counts values in bins with these edges, which rise. NaN values are left out."""
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


def ratio_edges(width: float = RATIO_BIN) -> Float:
    """Edges of equal bins from 0 to 1, as near to `width` as divides it.

    Each is the double nearest to its fraction, as a percentage divided by 100 is: 0.58 begins a
    bin and lies in it.
    """
    count = max(1, round(1 / width))
    return np.arange(count + 1) / count


def spread_edges(values: ArrayLike, bins: int = DURATION_BINS) -> Float | None:
    """Edges of equal bins from the smallest value to the largest; None without values."""
    sample = np.asarray(values, dtype=np.float64)
    sample = sample[~np.isnan(sample)]
    return _edges(float(sample.min()), float(sample.max()), bins) if len(sample) else None


def duration_edges(values: ArrayLike, bins: int = DURATION_BINS) -> Float | None:
    """Edges of equal bins from the shortest duration to the median plus two standard deviations
    (of the population), or to the longest where that is shorter; None without values.

    A few outliers would otherwise squeeze all the rest into one bin; they are counted above.
    """
    sample = np.asarray(values, dtype=np.float64)
    if not len(sample):
        return None
    upper = min(float(np.median(sample) + 2 * sample.std()), float(sample.max()))
    return _edges(float(sample.min()), upper, bins)


def _edges(lower: float, upper: float, bins: int) -> Float:
    if upper <= lower:  # all the same: one bin has them
        return np.array([lower, np.nextafter(lower, np.inf)])
    return np.linspace(lower, upper, bins + 1)
