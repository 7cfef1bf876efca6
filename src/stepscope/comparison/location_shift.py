"""Shift between two samples: the intervals of Hodges and Lehmann.

Their bounds are order statistics of differences, and they are exact for any distribution
(Hollander, Wolfe, Chicken 2014). For independent samples these are the differences of every pair of
values; the interval excludes 0 if and only if the rank-sum test of Mann and Whitney tells the
samples apart (section 4.3). For paired values these are the means of every two differences, each
with itself as well (Walsh averages), with the signed-rank test of Wilcoxon (section 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


def compute_differences(base_values: Float, other_values: Float) -> Float:
    """Compute the sorted differences of every value of one sample to every value of the other.

    For samples of n and m: `[n * m, ...]`.
    """
    pairs: Float = other_values[None, :] - base_values[:, None]
    differences = pairs.reshape(-1, *base_values.shape[1:])
    differences.sort(axis=0)
    return differences


def compute_walsh_averages(differences: Float) -> Float:
    """Compute the sorted means of every two of n differences, each with itself as well:
    `[n * (n + 1) / 2, ...]`."""
    first, second = np.triu_indices(len(differences))
    averages: Float = (differences[first] + differences[second]) / 2
    averages.sort(axis=0)
    return averages


def find_critical_rank(base_size: int, other_size: int, tail: float) -> int:
    """Find the index of the interval's lower bound among the sorted differences of two samples; the
    upper bound is as far from the end.

    If both samples have one distribution, the statistic U of Mann and Whitney is at most this large
    with a probability of at most `tail`. The number of orders of both samples by U is given by the
    coefficients of the Gaussian binomial, the product over i up to n of
    (1 - q^(m + i)) / (1 - q^i) for sizes n and m.

    >>> find_critical_rank(3, 3, 0.05), find_critical_rank(5, 5, 0.05)
    (0, 4)
    >>> find_critical_rank(10, 10, 0.025)
    23

    Raises:
        ValueError: the samples are too small.
    """
    counts = [1] + [0] * (base_size * other_size)
    for i in range(1, base_size + 1):
        for power in range(base_size * other_size, other_size + i - 1, -1):
            counts[power] -= counts[power - other_size - i]
        for power in range(i, base_size * other_size + 1):
            counts[power] += counts[power - i]
    return _find_quantile(counts, tail, f"samples of {base_size} and {other_size}")


def find_critical_signed_rank(pair_count: int, tail: float) -> int:
    """Find the index of the interval's lower bound among the sorted Walsh averages.

    The number of choices of signs by the sum of the positive ranks is given by the coefficients of
    the product over i up to the number of pairs of 1 + q^i.

    >>> find_critical_signed_rank(5, 0.05), find_critical_signed_rank(10, 0.025)
    (0, 8)

    Raises:
        ValueError: the pairs are too few.
    """
    counts = [1] + [0] * (pair_count * (pair_count + 1) // 2)
    for i in range(1, pair_count + 1):
        for power in range(len(counts) - 1, i - 1, -1):
            counts[power] += counts[power - i]
    return _find_quantile(counts, tail, f"{pair_count} pairs")


def _find_quantile(counts: Sequence[int], tail: float, samples: str) -> int:
    """Find the largest value of a statistic whose cumulative probability is at most `tail`.

    Args:
        counts: number of equally likely cases by value of the statistic.
        samples: description for the error.
    """
    limit = tail * sum(counts)
    value, cumulative = -1, 0
    while cumulative + counts[value + 1] <= limit:
        value += 1
        cumulative += counts[value]
    if value < 0:
        raise ValueError(f"{samples} are too few for {tail:g} in each tail")
    return value
