"""How often each value occurred, for quantiles of a whole run in little memory.

Values are rounded to a grid, and everything is computed from the rounded values: what comes out
does not depend on the order or the portions in which they came, and two tallies add up.

    linear      multiples of a quantum: 0.01 % for shares of time or memory, a byte per second …
    relative    powers of 1.0001 for durations, so that a value moves by 0.005 % at most
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int

Floats = NDArray[np.float64]
SHARE = 1e-4
"""Quantum of ratios: 0.01 %. Readings in whole per cent keep their value."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Multiples of a quantum."""

    quantum: float

    def keys(self, values: Floats) -> Int:
        """The nearest multiple."""
        return np.rint(values / self.quantum).astype(np.int64)

    def values(self, keys: Int) -> Floats:
        """What the keys stand for."""
        # Dividing by a whole number gives 0.7 for 7000 quanta of 0.0001, as a reading of 70 % does.
        whole = round(1 / self.quantum) if self.quantum < 1 else 0
        found = keys / whole if whole else keys * self.quantum
        return np.asarray(found, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Relative:
    """Powers of 1.0001; what is not above zero becomes the smallest."""

    def keys(self, values: Floats) -> Int:
        """The nearest power."""
        return np.rint(np.log(np.maximum(values, 1e-300)) / _LOG_STEP).astype(np.int64)

    def values(self, keys: Int) -> Floats:
        """What the keys stand for."""
        found: Floats = np.exp(keys * _LOG_STEP)
        return found


_LOG_STEP = float(np.log1p(1e-4))
DENSE = 1 << 17
"""Keys that lie this close together are counted in an array with a place for each, not sorted."""
SHARES = Linear(SHARE)
DURATIONS = Relative()


def _none() -> Int:
    return np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class Tally:
    """Counts by rounded value, sorted by value."""

    grid: Linear | Relative = SHARES
    keys: Int = field(default_factory=_none)
    counts: Int = field(default_factory=_none)
    _values: Floats | None = field(default=None, repr=False)
    """Kept until something is added."""

    def __len__(self) -> int:
        return int(self.counts.sum())

    def add(self, values: NDArray[Any]) -> None:
        """Take in values; none of them is NaN."""
        self._join(*_counted(self.grid.keys(np.asarray(values, dtype=np.float64))))

    def merge(self, other: Tally) -> None:
        """Take in what another has counted."""
        self._join(other.keys, other.counts)

    def _join(self, keys: Int, counts: Int) -> None:
        self._values = None
        self.keys, self.counts = _summed(
            np.concatenate([self.keys, keys]), np.concatenate([self.counts, counts])
        )

    @property
    def values(self) -> Floats:
        """The distinct rounded values, ascending."""
        if self._values is None:
            self._values = self.grid.values(self.keys)
        return self._values

    @property
    def mean(self) -> float:
        """Mean of the rounded values."""
        return float((self.values * self.counts).sum() / len(self))

    @property
    def standard_deviation(self) -> float:
        """Of the population: divided by the count."""
        off = self.values - self.mean
        return float(np.sqrt((off * off * self.counts).sum() / len(self)))

    def count_above(self, threshold: float) -> int:
        """Values strictly above a threshold."""
        return int(self.counts_above(np.array([threshold]))[0])

    def counts_above(self, thresholds: Floats) -> Int:
        """Values strictly above each threshold."""
        above = np.append(np.cumsum(self.counts[::-1])[::-1], 0)
        found: Int = above[np.searchsorted(self.values, thresholds, side="right")]
        return found

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Quantiles of the rounded values, interpolated linearly as numpy does by default."""
        ends = np.cumsum(self.counts)
        place = np.asarray(shares) * (ends[-1] - 1)
        below = np.floor(place)
        low, high = (
            self.values[np.searchsorted(ends, which, side="right")]
            for which in (below, np.minimum(below + 1, ends[-1] - 1))
        )
        return [float(each) for each in low + (high - low) * (place - below)]


def _counted(keys: Int) -> tuple[Int, Int]:
    """Each key once, in order, with how often it is there."""
    if not len(keys):
        return keys, keys
    low = int(keys.min())
    if int(keys.max()) - low < DENSE:
        counts = np.bincount(keys - low)
        present = np.flatnonzero(counts > 0)
        return present + low, counts[present]
    keys = np.sort(keys)
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return keys[first], np.diff(np.append(first, len(keys)))


def _summed(keys: Int, counts: Int) -> tuple[Int, Int]:
    """Each key once, in order, with the sum of its counts."""
    if not len(keys):
        return keys, counts
    low = int(keys.min())
    span = int(keys.max()) - low + 1
    if span <= DENSE:
        # Sums of counts stay far below 2 ** 53, up to where a double holds every whole number.
        sums = np.bincount(keys - low, weights=counts)
        present = np.flatnonzero(sums > 0)
        return present + low, sums[present].astype(np.int64)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return keys[first], np.add.reduceat(counts[order], first)


def box(tally: Tally, scale: float = 1.0) -> dict[str, float | int]:
    """What a box plot draws: quartiles, whiskers, extremes; times `scale`.

    The whiskers are 1.5 interquartile ranges away from the quartiles, but not beyond the extremes.
    """
    low, p5, p25, p50, p75, p95, high = tally.quantiles([0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
    reach = 1.5 * (p75 - p25)
    figures = {
        "min": low,
        "p5": p5,
        "p25": p25,
        "p50": p50,
        "p75": p75,
        "p95": p95,
        "max": high,
        "whisker_low": max(p25 - reach, low),
        "whisker_high": min(p75 + reach, high),
    }
    scaled = {name: round(value * scale, 6) for name, value in figures.items()}
    return {"count": len(tally), **scaled}
