"""Statistics of samples: distributions, growth, histograms, medians and confusions."""

from __future__ import annotations

import itertools
import math
import statistics
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from stepscope.analysis import (
    ConfusionScores,
    Scores,
    compare_losses,
    estimate_median,
    score_confusion,
)
from stepscope.analysis.arrays.histograms import (
    build_histogram,
    make_duration_edges,
    make_range_edges,
    make_ratio_edges,
)
from stepscope.analysis.arrays.statistics import (
    estimate_lead_probability,
    measure_growth,
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


def test_linear_growth() -> None:
    growth = measure_growth(np.arange(100, dtype=np.float64))
    assert (growth.first, growth.last) == (4.5, 94.5)  # medians of 0..9 and 90..99
    assert growth.steady_ratio == 1
    assert growth.excess == pytest.approx(49.5 - 4.5)


def test_constant_and_falling_series() -> None:
    flat, falling = (
        measure_growth(np.full(50, 7.0)),
        measure_growth(-np.arange(50, dtype=np.float64)),
    )
    assert (flat.steady_ratio, flat.excess) == (0, 0)
    assert falling.steady_ratio == 0


def test_steady_ratio_equals_a_count_of_pairs() -> None:
    values = np.random.default_rng(3).normal(size=200)
    medians = [float(np.median(part)) for part in np.array_split(values, 10)]
    pairs = list(combinations(medians, 2))
    growth = measure_growth(values)
    assert growth.steady_ratio == sum(later > earlier for earlier, later in pairs) / len(pairs)


def test_short_series_use_single_values() -> None:
    growth = measure_growth(np.array([1.0, 3.0, 2.0, 5.0]))
    assert (growth.first, growth.last, growth.steady_ratio) == (1.0, 5.0, 5 / 6)
    assert measure_growth(np.array([1.0])) is None


def test_rare_large_values_are_no_growth() -> None:
    values = np.linspace(100, 112, 1000)
    values[::50] += 5000
    growth = measure_growth(values)
    assert growth.excess == pytest.approx(12 * 0.45, abs=0.05)


PATIENT = settings(suppress_health_check=[HealthCheck.too_slow])
VALUES = st.lists(st.integers(-50, 150).map(lambda percent: percent / 100), max_size=60)


@PATIENT
@given(VALUES, st.sampled_from([0.02, 0.05, 0.1, 0.3]))
def test_counts_equal_direct_counting(values: list[float], width: float) -> None:
    edges = make_ratio_edges(width)
    histogram = build_histogram(values, edges)
    last = len(edges) - 2
    for index in range(last + 1):
        lower, upper = edges[index], edges[index + 1]
        inside = [v for v in values if lower <= v < upper or (index == last and v == upper)]
        assert histogram.counts[index] == len(inside)
    assert histogram.under_count == sum(v < 0 for v in values)
    assert histogram.over_count == sum(v > 1 for v in values)
    assert histogram.count == len(values)


def test_each_percentage_falls_into_the_bin_that_starts_with_it() -> None:
    """No rounding moves 0.58 below the edge 0.58, and 99 and 100 % are in the last bin."""
    for percent in range(101):
        counts = build_histogram([percent / 100], make_ratio_edges()).counts
        assert np.flatnonzero(counts).tolist() == [min(percent // 2, 49)]


def test_missing_values_are_in_no_bin() -> None:
    assert build_histogram([math.nan, 0.5], make_ratio_edges()).count == 1


@PATIENT
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=50), st.integers(1, 60))
def test_bins_of_durations(durations: list[int], bins: int) -> None:
    edges = make_duration_edges(durations, bins=bins)
    upper = min(np.median(durations) + 2 * np.std(durations), max(durations))
    histogram = build_histogram(durations, edges)
    assert (histogram.under_count, histogram.count) == (0, len(durations))
    if upper > min(durations):
        assert (edges[0], edges[-1]) == (min(durations), pytest.approx(upper))
        assert len(edges) == bins + 1
        assert histogram.over_count == sum(value > edges[-1] for value in durations)
    else:
        assert len(edges) == 2


def test_equal_durations_form_one_bin() -> None:
    edges = make_duration_edges([7, 7, 7])
    assert edges is not None
    assert build_histogram([7, 7, 7], edges).counts.tolist() == [3]


def test_without_values_there_are_no_bins() -> None:
    assert make_duration_edges([]) is None
    assert make_range_edges([math.nan]) is None
    edges = make_range_edges([1, 3], bins=4)
    assert edges.tolist() == [1, 1.5, 2, 2.5, 3]


def test_bins_cover_all_samples() -> None:
    samples = [[3.0, math.nan], [], [7.0, 5.0]]
    pooled = [value for sample in samples for value in sample]
    assert make_range_edges() is None
    for edges, expected in (
        (make_range_edges(*samples), make_range_edges(pooled)),
        (make_duration_edges([3, 9], [4], bins=5), make_duration_edges([3, 9, 4], bins=5)),
    ):
        assert edges.tolist() == expected.tolist()


@pytest.mark.parametrize("count", range(1, 13))
def test_the_confidence_is_the_share_of_sign_patterns_that_enclose_the_median(count: int) -> None:
    values = [7.0 * (k + 1) % 13 + k / 100 for k in range(count)]
    estimate = estimate_median(values)
    ordered = sorted(values)
    low, high = ordered.index(estimate.low), ordered.index(estimate.high)
    assert low == count - 1 - high
    # Each value is below the true median with probability 1/2. The interval encloses it when more
    # than `low` values are below and more than `low` are not.
    patterns = list(itertools.product([0, 1], repeat=count))
    enclosing = sum(low < sum(pattern) < count - low for pattern in patterns)
    assert estimate.confidence_ratio == pytest.approx(enclosing / len(patterns))
    assert estimate.median == statistics.median(values)


def test_five_pairs_have_a_range_of_94_percent() -> None:
    estimate = estimate_median([0.3, 0.1, 0.2, 0.5, 0.4])
    assert (estimate.low, estimate.high, estimate.confidence_ratio) == (0.1, 0.5, 0.9375)


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        estimate_median([])


def test_losses_are_compared_at_the_same_position() -> None:
    assert compare_losses([1.0, 2.0, None], [1.0, 2.0, None]) == 0
    assert compare_losses([1.0, 2.0], [1.0, 2.5, 9.0]) == pytest.approx(0.2)
    assert compare_losses([4.0], [-4.0]) == 1  # the ratio 2 is cut
    assert compare_losses([None], [3.0]) == 1
    assert compare_losses([], [1.0]) == 0
    assert math.isclose(compare_losses([1.0], [1.0 + 1e-12]), 1e-12, rel_tol=1e-3)


def scores_of(labels: list[int], predictions: list[int], class_count: int) -> ConfusionScores:
    counts = np.zeros((class_count, class_count))
    np.add.at(counts, (labels, predictions), 1)
    return score_confusion(counts)


def rounded(scores: Scores) -> list[list[float]]:
    return [np.round(values, 2).tolist() for values in (scores.precision, scores.recall, scores.f1)]


@pytest.mark.seed("DBR-16")
def test_example_of_scikit_learn() -> None:
    """The first example of `sklearn.metrics.classification_report`:
    https://scikit-learn.org/stable/modules/generated/sklearn.metrics.classification_report.html"""
    scores = scores_of([0, 1, 2, 2, 2], [0, 0, 2, 2, 1], 3)
    assert rounded(scores.classes) == [[0.5, 0, 1], [1, 0, 0.67], [0.67, 0, 0.8]]
    assert rounded(scores.macro) == [[0.5], [0.56], [0.49]]
    assert rounded(scores.weighted) == [[0.7], [0.6], [0.61]]
    assert scores.accuracy == pytest.approx(0.6)
    assert scores.row_count.tolist() == [1, 1, 3]
    assert scores.predicted_count.tolist() == [2, 1, 2]


def test_a_class_that_does_not_occur_has_no_scores() -> None:
    """Class 2 is never predicted, and class 3 never occurs: it does not count for the mean."""
    scores = scores_of([0, 0, 1, 2], [0, 1, 1, 0], 4)
    assert np.isnan(scores.classes.precision).tolist() == [False, False, True, True]
    assert np.isnan(scores.classes.recall).tolist() == [False, False, False, True]
    assert scores.classes.f1[2] == 0
    assert np.isnan(scores.classes.f1[3])
    assert scores.macro.precision[0] == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)


def test_no_rows() -> None:
    scores = score_confusion(np.zeros((2, 2)))
    assert np.isnan(scores.accuracy)
    assert np.isnan(scores.macro.f1).all()


PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60)


@given(pairs=PAIRS)
def test_scores_are_those_of_a_count_of_rows(pairs: list[tuple[int, int]]) -> None:
    scores = scores_of([label for label, _ in pairs], [predicted for _, predicted in pairs], 5)
    right = sum(label == predicted for label, predicted in pairs)
    assert scores.accuracy == pytest.approx(right / len(pairs))
    f1_sum, weighted_f1, occurring = 0.0, 0.0, 0
    for number in range(5):
        of_class = [pair for pair in pairs if pair[0] == number]
        predicted = [pair for pair in pairs if pair[1] == number]
        hits = sum(pair == (number, number) for pair in pairs)
        for share, base in (
            (scores.classes.precision, predicted),
            (scores.classes.recall, of_class),
        ):
            expected = hits / len(base) if base else np.nan
            assert share[number] == pytest.approx(expected, nan_ok=True)
        if of_class or predicted:
            precision = hits / len(predicted) if predicted else 0
            recall = hits / len(of_class) if of_class else 0
            f1 = 2 * precision * recall / (precision + recall) if hits else 0
            assert scores.classes.f1[number] == pytest.approx(f1)
            f1_sum, occurring = f1_sum + f1, occurring + 1
            weighted_f1 += f1 * len(of_class)
    assert scores.macro.f1[0] == pytest.approx(f1_sum / occurring)
    assert scores.weighted.f1[0] == pytest.approx(weighted_f1 / len(pairs))
