"""Whether something grows from the beginning to the end of a series, and how steadily."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int

BLOCKS = 10
FEWEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How a series grows, by the medians of `BLOCKS` stretches of equal length, or of its values
    where there are fewer."""

    first: float
    """Median of the first stretch, in the unit of the series."""
    last: float
    steady_ratio: float
    """Share of all pairs of stretches of which the later one is larger: 1 for what only grows,
    about a half for noise (Kendall's tau is twice that, less one)."""
    excess: float
    """Mean of the series less its first stretch: what a value costs more than at the beginning."""


def growth(values: NDArray[np.float64] | Int) -> Growth | None:
    """None of fewer than `FEWEST` values."""
    if len(values) < FEWEST:
        return None
    count = min(BLOCKS, len(values))
    medians = np.array([np.median(part) for part in np.array_split(values, count)])
    earlier, later = np.triu_indices(count, k=1)
    return Growth(
        first=float(medians[0]),
        last=float(medians[-1]),
        steady_ratio=float((medians[later] > medians[earlier]).mean()),
        excess=float(np.mean(values) - medians[0]),
    )
