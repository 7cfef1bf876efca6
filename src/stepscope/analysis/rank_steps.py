"""Durations of steps, rank by rank: who is slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int

Matrix = NDArray[np.float64]
"""Rows by rank, columns by step, nanoseconds; NaN where a rank has no such step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stragglers:
    """Which ranks hold the others up."""

    step_count: int
    """Steps that at least two ranks have."""
    slowest_count: Int
    """By rank: of these, the steps in which it took longest; the first of several counts."""
    excess_ns: Matrix
    """By rank: mean of its durations less the median of all ranks in the same step; NaN without
    a step that others have too."""


def step_matrix(first: Sequence[int], durations: Sequence[Int]) -> tuple[int, Matrix]:
    """Number of the first column, and the durations.

    Args:
        first: number of each rank's first step.
        durations: of consecutive steps, by rank.
    """
    begin = min(first)
    end = max(f + len(d) for f, d in zip(first, durations, strict=True))
    found = np.full((len(first), end - begin), np.nan)
    for row, (number, values) in enumerate(zip(first, durations, strict=True)):
        found[row, number - begin : number - begin + len(values)] = values
    return begin, found


def stragglers(matrix: Matrix) -> Stragglers:
    """Counts who is slowest."""
    shared = matrix[:, (~np.isnan(matrix)).sum(axis=0) > 1]
    slowest = np.bincount(
        np.argmax(np.where(np.isnan(shared), -1.0, shared), axis=0), minlength=len(matrix)
    )
    excess = np.full(len(matrix), np.nan)
    if shared.shape[1]:
        over = shared - np.nanmedian(shared, axis=0)
        known = ~np.isnan(over).all(axis=1)
        excess[known] = np.nanmean(over[known], axis=1)
    return Stragglers(
        step_count=shared.shape[1], slowest_count=slowest.astype(np.int64), excess_ns=excess
    )


def thinned(matrix: Matrix, most: int) -> tuple[int, Matrix]:
    """Consecutive columns put together as their means, until there are at most so many.

    Returns:
        how many were put together, and the means.
    """
    together = max(1, -(-matrix.shape[1] // most))
    if together == 1:
        return 1, matrix
    begin = np.arange(0, matrix.shape[1], together)
    known = ~np.isnan(matrix)
    sums = np.add.reduceat(np.where(known, matrix, 0.0), begin, axis=1)
    counts = np.add.reduceat(known, begin, axis=1, dtype=np.int64)
    return together, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
