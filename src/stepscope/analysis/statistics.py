"""Summary statistics of samples: distributions, means with missing values, certainty of a lead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from stepscope.intervals import Int
from stepscope.schema import field_label

OUTLIER_RANGES = 3.0
"""Tukey's far-out fence: an outlier is more than this many interquartile ranges above p75.
https://en.wikipedia.org/wiki/Outlier#Tukey's_fences"""
MIN_OUTLIER_EXCESS = 0.25
"""An outlier is also at least this share of the median above it: where values hardly differ, the
fence alone is next to the median."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution, in the unit named by the field that holds it."""

    count: int
    mean: float
    standard_deviation: float
    minimum: Annotated[float, field_label("min", unit="inherited")] = msgspec.field(name="min")
    p50: float
    p95: float
    p99: float
    maximum: Annotated[float, field_label("max", unit="inherited")] = msgspec.field(name="max")
    outlier_count: int
    outlier_threshold: float
    """Outliers are values above this: p75 + 3 (p75 - p25), or a quarter above the median if that is
    more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationStatistics:
    """Sum, mean, extremes and linear quantiles of at least one duration, in nanoseconds."""

    count: int
    total_ns: int
    mean_ns: float
    min_ns: int
    p50_ns: float
    p95_ns: float
    p99_ns: float
    max_ns: int


def average_present(values: Iterable[float | None]) -> float | None:
    """Average the values that are present; None without any: missing is not zero.

    >>> average_present([0.5, None, 1.0])
    0.75
    """
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def estimate_lead_probability(first: float, second: float, count: int) -> float:
    """Estimate the probability that the larger of two observed shares is truly the larger one.

    Both shares, p and q, come from the same sample of n independent draws (normal approximation
    of the multinomial distribution): Phi((p - q) / sqrt((p + q - (p - q)^2) / n)).

    Args:
        first, second: shares of the sample; `first` is the larger.
        count: number of draws.
    """
    variance = (first + second - (first - second) ** 2) / max(1, count)
    if variance <= 0:
        return 1.0 if first > second else 0.5
    return 0.5 * (1 + math.erf((first - second) / math.sqrt(2 * variance)))


def summarize(values: ArrayLike) -> Statistics | None:
    """Summarize the distribution of a sample; None for an empty one. NaN values are ignored.

    The standard deviation is that of the population; quantiles are interpolated linearly.
    """
    sample = np.asarray(values, dtype=np.float64)
    sample = sample[~np.isnan(sample)]
    if not len(sample):
        return None
    p25, p50, p75, p95, p99 = np.percentile(sample, [25, 50, 75, 95, 99])
    threshold = max(p75 + OUTLIER_RANGES * (p75 - p25), p50 + MIN_OUTLIER_EXCESS * abs(p50))
    return Statistics(
        count=len(sample),
        mean=float(sample.mean()),
        standard_deviation=float(sample.std()),
        minimum=float(sample.min()),
        p50=float(p50),
        p95=float(p95),
        p99=float(p99),
        maximum=float(sample.max()),
        outlier_threshold=float(threshold),
        outlier_count=int((sample > threshold).sum()),
    )


def summarize_durations(durations: Int) -> DurationStatistics | None:
    """Summarize durations in nanoseconds; None without any.

    Doubles hold their sums exactly up to a hundred days.
    """
    distribution = summarize(durations)
    if distribution is None:
        return None
    return DurationStatistics(
        count=distribution.count,
        total_ns=int(durations.sum()),
        mean_ns=distribution.mean,
        min_ns=int(distribution.minimum),
        p50_ns=distribution.p50,
        p95_ns=distribution.p95,
        p99_ns=distribution.p99,
        max_ns=int(distribution.maximum),
    )


def summarize_groups(
    keys: Sequence[tuple[object, ...]], durations: Int
) -> dict[tuple[object, ...], DurationStatistics]:
    """Summarize durations by group, the largest total first.

    Args:
        keys: the group of each duration.
        durations: nanoseconds, one per key.
    """
    rows: dict[tuple[object, ...], list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    groups = {key: summarize_durations(durations[indexes]) for key, indexes in rows.items()}
    present = [(key, group) for key, group in groups.items() if group is not None]
    return dict(sorted(present, key=lambda item: -item[1].total_ns))
