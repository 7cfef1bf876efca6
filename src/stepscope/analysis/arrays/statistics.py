"""Statistics of samples: distributions, means with missing values, growth, repeated trials."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepscope import intervals, schema

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
    minimum: Annotated[float, schema.field_label("min", unit="inherited")] = msgspec.field(
        name="min"
    )
    p50: float
    p95: float
    p99: float
    maximum: Annotated[float, schema.field_label("max", unit="inherited")] = msgspec.field(
        name="max"
    )
    outlier_count: int
    outlier_threshold: float
    """Outliers are values above this: p75 + 3 (p75 - p25), or a quarter above the median if that is
    more."""


class DurationStatistics(msgspec.Struct, frozen=True, kw_only=True):
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


def summarize_durations(durations: intervals.Int) -> DurationStatistics | None:
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
    keys: Sequence[tuple[object, ...]], durations: intervals.Int
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


BLOCKS = 10
MIN_VALUES = 2


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Growth of a series, from the medians of `BLOCKS` blocks of equal length (of its values,
    where there are fewer)."""

    first: float
    """Median of the first block, in the unit of the series."""
    last: float
    """Median of the last block."""
    steady_ratio: float
    """Share of all pairs of blocks in which the later one is larger: 1 for monotonic growth,
    about a half for noise. Kendall's tau is twice this ratio minus one:
    https://en.wikipedia.org/wiki/Kendall_rank_correlation_coefficient"""
    excess: float
    """Mean of the medians minus `first`: the mean growth of a typical value since the start. Rare
    large values, such as those of steps that also draw a figure, are no growth."""


def measure_growth(values: NDArray[np.float64] | intervals.Int) -> Growth | None:
    """Measure how a series grows; None for fewer than `MIN_VALUES` values."""
    if len(values) < MIN_VALUES:
        return None
    count = min(BLOCKS, len(values))
    medians = np.array([np.median(block) for block in np.array_split(values, count)])
    earlier, later = np.triu_indices(count, k=1)
    return Growth(
        first=float(medians[0]),
        last=float(medians[-1]),
        steady_ratio=float((medians[later] > medians[earlier]).mean()),
        excess=float(medians.mean() - medians[0]),
    )


MIN_CONFIDENCE = 0.9
"""The interval is the narrowest with at least this confidence, or the range of the values."""


class MedianEstimate(NamedTuple):
    """Median of a sample, and an interval for that of its distribution."""

    median: float
    low: float
    high: float
    confidence_ratio: float
    """Probability that such an interval contains the median of the distribution."""


def estimate_median(values: Sequence[float]) -> MedianEstimate:
    """Estimate a median with an interval that assumes no distribution.

    The k-th smallest and the k-th largest of n independent values enclose the median with
    probability 1 - 2 P(B < k), B binomial with n trials and probability 1/2. For n = 5 the range of
    the values has a confidence of 94 %.
    https://en.wikipedia.org/wiki/Order_statistic#Small-sample-size_example

    Raises:
        ValueError: there are no values.
    """
    ordered = sorted(values)
    count = len(ordered)
    if not count:
        raise ValueError("no values")
    rank = 1
    while 2 * (rank + 1) <= count and _compute_confidence(count, rank + 1) >= MIN_CONFIDENCE:
        rank += 1
    middle = count // 2
    median = ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    confidence = _compute_confidence(count, rank)
    return MedianEstimate(median, ordered[rank - 1], ordered[-rank], confidence)


def _compute_confidence(count: int, rank: int) -> float:
    outside = sum(math.comb(count, k) for k in range(rank))
    return max(0.0, 1.0 - 2.0 * outside / float(2**count))


def compare_losses(losses: Sequence[float | None], changed_losses: Sequence[float | None]) -> float:
    """Return the largest relative difference of losses at the same position; 1 at most.

    Differences are relative to the larger absolute value. None stands for a loss that is not a
    number, and equals itself only.
    """
    return max((_compare(a, b) for a, b in zip(losses, changed_losses, strict=False)), default=0.0)


def _compare(loss: float | None, changed_loss: float | None) -> float:
    if loss == changed_loss:
        return 0.0
    if loss is None or changed_loss is None:
        return 1.0
    return min(1.0, abs(loss - changed_loss) / max(abs(loss), abs(changed_loss)))
