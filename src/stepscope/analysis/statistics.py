"""Distributions: the figures every report of durations needs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

OUTLIER_RANGES = 3.0
"""Tukey's far-out fence: an outlier lies this many interquartile ranges above the quartile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Of a sample, in the sample's unit; quantiles are interpolated linearly."""

    count: int
    mean: float
    standard_deviation: float
    """Of the population: divided by the count."""
    minimum: float
    p5: float
    p50: float
    p95: float
    p99: float
    maximum: float
    outlier_threshold: float
    outlier_count: int
    """Values above p75 + 3 (p75 - p25)."""


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean of those that are known; None when none is: missing is not zero.

    >>> mean_of_known([0.5, None, 1.0])
    0.75
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def ahead_ratio(first: float, second: float, count: int) -> float:
    """Probability that the larger of two shares is the larger one in truth, if both are counted
    in the same sample of independent draws: Phi((p - q) / sqrt((p + q - (p - q)^2) / n)).

    Args:
        first, second: shares of the sample; `first` is the larger.
        count: draws.
    """
    variance = (first + second - (first - second) ** 2) / max(1, count)
    if variance <= 0:
        return 1.0 if first > second else 0.5
    return 0.5 * (1 + math.erf((first - second) / math.sqrt(2 * variance)))


def distribution(values: ArrayLike) -> Distribution | None:
    """The distribution of a sample, None when it is empty. NaN values are left out."""
    sample = np.asarray(values, dtype=np.float64)
    sample = sample[~np.isnan(sample)]
    if not len(sample):
        return None
    p5, p25, p50, p75, p95, p99 = np.percentile(sample, [5, 25, 50, 75, 95, 99])
    threshold = p75 + OUTLIER_RANGES * (p75 - p25)
    return Distribution(
        count=len(sample),
        mean=float(sample.mean()),
        standard_deviation=float(sample.std()),
        minimum=float(sample.min()),
        p5=float(p5),
        p50=float(p50),
        p95=float(p95),
        p99=float(p99),
        maximum=float(sample.max()),
        outlier_threshold=float(threshold),
        outlier_count=int((sample > threshold).sum()),
    )
