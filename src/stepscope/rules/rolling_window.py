"""Rolling window: the latest samples of a series, across the borders of ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int
from stepscope.rules.trigger import last_indices

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(slots=True)
class RollingWindow:
    """Up to `length` latest values, and the count of all values."""

    length: int
    values: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    count: int = 0

    def extend(self, new: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """Add values.

        Returns:
            The values of the window so far followed by the new ones, and the count of the former.
        """
        previous = len(self.values)
        joined = np.concatenate([self.values, new]) if previous else new
        self.values = joined[-self.length :].copy()
        self.count += len(new)
        return joined, previous


def rolling_sums(values: NDArray[Any], ends: Int, window: int) -> NDArray[Any]:
    """Return the sums of the `window` values before each end, along the first axis.

    Args:
        values: in time order, one or two dimensions.
        ends: exclusive end indices.
        window: number of values; fewer at the start.
    """
    sums = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])
    totals: NDArray[Any] = sums[ends] - sums[np.maximum(ends - window, 0)]
    return totals


def is_in_window(count: int, ends: Int, window: int) -> Bools:
    """Return for each of *count* values whether it is among the *window* values before an end.

    >>> is_in_window(6, np.array([3, 6]), 2).tolist()
    [False, True, True, False, True, True]

    Args:
        count: number of values.
        ends: exclusive end indices.
        window: number of values; fewer at the start.
    """
    changes = np.zeros(count + 1, dtype=np.int64)
    np.add.at(changes, np.maximum(ends - window, 0), 1)
    np.add.at(changes, ends, -1)
    is_inside: Bools = np.cumsum(changes)[:count] > 0
    return is_inside


def rolling_quantiles(values: Floats, ends: Int, window: int, shares: Sequence[float]) -> Floats:
    """Return quantiles of the `window` values up to and including each end index.

    Args:
        values: in time order.
        ends: indices, ascending.
        window: number of values; fewer at the start.
        shares: such as 0.95; linear interpolation, as by numpy's default.

    Returns:
        One row per end, one column per share.
    """
    quantiles = np.empty((len(ends), len(shares)))
    is_short = ends + 1 < window
    for row in np.flatnonzero(is_short):
        quantiles[row] = _quantiles(values[: ends[row] + 1], shares)
    if not is_short.all():
        windows = np.lib.stride_tricks.sliding_window_view(values, window)
        quantiles[~is_short] = _quantiles(windows[ends[~is_short] + 1 - window], shares)
    return quantiles


def _quantiles(values: Floats, shares: Sequence[float]) -> Floats:
    """Return quantiles along the last axis, equal to `np.quantile` to the last bit.

    `np.quantile` partitions, which takes several times as long as sorting for windows of some
    hundred values. Zeros are unsigned.
    """
    ordered = np.sort(values, axis=-1)
    positions = np.asarray(shares) * (values.shape[-1] - 1)
    below = np.floor(positions).astype(np.int64)
    above = np.minimum(below + 1, values.shape[-1] - 1)
    low, high, fraction = ordered[..., below], ordered[..., above], positions - below
    quantiles: Floats = np.where(
        fraction >= 0.5, high - (high - low) * (1 - fraction), low + (high - low) * fraction
    )
    return quantiles + 0.0  # sorting may put a zero before or after a negative zero


def quantiles_at_scan_ends(
    window: RollingWindow, values: Floats, scans: Int, shares: Sequence[float], *, patience: int
) -> tuple[Int, Floats]:
    """Return quantiles of the latest `window.length` values at the end of each scan.

    Args:
        window: previous values; the new ones are added.
        values, scans: new values in time order, and the index of the scan of each.
        shares: quantiles to return.
        patience: scans are left out until the count of values exceeds this.

    Returns:
        Indices of the scans, and one row of quantiles for each.
    """
    previous_count = window.count
    joined, previous = window.extend(values)
    ends = last_indices(scans)
    ends = ends[previous_count + ends + 1 > patience]
    return scans[ends], rolling_quantiles(joined, ends + previous, window.length, shares)
