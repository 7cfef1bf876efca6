"""Comparison of repeated trials: an interval of the median, and differences of losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

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
