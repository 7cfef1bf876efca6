"""Histograms, compared with direct counts: every value counts exactly once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from stepscope.analysis.histograms import (
    build_histogram,
    make_duration_edges,
    make_range_edges,
    make_ratio_edges,
)

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


def test_missing_values_are_ignored() -> None:
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
