"""Rows grouped by key columns, with sums over each group.

group        index of each row's group
sums(v)[g]   sum of v over the rows of group g, exact: every partial sum is an integer below
             2**53, in any unit (104 days in nanoseconds, 9 PB in bytes)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int

_DENSE_RANGE = 1 << 16
_DENSE_RANGE_PER_ROW = 8
"""Values in a range up to this wide are numbered through a table instead of by sorting."""


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """A partition of rows; groups are numbered by ascending key."""

    group: Int
    """Index of each row's group."""
    first: Int
    """First row of each group."""

    def __len__(self) -> int:
        return len(self.first)

    def counts(self) -> Int:
        """Row count of each group."""
        return np.bincount(self.group, minlength=len(self.first)).astype(np.int64)

    def sums(self, values: NDArray[Any]) -> Int:
        """Sum of integers over each group."""
        return np.rint(self.float_sums(values)).astype(np.int64)

    def float_sums(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sum over each group."""
        sums = np.bincount(self.group, weights=values, minlength=len(self.first))
        return sums.astype(np.float64, copy=False)

    def minima(self, values: NDArray[Any]) -> NDArray[Any]:
        """Smallest value of each group."""
        minima = values[self.first].copy()
        np.minimum.at(minima, self.group, values)
        return minima

    def maxima(self, values: NDArray[Any]) -> NDArray[Any]:
        """Largest value of each group."""
        maxima = values[self.first].copy()
        np.maximum.at(maxima, self.group, values)
        return maxima


def group_rows(*keys: NDArray[Any]) -> Grouping:
    """Group the rows that agree in all of the integer columns `keys`."""
    group, size = _number_values(keys[0])
    for key in keys[1:]:
        codes, code_count = _number_values(key)
        # Both counts are at most the row count: the product fits into 64 bits.
        group, size = _number_values(group * code_count + codes)
    first = np.zeros(size, dtype=np.int64)
    first[group[::-1]] = np.arange(len(group) - 1, -1, -1)  # in reverse: the first row is kept
    return Grouping(group, first)


def _number_values(values: NDArray[Any]) -> tuple[Int, int]:
    """Number values by their rank among the distinct ones; return the numbers and their count."""
    if not len(values):
        return np.empty(0, dtype=np.int64), 0
    low = int(values.min())
    width = int(values.max()) - low + 1
    if width > max(_DENSE_RANGE, _DENSE_RANGE_PER_ROW * len(values)):
        distinct, numbers = np.unique(values, return_inverse=True)
        return numbers.astype(np.int64), len(distinct)
    shifted = values.astype(np.int64) - low
    present = np.zeros(width, dtype=np.bool_)
    present[shifted] = True
    numbers = np.cumsum(present) - 1
    return numbers[shifted], int(numbers[-1]) + 1
