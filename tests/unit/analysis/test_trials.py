"""Interval of a median, and differences of losses, against brute force."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest

from stepscope.analysis import compare_losses, estimate_median


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
