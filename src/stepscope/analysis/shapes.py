"""Parts that several payloads share."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.statistics import Distribution


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution, in the unit that the field holding it names."""

    count: int
    mean: float
    standard_deviation: float
    min: float
    p50: float
    p95: float
    p99: float
    max: float
    outlier_count: int
    outlier_threshold: float
    """A value above p75 + 3 (p75 - p25) is an outlier."""


def statistics(summary: Distribution | None) -> Statistics | None:
    """The payload of a distribution."""
    if summary is None:
        return None
    return Statistics(
        count=summary.count,
        mean=summary.mean,
        standard_deviation=summary.standard_deviation,
        min=summary.minimum,
        p50=summary.p50,
        p95=summary.p95,
        p99=summary.p99,
        max=summary.maximum,
        outlier_count=summary.outlier_count,
        outlier_threshold=summary.outlier_threshold,
    )


def numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Numbers of a payload, null for NaN."""
    return [None if math.isnan(value) else value for value in values.tolist()]
