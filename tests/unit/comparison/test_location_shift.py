"""Intervals of a shift, against every order of two samples and every choice of signs."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from stepscope.comparison.location_shift import (
    critical_rank,
    critical_signed_rank,
    differences,
    walsh_averages,
)


@pytest.mark.parametrize(("one", "two"), [(3, 3), (4, 6), (5, 5), (6, 5), (6, 6)])
def test_the_interval_is_that_of_all_orders(one: int, two: int) -> None:
    """By brute force: in which share of all orders of both samples U is as small as the rank."""
    orders = list(combinations(range(one + two), two))
    found = [sum(place - number for number, place in enumerate(order)) for order in orders]
    rank = critical_rank(one, two, 0.05)
    share = [np.mean(np.array(found) <= each) for each in (rank, rank + 1)]
    assert share[0] <= 0.05 < share[1]


def test_samples_that_are_too_small_have_no_interval() -> None:
    with pytest.raises(ValueError, match="samples of 2 and 2 are too few"):
        critical_rank(2, 2, 0.05)


@pytest.mark.parametrize("pairs", range(5, 12))
def test_the_interval_is_that_of_all_signs(pairs: int) -> None:
    """By brute force: in which share of all choices of signs the sum of the ranks of those above 0
    is as small as the rank."""
    ranks = np.arange(1, pairs + 1)
    sums = np.array([*product((0, 1), repeat=pairs)]) @ ranks
    rank = critical_signed_rank(pairs, 0.05)
    share = [np.mean(sums <= each) for each in (rank, rank + 1)]
    assert share[0] <= 0.05 < share[1]


def test_pairs_that_are_too_few_have_no_interval() -> None:
    with pytest.raises(ValueError, match="4 pairs are too few"):
        critical_signed_rank(4, 0.05)


def test_bounds_leave_out_0_where_the_tests_do() -> None:
    """The number of differences below 0 is the statistic of Mann and Whitney, that of the Walsh
    averages below 0 the one of Wilcoxon."""
    generator = np.random.default_rng(4)
    for shift in np.linspace(0, 2, 40):
        one, two = generator.normal(0, 1, 7), generator.normal(shift, 1, 7)
        below = int((two[None, :] < one[:, None]).sum())
        place = critical_rank(7, 7, 0.05)
        assert (differences(one, two)[place] > 0) == (below <= place)
        apart = two - one
        order = np.argsort(np.abs(apart))
        ranks = np.empty(7)
        ranks[order] = np.arange(1, 8)
        place = critical_signed_rank(7, 0.05)
        assert (walsh_averages(apart)[place] > 0) == (ranks[apart < 0].sum() <= place)


def test_every_figure_is_sorted_by_itself() -> None:
    one, two = np.array([[1.0, 10.0], [2.0, 0.0]]), np.array([[5.0, 1.0], [3.0, 2.0]])
    assert differences(one, two).tolist() == [[1, -9], [2, -8], [3, 1], [4, 2]]
    assert walsh_averages(two - one).tolist() == [[1, -9], [2.5, -3.5], [4, 2]]
