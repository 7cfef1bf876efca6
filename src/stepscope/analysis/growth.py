"""Growth of a series from its first values to its last, and how steady that growth is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int

BLOCKS = 10
MIN_VALUES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Growth of a series, from the medians of `BLOCKS` blocks of equal length (of its values,
    where there are fewer)."""

    first: float
    """Median of the first block, in the unit of the series."""
    last: float
    """Median of the last block."""
    steady_ratio: float
    """Share of all pairs of blocks in which the later one is larger: 1 for monotonic growth,
    about a half for noise. Kendall's tau is twice this ratio minus one:
    https://en.wikipedia.org/wiki/Kendall_rank_correlation_coefficient"""
    excess: float
    """Mean of the medians minus `first`: the mean growth of a typical value since the start. Rare
    large values, such as those of steps that also draw a figure, are no growth."""


def measure_growth(values: NDArray[np.float64] | Int) -> Growth | None:
    """Measure how a series grows; None for fewer than `MIN_VALUES` values."""
    if len(values) < MIN_VALUES:
        return None
    count = min(BLOCKS, len(values))
    medians = np.array([np.median(block) for block in np.array_split(values, count)])
    earlier, later = np.triu_indices(count, k=1)
    return Growth(
        first=float(medians[0]),
        last=float(medians[-1]),
        steady_ratio=float((medians[later] > medians[earlier]).mean()),
        excess=float(medians.mean() - medians[0]),
    )
