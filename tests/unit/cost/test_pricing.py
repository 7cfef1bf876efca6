"""Prices of runs, and their costs to the cent."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.cost.job_cost import HOUR_NS, JobCost, parse_usd_per_hour
from stepscope.cost.prices import ENVIRONMENT
from stepscope.cost.pricing import (
    NO_PRICE,
    SET_BY_COMMAND,
    SET_BY_RUN,
    MachinePrice,
    PriceRequest,
    price_job,
    select_price,
)
from stepscope.errors import UsageError
from stepscope.schema import NodeInfo, RunInfo
from tests.support.store_rows import INFO, NODE


def make_info(**options: Any) -> RunInfo:
    return msgspec.structs.replace(INFO, options=options)


def make_node(instance_type: str | None) -> NodeInfo:
    return msgspec.structs.replace(NODE, instance_type=instance_type)


def select(
    info: RunInfo, nodes: list[NodeInfo], request: PriceRequest | None = None
) -> MachinePrice:
    price = select_price(info, nodes, PriceRequest() if request is None else request)
    assert isinstance(price, MachinePrice), price
    return price


def test_precedence() -> None:
    """Each of these takes precedence over the next."""
    recorded = make_info(usd_per_hour="3.00", instance_type="p3.16xlarge")
    node = make_node("p3.8xlarge")
    request = PriceRequest(usd_per_hour="1.5", instance_type="p3.2xlarge")
    assert select(recorded, [node], request).used.usd_per_hour == 1.5
    assert (
        select(recorded, [node], PriceRequest(instance_type="p3.2xlarge")).used.usd_per_hour == 3.06
    )
    assert select(recorded, [node]).used.usd_per_hour == 3.00
    assert select(make_info(instance_type="p3.16xlarge"), [node]).used.usd_per_hour == 24.48
    assert select(make_info(), [node]).used.usd_per_hour == 12.24
    assert select_price(make_info(), [make_node(None)]) == NO_PRICE


def test_origins() -> None:
    assert select(make_info(usd_per_hour="3"), []).used.origin == SET_BY_RUN
    assert select(make_info(), [], PriceRequest(usd_per_hour="3")).used.origin == SET_BY_COMMAND
    used = select(make_info(), [make_node("p4d.24xlarge")]).used
    assert used.as_of == "2026-01-19"
    assert used.as_of in used.origin
    assert used.source.startswith("https://")
    recorded = make_info(usd_per_hour="9", price_source="price of rig, from your own price file")
    assert select(recorded, []).used.origin == "price of rig, from your own price file"


def test_a_recorded_price_keeps_the_machine() -> None:
    """Its size is in the table, at any price."""
    price = select(make_info(usd_per_hour="9"), [make_node("p3.8xlarge"), make_node("p3.8xlarge")])
    assert price.usd_per_hour == Decimal(9)
    assert price.offer.gpu_count == 4


def test_machines_without_a_single_price() -> None:
    price = select_price(make_info(), [make_node("p3.8xlarge"), make_node("p3.2xlarge")])
    assert "p3.2xlarge, p3.8xlarge" in str(price)
    assert "no price found for q9.nano" in str(select_price(make_info(), [make_node("q9.nano")]))
    with pytest.raises(UsageError, match=r"no price found for q9\.nano"):
        select_price(make_info(), [], PriceRequest(instance_type="q9.nano"))


@pytest.mark.parametrize("text", ["a lot", "-1", "nan", ""])
def test_invalid_requests(text: str) -> None:
    with pytest.raises(UsageError, match="is not a price"):
        select_price(make_info(), [], PriceRequest(usd_per_hour=text))


def test_a_broken_file_fails_commands_and_not_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[[groups")
    monkeypatch.setenv(ENVIRONMENT, str(broken))
    price = select_price(make_info(), [make_node("p3.8xlarge")])
    assert isinstance(price, str)
    assert "broken.toml" in price
    assert select(make_info(usd_per_hour="3"), []).usd_per_hour == 3  # does not need the file
    with pytest.raises(UsageError, match=r"broken\.toml"):
        select_price(make_info(), [], PriceRequest(prices=broken))


def test_a_priced_job() -> None:
    nodes = [make_node("p3.8xlarge")]
    priced = price_job(make_info(), nodes, instance_count=2, duration_ns=1800 * 10**9)
    assert not isinstance(priced, str)
    assert priced.price.used.usd_per_hour == 12.24
    assert priced.job_usd == 12.24
    assert price_job(make_info(), [], instance_count=2, duration_ns=1) == NO_PRICE


def make_cost(instances: int, usd_per_hour: float | str, seconds: int) -> JobCost:
    price = parse_usd_per_hour(usd_per_hour)
    return JobCost(instance_count=instances, usd_per_hour=price, duration_ns=seconds * 10**9)


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
    cost = make_cost(10_000, "999999.99", hours * 3600)
    assert cost.usd == Decimal("999999.99") * 10_000 * hours
