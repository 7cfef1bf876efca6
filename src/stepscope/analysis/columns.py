"""Input format of analyses: numeric columns as arrays, strings as codes into a list."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Intervals


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


def make_intervals(columns: Columns, rows: NDArray[np.bool_] | None = None) -> Intervals:
    """Make the intervals of the rows of a table.

    Args:
        columns: `TIME_COLUMNS`.
        rows: mask of the rows that count; None for all.
    """
    start, duration = (columns[name] for name in TIME_COLUMNS)
    if rows is not None:
        start, duration = start[rows], duration[rows]
    return Intervals(start, start + duration)


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
