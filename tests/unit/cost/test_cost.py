"""Costs of published cases, and what rounding does to them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from stepscope.cost.job_cost import JobCost, price

HOUR_NS = 3600 * 10**9


def cost(instances: int, usd_per_hour: float, seconds: int) -> JobCost:
    return JobCost(
        instance_count=instances, usd_per_hour=price(usd_per_hour), duration_ns=seconds * 10**9
    )


def test_fewer_and_smaller_instances_for_the_same_time() -> None:
    """A published comparison: 3 of one kind for 503 s, 2 of another for 502 s."""
    before, after = cost(3, 14.688, 503), cost(2, 3.825, 502)
    assert (before.exact_usd, after.exact_usd) == (Decimal("6.156720"), Decimal("1.066750"))
    assert (str(before.usd), str(after.usd)) == ("6.16", "1.07")
    saving = after.saving_ratio(before)
    assert saving is not None
    assert f"{saving:.1%}" == "82.6%"  # as printed; of the exact costs it would be 82.7 %
    assert f"{1 - after.exact_usd / before.exact_usd:.1%}" == "82.7%"


def test_thirty_epochs_of_a_recommender() -> None:
    """5.9 h an epoch before the input pipeline was mended, 2.6 h after, on one machine."""
    before, after = cost(1, 32.77, 30 * 21240), cost(1, 32.77, 30 * 9360)
    assert before.duration_ns - after.duration_ns == 99 * HOUR_NS
    assert before.usd - after.usd == Decimal("3244.23")
    saving = after.saving_ratio(before)
    assert saving is not None
    assert f"{saving:.1%}" == "55.9%"


def test_what_cost_nothing_cannot_be_saved() -> None:
    assert cost(1, 1, 10).saving_ratio(cost(1, 0, 10)) is None
    assert cost(1, 2, 3600).saving_ratio(cost(1, 1, 3600)) == -1


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), 1e30, "1000000.01"])
def test_what_is_no_price(wrong: float | str) -> None:
    with pytest.raises(ValueError, match="is no price"):
        price(wrong)


def test_the_largest_sum_is_exact_to_the_cent() -> None:
    """Ten thousand machines at the largest price for a thousand years."""
    hours = 1000 * 365 * 24
    most = JobCost(
        instance_count=10_000, usd_per_hour=price("999999.99"), duration_ns=hours * HOUR_NS
    )
    assert most.usd == Decimal("999999.99") * 10_000 * hours
