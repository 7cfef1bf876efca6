"""Costs of published cases, and rounding to the cent."""

from __future__ import annotations

from decimal import Decimal

import pytest

from stepscope.cost.job_cost import HOUR_NS, JobCost, parse_usd_per_hour


def make_cost(instances: int, usd_per_hour: float, seconds: int) -> JobCost:
    return JobCost(
        instance_count=instances,
        usd_per_hour=parse_usd_per_hour(usd_per_hour),
        duration_ns=seconds * 10**9,
    )


def test_fewer_and_smaller_instances_for_the_same_time() -> None:
    """A published comparison: 3 of one type for 503 s, 2 of another for 502 s."""
    before, after = make_cost(3, 14.688, 503), make_cost(2, 3.825, 502)
    assert (before.exact_usd, after.exact_usd) == (Decimal("6.156720"), Decimal("1.066750"))
    assert (str(before.usd), str(after.usd)) == ("6.16", "1.07")
    saving = after.saving_ratio(before)
    assert saving is not None
    assert f"{saving:.1%}" == "82.6%"  # from the rounded costs; from exact costs it is 82.7%
    assert f"{1 - after.exact_usd / before.exact_usd:.1%}" == "82.7%"


def test_thirty_epochs_of_a_recommender() -> None:
    """5.9 h per epoch before the input pipeline was fixed, 2.6 h after, on one machine."""
    before, after = make_cost(1, 32.77, 30 * 21240), make_cost(1, 32.77, 30 * 9360)
    assert before.duration_ns - after.duration_ns == 99 * HOUR_NS
    assert before.usd - after.usd == Decimal("3244.23")
    saving = after.saving_ratio(before)
    assert saving is not None
    assert f"{saving:.1%}" == "55.9%"


def test_another_duration_on_the_same_instances() -> None:
    cost = make_cost(2, 36, 10)
    assert cost.compute_usd(1_000_000_000) == 0.02
    assert cost.compute_usd(None) is None
    assert cost.for_duration(HOUR_NS).usd == 72
    assert cost.for_duration(HOUR_NS).instance_hours == 2


def test_no_saving_relative_to_a_free_job() -> None:
    assert make_cost(1, 1, 10).saving_ratio(make_cost(1, 0, 10)) is None
    assert make_cost(1, 2, 3600).saving_ratio(make_cost(1, 1, 3600)) == -1


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 1e30, "1000000.01"])
def test_values_that_are_not_a_price(value: float | str) -> None:
    with pytest.raises(ValueError, match="is not a price"):
        parse_usd_per_hour(value)


def test_the_largest_sum_is_exact_to_the_cent() -> None:
    """Ten thousand machines at the largest price for a thousand years."""
    hours = 1000 * 365 * 24
    cost = JobCost(
        instance_count=10_000,
        usd_per_hour=parse_usd_per_hour("999999.99"),
        duration_ns=hours * HOUR_NS,
    )
    assert cost.usd == Decimal("999999.99") * 10_000 * hours
