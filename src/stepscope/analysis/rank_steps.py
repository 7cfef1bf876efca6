"""Step durations by rank: stragglers and their excess."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int

Matrix = NDArray[np.float64]
"""Durations by rank (rows) and step (columns), nanoseconds; NaN where a rank lacks the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stragglers:
    """Lateness of ranks relative to each other, one entry per rank."""

    step_count: int
    """Number of shared steps: those that at least two ranks have."""
    slowest_count: Int
    """Number of shared steps in which the rank was slowest; on a tie the lowest rank counts."""
    excess_ns: Matrix
    """Mean over shared steps of the rank's duration minus the median of all ranks in that step;
    NaN without shared steps."""


def build_step_matrix(first: Sequence[int], durations: Sequence[Int]) -> tuple[int, Matrix]:
    """Build the matrix of step durations.

    Args:
        first: number of each rank's first step.
        durations: durations of consecutive steps, by rank.

    Returns:
        The step number of the first column, and the matrix.
    """
    start = min(first)
    end = max(f + len(d) for f, d in zip(first, durations, strict=True))
    matrix = np.full((len(first), end - start), np.nan)
    for row, (number, values) in enumerate(zip(first, durations, strict=True)):
        matrix[row, number - start : number - start + len(values)] = values
    return start, matrix


def fill_step_matrix(shape: tuple[int, int], cells: Sequence[tuple[int, int, int]]) -> Matrix:
    """Build the matrix of step durations from single cells.

    Args:
        shape: number of ranks and of steps.
        cells: rank, step and duration of each cell that is known.
    """
    matrix = np.full(shape, np.nan)
    for row, column, duration in cells:
        matrix[row, column] = duration
    return matrix


def find_stragglers(matrix: Matrix) -> Stragglers:
    """Count the steps in which each rank is slowest, and measure its excess."""
    shared = matrix[:, (~np.isnan(matrix)).sum(axis=0) > 1]
    slowest = np.bincount(
        np.argmax(np.where(np.isnan(shared), -1.0, shared), axis=0), minlength=len(matrix)
    )
    excess = np.full(len(matrix), np.nan)
    if shared.shape[1]:
        over = shared - np.nanmedian(shared, axis=0)
        has_steps = ~np.isnan(over).all(axis=1)
        excess[has_steps] = np.nanmean(over[has_steps], axis=1)
    return Stragglers(
        step_count=shared.shape[1], slowest_count=slowest.astype(np.int64), excess_ns=excess
    )


def downsample_columns(values: NDArray[Any], max_columns: int) -> tuple[int, Matrix]:
    """Average groups of consecutive columns so that at most `max_columns` remain.

    Args:
        values: any shape; the last axis has the columns. NaN is missing.
        max_columns: limit of the columns.

    Returns:
        The number of columns per group, and the means; NaN for a group without values.
    """
    numbers = np.asarray(values, dtype=np.float64)
    group_size = max(1, -(-numbers.shape[-1] // max_columns))
    if group_size == 1:
        return 1, numbers
    starts = np.arange(0, numbers.shape[-1], group_size)
    present = ~np.isnan(numbers)
    sums = np.add.reduceat(np.where(present, numbers, 0.0), starts, axis=-1)
    counts = np.add.reduceat(present, starts, axis=-1, dtype=np.int64)
    return group_size, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
