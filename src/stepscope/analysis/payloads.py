"""Payload of a distribution, shared by the payloads of several packages."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.statistics import Distribution


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution, in the unit named by the field that holds it."""

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
    """Outliers are values above this: p75 + 3 (p75 - p25)."""


def make_statistics(distribution: Distribution | None) -> Statistics | None:
    """Make the payload of a distribution."""
    if distribution is None:
        return None
    return Statistics(
        count=distribution.count,
        mean=distribution.mean,
        standard_deviation=distribution.standard_deviation,
        min=distribution.minimum,
        p50=distribution.p50,
        p95=distribution.p95,
        p99=distribution.p99,
        max=distribution.maximum,
        outlier_count=distribution.outlier_count,
        outlier_threshold=distribution.outlier_threshold,
    )


def nan_to_none(values: NDArray[np.float64]) -> list[float | None]:
    """Convert an array to a list with None for NaN, for a payload."""
    return [None if math.isnan(value) else value for value in values.tolist()]
