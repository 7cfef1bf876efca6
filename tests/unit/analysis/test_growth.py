"""What grows, and how steadily: worked cases, and Kendall's tau by its definition."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from stepscope.analysis.growth import measure_growth


def test_what_grows_evenly() -> None:
    found = measure_growth(np.arange(100, dtype=np.float64))
    assert found is not None
    assert (found.first, found.last) == (4.5, 94.5)  # medians of 0..9 and 90..99
    assert found.steady_ratio == 1
    assert found.excess == pytest.approx(49.5 - 4.5)


def test_what_stays_or_falls() -> None:
    flat, falling = (
        measure_growth(np.full(50, 7.0)),
        measure_growth(-np.arange(50, dtype=np.float64)),
    )
    assert flat is not None
    assert falling is not None
    assert (flat.steady_ratio, flat.excess) == (0, 0)
    assert falling.steady_ratio == 0


def test_pairs_of_stretches_are_counted_one_by_one() -> None:
    values = np.random.default_rng(3).normal(size=200)
    medians = [float(np.median(part)) for part in np.array_split(values, 10)]
    pairs = list(combinations(medians, 2))
    found = measure_growth(values)
    assert found is not None
    assert found.steady_ratio == sum(later > earlier for earlier, later in pairs) / len(pairs)


def test_few_values_are_stretches_of_their_own_and_fewer_say_nothing() -> None:
    found = measure_growth(np.array([1.0, 3.0, 2.0, 5.0]))
    assert found is not None
    assert (found.first, found.last, found.steady_ratio) == (1.0, 5.0, 5 / 6)
    assert measure_growth(np.array([1.0])) is None
