"""Intervals of a shift, compared with all orders of two samples and all choices of signs."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from stepscope.comparison.location_shift import (
    compute_differences,
    compute_walsh_averages,
    find_critical_rank,
    find_critical_signed_rank,
)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (4, 6), (5, 5), (6, 5), (6, 6)])
def test_the_interval_is_that_of_all_orders(n: int, m: int) -> None:
    """Brute force: U is at most the rank in less than 5% of all orders of both samples."""
    orders = list(combinations(range(n + m), m))
    statistics = np.array([sum(index - i for i, index in enumerate(order)) for order in orders])
    rank = find_critical_rank(n, m, 0.05)
    assert np.mean(statistics <= rank) <= 0.05 < np.mean(statistics <= rank + 1)


def test_samples_that_are_too_small_have_no_interval() -> None:
    with pytest.raises(ValueError, match="samples of 2 and 2 are too few"):
        find_critical_rank(2, 2, 0.05)


@pytest.mark.parametrize("pairs", range(5, 12))
def test_the_interval_is_that_of_all_signs(pairs: int) -> None:
    """Brute force: the sum of positive ranks is at most the rank in less than 5% of all choices of
    signs."""
    ranks = np.arange(1, pairs + 1)
    sums = np.array([*product((0, 1), repeat=pairs)]) @ ranks
    rank = find_critical_signed_rank(pairs, 0.05)
    assert np.mean(sums <= rank) <= 0.05 < np.mean(sums <= rank + 1)


def test_pairs_that_are_too_few_have_no_interval() -> None:
    with pytest.raises(ValueError, match="4 pairs are too few"):
        find_critical_signed_rank(4, 0.05)


def test_bounds_exclude_0_where_the_tests_reject() -> None:
    """Mann and Whitney count negative differences, Wilcoxon negative Walsh averages."""
    generator = np.random.default_rng(4)
    for shift in np.linspace(0, 2, 40):
        base, candidate = generator.normal(0, 1, 7), generator.normal(shift, 1, 7)
        negative_count = int((candidate[None, :] < base[:, None]).sum())
        rank = find_critical_rank(7, 7, 0.05)
        assert (compute_differences(base, candidate)[rank] > 0) == (negative_count <= rank)
        changes = candidate - base
        order = np.argsort(np.abs(changes))
        ranks = np.empty(7)
        ranks[order] = np.arange(1, 8)
        rank = find_critical_signed_rank(7, 0.05)
        is_rejected = ranks[changes < 0].sum() <= rank
        assert (compute_walsh_averages(changes)[rank] > 0) == is_rejected


def test_columns_are_sorted_separately() -> None:
    base, candidate = np.array([[1.0, 10.0], [2.0, 0.0]]), np.array([[5.0, 1.0], [3.0, 2.0]])
    assert compute_differences(base, candidate).tolist() == [[1, -9], [2, -8], [3, 1], [4, 2]]
    assert compute_walsh_averages(candidate - base).tolist() == [[1, -9], [2.5, -3.5], [4, 2]]
