"""By how much one sample lies above another: the intervals of Hodges and Lehmann.

They hold order statistics of differences, and are exact whatever the distribution is (Hollander,
Wolfe, Chicken 2014): of samples that have nothing to do with each other the differences of every
pair of values, which leave out 0 if and only if the rank-sum test of Mann and Whitney tells the
samples apart (section 4.3); of values in pairs the mean of every two differences, each with itself
as well (Walsh averages), which do so with the signed-rank test of Wilcoxon (section 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


def differences(base: Float, other: Float) -> Float:
    """Of every value of one sample from every value of the other, sorted, for samples of n and m:
    `[n * m, ...]`."""
    found: Float = (other[None, :] - base[:, None]).reshape(-1, *base.shape[1:])
    found.sort(axis=0)
    return found


def walsh_averages(apart: Float) -> Float:
    """The mean of every two of n differences, each with itself as well, sorted:
    `[n * (n + 1) / 2, ...]`."""
    one, two = np.triu_indices(len(apart))
    found: Float = (apart[one] + apart[two]) / 2
    found.sort(axis=0)
    return found


def critical_rank(one: int, two: int, tail: float) -> int:
    """Place, from 0, of the lower bound of the interval among the sorted differences of samples of
    two sizes; that of the upper one is as far from the end.

    The statistic U of Mann and Whitney is as large as that or smaller with a probability of at most
    `tail` where the samples have one distribution. How many of the orders of both samples have
    which U are the coefficients of the Gaussian binomial, the product over i up to `one` of
    (1 - q^(two + i)) / (1 - q^i).

    >>> critical_rank(3, 3, 0.05), critical_rank(5, 5, 0.05), critical_rank(10, 10, 0.025)
    (0, 4, 23)

    Raises:
        ValueError: the samples are too small for that.
    """
    counts = [1] + [0] * (one * two)
    for i in range(1, one + 1):
        for power in range(one * two, two + i - 1, -1):
            counts[power] -= counts[power - two - i]
        for power in range(i, one * two + 1):
            counts[power] += counts[power - i]
    return _place(counts, tail, f"samples of {one} and {two}")


def critical_signed_rank(pairs: int, tail: float) -> int:
    """The same among the sorted Walsh averages of so many pairs.

    How many choices of signs have which sum of the ranks of those above 0 are the coefficients of
    the product over i up to `pairs` of 1 + q^i.

    >>> critical_signed_rank(5, 0.05), critical_signed_rank(10, 0.025)
    (0, 8)

    Raises:
        ValueError: the pairs are too few for that.
    """
    counts = [1] + [0] * (pairs * (pairs + 1) // 2)
    for i in range(1, pairs + 1):
        for power in range(len(counts) - 1, i - 1, -1):
            counts[power] += counts[power - i]
    return _place(counts, tail, f"{pairs} pairs")


def _place(counts: Sequence[int], tail: float, of: str) -> int:
    """The largest value of a statistic, by how many equally likely cases have which value, that
    with all below it is in at most that share of the cases."""
    below = tail * sum(counts)
    place, seen = -1, 0
    while seen + counts[place + 1] <= below:
        place += 1
        seen += counts[place]
    if place < 0:
        raise ValueError(f"{of} are too few for {tail:g} in each tail")
    return place
