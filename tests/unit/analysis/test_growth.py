"""Growth of series: worked examples, and Kendall's tau by its definition."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from stepscope.analysis.growth import measure_growth


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
