"""The latest samples of a series, across the borders of the ranges in which they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int
from stepscope.rules.firing import last_of_each

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Tail:
    """Up to `length` latest values, and how many there were in all."""

    length: int
    values: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    seen: int = 0

    def extend(self, new: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """Take in values.

        Returns:
            What was kept of the old ones followed by all new ones, and how many old ones.
        """
        kept = len(self.values)
        joined = np.concatenate([self.values, new]) if kept else new
        self.values = joined[-self.length :].copy()
        self.seen += len(new)
        return joined, kept


def windowed_quantiles(values: Floats, ends: Int, window: int, shares: Sequence[float]) -> Floats:
    """Quantiles of the `window` values that end at each place, both included.

    Args:
        values: in time order.
        ends: places in it, ascending.
        window: fewer values count where there are no more.
        shares: such as 0.95; linear interpolation, as numpy's default.

    Returns:
        One row per end, one column per share.
    """
    found = np.empty((len(ends), len(shares)))
    short = ends + 1 < window
    for row in np.flatnonzero(short):
        found[row] = _quantiles(values[: ends[row] + 1], shares)
    if not short.all():
        views = np.lib.stride_tricks.sliding_window_view(values, window)
        found[~short] = _quantiles(views[ends[~short] + 1 - window], shares)
    return found


def _quantiles(values: Floats, shares: Sequence[float]) -> Floats:
    """Quantiles along the last axis as `np.quantile` has them to the last bit, zeros unsigned.

    That one looks for them by partition, which for windows of some hundred values takes several
    times as long as sorting does.
    """
    ordered = np.sort(values, axis=-1)
    place = np.asarray(shares) * (values.shape[-1] - 1)
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, values.shape[-1] - 1)
    low, high, part = ordered[..., below], ordered[..., above], place - below
    found: Floats = np.where(
        part >= 0.5, high - (high - low) * (1 - part), low + (high - low) * part
    )
    return found + 0.0  # of a zero and a negative one, either may come first


def quantiles_at_scans(
    tail: Tail, values: Floats, scans: Int, shares: Sequence[float], *, patience: int
) -> tuple[Int, Floats]:
    """Quantiles of the latest `tail.length` values at the end of each scan.

    Args:
        tail: what came before; it takes the values in.
        values, scans: new values in time order, with the scan of each.
        shares: which quantiles.
        patience: scans are left out until more values than this have been seen.

    Returns:
        Numbers of the scans, and one row of quantiles each.
    """
    before = tail.seen
    joined, kept = tail.extend(values)
    ends = last_of_each(scans)
    ends = ends[before + ends + 1 > patience]
    return scans[ends], windowed_quantiles(joined, ends + kept, tail.length, shares)
