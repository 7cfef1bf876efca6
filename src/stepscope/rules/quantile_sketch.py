"""Quantile sketch: counts by rounded value, for quantiles of a whole run in little memory.

Values are rounded to a grid and all results are computed from the rounded values, so they do not
depend on the order of the values or on how they were split, and two sketches can be merged.

    linear        multiples of a quantum: 0.01% for shares of time or memory, 1 byte/s for rates
    logarithmic   powers of 1.0001 for durations: rounding changes a value by at most 0.005%
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.rules.base import BoxPlot

Floats = NDArray[np.float64]


class LinearGrid(msgspec.Struct, frozen=True):
    """Multiples of a quantum."""

    quantum: float

    def keys(self, values: Floats) -> intervals.Int:
        """Return the index of the nearest multiple."""
        return np.rint(values / self.quantum).astype(np.int64)

    def values(self, keys: intervals.Int) -> Floats:
        """Return the values of keys."""
        # Division by a whole number gives 0.7 for 7000 quanta of 0.0001, as for a reading of 70%.
        divisor = round(1 / self.quantum) if self.quantum < 1 else 0
        values = keys / divisor if divisor else keys * self.quantum
        return np.asarray(values, dtype=np.float64)


class LogGrid(msgspec.Struct, frozen=True):
    """Powers of 1.0001; values up to zero map to the smallest power."""

    def keys(self, values: Floats) -> intervals.Int:
        """Return the exponent of the nearest power."""
        return np.rint(np.log(np.maximum(values, 1e-300)) / _LOG_STEP).astype(np.int64)

    def values(self, keys: intervals.Int) -> Floats:
        """Return the values of keys."""
        values: Floats = np.exp(keys * _LOG_STEP)
        return values


_LOG_STEP = float(np.log1p(1e-4))
DENSE_SPAN = 1 << 17
"""Keys within this span are counted in an array with an element per key instead of sorted."""
RATIO_GRID = LinearGrid(1e-4)
"""Multiples of 0.01%. Readings in whole percent keep their value."""
DURATION_GRID = LogGrid()


def _no_keys() -> intervals.Int:
    return np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class QuantileSketch:
    """Counts by rounded value, sorted by value."""

    grid: LinearGrid | LogGrid = RATIO_GRID
    keys: intervals.Int = field(default_factory=_no_keys)
    counts: intervals.Int = field(default_factory=_no_keys)
    _values: Floats | None = field(default=None, repr=False)
    """Cache of `values` until the next change."""

    def __len__(self) -> int:
        return int(self.counts.sum())

    def add(self, values: NDArray[Any]) -> None:
        """Count values; none may be NaN."""
        self._join(*_count_keys(self.grid.keys(np.asarray(values, dtype=np.float64))))

    def merge(self, sketch: QuantileSketch) -> None:
        """Add the counts of another sketch of the same grid."""
        self._join(sketch.keys, sketch.counts)

    def _join(self, keys: intervals.Int, counts: intervals.Int) -> None:
        self._values = None
        self.keys, self.counts = _sum_counts(
            np.concatenate([self.keys, keys]), np.concatenate([self.counts, counts])
        )

    @property
    def values(self) -> Floats:
        """Distinct rounded values, ascending."""
        if self._values is None:
            self._values = self.grid.values(self.keys)
        return self._values

    @property
    def mean(self) -> float:
        """Mean of the rounded values."""
        return float((self.values * self.counts).sum() / len(self))

    @property
    def standard_deviation(self) -> float:
        """Population standard deviation: divided by the count."""
        deviations = self.values - self.mean
        return float(np.sqrt((deviations * deviations * self.counts).sum() / len(self)))

    def count_above(self, threshold: float) -> int:
        """Count values strictly above a threshold."""
        return int(self.counts_above(np.array([threshold]))[0])

    def counts_above(self, thresholds: Floats) -> intervals.Int:
        """Count values strictly above each threshold."""
        above = np.append(np.cumsum(self.counts[::-1])[::-1], 0)
        counts: intervals.Int = above[np.searchsorted(self.values, thresholds, side="right")]
        return counts

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return quantiles of the rounded values, linearly interpolated as by numpy's default."""
        ends = np.cumsum(self.counts)
        positions = np.asarray(shares) * (ends[-1] - 1)
        below = np.floor(positions)
        low, high = (
            self.values[np.searchsorted(ends, indices, side="right")]
            for indices in (below, np.minimum(below + 1, ends[-1] - 1))
        )
        return [float(value) for value in low + (high - low) * (positions - below)]

    def box_plot(self, scale: float = 1.0) -> BoxPlot:
        """Return a box plot of the values times `scale`."""
        low, p5, p25, p50, p75, p95, high = self.quantiles([0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
        whisker = 1.5 * (p75 - p25)
        whiskers = (max(p25 - whisker, low), min(p75 + whisker, high))
        values = (low, p5, p25, p50, p75, p95, high, *whiskers)
        return BoxPlot(len(self), *(round(value * scale, 6) for value in values))


def _count_keys(keys: intervals.Int) -> tuple[intervals.Int, intervals.Int]:
    """Return the distinct keys in order, and the count of each."""
    if not len(keys):
        return keys, keys
    low = int(keys.min())
    if int(keys.max()) - low < DENSE_SPAN:
        counts = np.bincount(keys - low)
        present = np.flatnonzero(counts > 0)
        return present + low, counts[present]
    keys = np.sort(keys)
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return keys[first], np.diff(np.append(first, len(keys)))


def _sum_counts(keys: intervals.Int, counts: intervals.Int) -> tuple[intervals.Int, intervals.Int]:
    """Return the distinct keys in order, and the sum of the counts of each."""
    if not len(keys):
        return keys, counts
    low = int(keys.min())
    span = int(keys.max()) - low + 1
    if span <= DENSE_SPAN:
        # Sums of counts are far below 2 ** 53, the limit up to which a double is exact.
        sums = np.bincount(keys - low, weights=counts)
        present = np.flatnonzero(sums > 0)
        return present + low, sums[present].astype(np.int64)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return keys[first], np.add.reduceat(counts[order], first)
