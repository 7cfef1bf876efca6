"""Input format of analyses: numeric columns, strings as codes into a list, rows grouped by key.

Rows grouped by key columns, with sums over each group:

    group        index of each row's group
    sums(v)[g]   sum of v over the rows of group g, exact: every partial sum is an integer below
                 2**53, in any unit (104 days in nanoseconds, 9 PB in bytes)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals


class Strings(Protocol):
    """Dictionary-encoded strings: row `i` is `values[codes[i]]`, null where the code is -1.

    Values are distinct.
    """

    @property
    def codes(self) -> NDArray[np.int32]:
        """Index into `values`, per row."""

    @property
    def values(self) -> Sequence[str | None]:
        """Distinct strings."""


Columns = Mapping[str, Any]
"""Columns of a table by name, all of one length: integers and doubles as arrays, strings as
`Strings`. A missing integer is -1, a missing double NaN."""
TIME_COLUMNS = ("start_ns", "duration_ns")


def make_intervals(columns: Columns, rows: NDArray[np.bool_] | None = None) -> intervals.Intervals:
    """Make the intervals of the rows of a table.

    Args:
        columns: `TIME_COLUMNS`.
        rows: mask of the rows that count; None for all.
    """
    start, duration = (columns[name] for name in TIME_COLUMNS)
    if rows is not None:
        start, duration = start[rows], duration[rows]
    return intervals.Intervals(start, start + duration)


_MAX_NARROW = (1 << 32) - 1


def narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Convert integers to the narrowest unsigned type that holds them; as they are where there is
    none of at most 32 bits."""
    if not len(values) or values.min() < 0 or values.max() > _MAX_NARROW:
        return values
    return values.astype(np.min_scalar_type(int(values.max())), copy=False)


def find_values(values: intervals.Int, requested: intervals.Int) -> intervals.Int:
    """Find the first row of each requested value, -1 for none; values in any order."""
    if not len(values):
        return np.full(len(requested), -1, dtype=np.int64)
    order = np.argsort(values, kind="stable")
    at = np.minimum(np.searchsorted(values, requested, sorter=order), len(values) - 1)
    row = order[at]
    return np.where(values[row] == requested, row, -1)


def none_if_negative(value: int) -> int | None:
    """Convert an integer of a column; None for a missing one."""
    return None if value < 0 else int(value)


def none_if_nan(value: float) -> float | None:
    """Convert a double of a column; None for a missing one."""
    return None if np.isnan(value) else float(value)


def nan_to_none(values: NDArray[np.float64]) -> list[float | None]:
    """Convert an array to a list with None for NaN, for a payload."""
    return [None if math.isnan(value) else value for value in values.tolist()]


def round_significant(values: NDArray[np.float64], digits: int) -> list[float | None]:
    """Round an array to significant digits for a payload; None for NaN.

    >>> round_significant(np.array([0.123456, np.nan]), 3)
    [0.123, None]
    """
    return [None if math.isnan(value) else float(f"{value:.{digits}g}") for value in values]


_DENSE_RANGE = 1 << 16
_DENSE_RANGE_PER_ROW = 8
"""Values in a range up to this wide are numbered through a table instead of by sorting."""


class Grouping(msgspec.Struct, frozen=True, eq=False):
    """A partition of rows; groups are numbered by ascending key."""

    group: intervals.Int
    """Index of each row's group."""
    first: intervals.Int
    """First row of each group."""

    def __len__(self) -> int:
        return len(self.first)

    def counts(self) -> intervals.Int:
        """Row count of each group."""
        return np.bincount(self.group, minlength=len(self.first)).astype(np.int64)

    def sums(self, values: NDArray[Any]) -> intervals.Int:
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


def _number_values(values: NDArray[Any]) -> tuple[intervals.Int, int]:
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
