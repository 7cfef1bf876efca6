"""Distributions of samples with figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis.statistics import (
    estimate_lead_probability,
    summarize,
    summarize_durations,
    summarize_groups,
)


@given(values=st.lists(st.integers(-1000, 1000), min_size=1, max_size=50))
def test_distribution_equals_the_textbook_formulas(values: list[int]) -> None:
    distribution = summarize(values)
    mean = sum(values) / len(values)
    assert distribution.count == len(values)
    assert distribution.mean == pytest.approx(mean)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    assert distribution.standard_deviation == pytest.approx(variance**0.5)
    assert (distribution.minimum, distribution.maximum) == (min(values), max(values))
    for quantile, value in (
        (0.5, distribution.p50),
        (0.95, distribution.p95),
        (0.99, distribution.p99),
    ):
        assert value == pytest.approx(interpolated(values, quantile))
    low, high = interpolated(values, 0.25), interpolated(values, 0.75)
    median = interpolated(values, 0.5)
    assert distribution.outlier_threshold == pytest.approx(
        max(high + 3 * (high - low), median + abs(median) / 4)
    )
    assert distribution.outlier_count == sum(
        value > distribution.outlier_threshold for value in values
    )


def interpolated(values: list[int], quantile: float) -> float:
    """Linear between the two order statistics around (n - 1) q."""
    ordered = sorted(values)
    position = (len(values) - 1) * quantile
    below = int(position)
    above = min(below + 1, len(values) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


@pytest.mark.parametrize(("value", "outlier_count"), [(7.4, 0), (8.75, 0), (8.76, 1)])
def test_an_outlier_is_a_quarter_above_the_median(value: float, outlier_count: int) -> None:
    almost_constant = summarize([7.0] * 9 + [value])
    assert almost_constant.outlier_threshold == 1.25 * 7
    assert almost_constant.outlier_count == outlier_count


def test_empty_sample_is_not_zero() -> None:
    assert summarize([]) is None
    assert summarize([float("nan")]) is None


def test_missing_values_are_ignored() -> None:
    distribution = summarize([1.0, float("nan"), 3.0])
    assert (distribution.count, distribution.mean) == (2, 2.0)


@pytest.mark.parametrize(
    ("first", "second", "count"), [(0.5, 0.4, 60), (0.3, 0.25, 400), (0.6, 0, 9)]
)
def test_probability_of_a_lead(first: float, second: float, count: int) -> None:
    """The probability that a new sample has more draws of the first than of the second."""
    generator = np.random.default_rng(5)
    draws = generator.multinomial(count, [first, second, 1 - first - second], size=200_000)
    more, same = (draws[:, 0] > draws[:, 1]).mean(), (draws[:, 0] == draws[:, 1]).mean()
    assert estimate_lead_probability(first, second, count) == pytest.approx(
        more + same / 2, abs=0.01
    )


def test_equal_shares_have_even_odds() -> None:
    assert estimate_lead_probability(0.3, 0.3, 1000) == 0.5
    assert estimate_lead_probability(1.0, 0.0, 20) == 1.0
    assert estimate_lead_probability(0.0, 0.0, 0) == 0.5


def test_groups_of_durations_by_their_total() -> None:
    durations = np.array([5, 1, 7, 3], dtype=np.int64)
    groups = summarize_groups([("a", 0), ("b", None), ("b", None), ("a", 0)], durations)
    assert list(groups) == [("a", 0), ("b", None)]  # both total 8: in order of appearance
    assert groups["b", None] == summarize_durations(np.array([1, 7], dtype=np.int64))
    first = groups["a", 0]
    assert (first.count, first.total_ns, first.mean_ns, first.p50_ns) == (2, 8, 4, 4)
    assert (first.min_ns, first.max_ns) == (3, 5)
    assert summarize_durations(durations[:0]) is None
