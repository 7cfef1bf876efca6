"""Distributions of samples with figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.statistics import (
    estimate_lead_probability,
    summarize,
    summarize_durations,
    summarize_groups,
)


def test_figures_of_a_small_sample() -> None:
    distribution = summarize([4, 1, 3, 2, 5])
    assert distribution is not None
    assert (distribution.count, distribution.mean, distribution.minimum, distribution.maximum) == (
        5,
        3,
        1,
        5,
    )
    assert distribution.standard_deviation == pytest.approx(2**0.5)
    assert (distribution.p50, distribution.p95, distribution.p99) == pytest.approx((3, 4.8, 4.96))
    assert distribution.outlier_threshold == 4 + 3 * (4 - 2)
    assert distribution.outlier_count == 0


def test_outlier_is_beyond_the_far_fence() -> None:
    quartiles = [0.0, 1.0, 2.0]  # p25 is 0.75, p75 is 2, so that the fence is at 5.75
    distribution = summarize([*quartiles, 5.75])
    assert distribution is not None
    p25, p75 = 0.75, 2 + 0.25 * 3.75
    assert distribution.outlier_threshold == pytest.approx(p75 + 3 * (p75 - p25))


@pytest.mark.parametrize(("value", "outlier_count"), [(7.4, 0), (8.75, 0), (8.76, 1)])
def test_an_outlier_is_a_quarter_above_the_median(value: float, outlier_count: int) -> None:
    almost_constant = summarize([7.0] * 9 + [value])
    assert almost_constant is not None
    assert almost_constant.outlier_threshold == 1.25 * 7
    assert almost_constant.outlier_count == outlier_count


def test_empty_sample_is_not_zero() -> None:
    assert summarize([]) is None
    assert summarize([float("nan")]) is None


def test_missing_values_are_ignored() -> None:
    distribution = summarize([1.0, float("nan"), 3.0])
    assert distribution is not None
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
