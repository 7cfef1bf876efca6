"""Selection of the price of a run, and its origin."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

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


def make_info(**options: Any) -> RunInfo:
    return RunInfo(
        schema_version=1,
        run_id="r",
        created_ns=0,
        command=[],
        working_directory="/",
        stepscope_version="0",
        options=options,
    )


def make_node(instance_type: str | None) -> NodeInfo:
    return NodeInfo(
        node="n",
        platform="Linux",
        cpu_model="",
        cores_total=8,
        cores_available=8,
        memory_bytes=None,
        memory_limit_bytes=None,
        sample_interval_ns=1,
        spool="",
        clock_anchor_monotonic_ns=0,
        clock_anchor_epoch_ns=0,
        instance_type=instance_type,
    )


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
    assert used.source is not None
    assert used.source.startswith("https://")
    recorded = make_info(usd_per_hour="9", price_source="price of rig, from your own price file")
    assert select(recorded, []).used.origin == "price of rig, from your own price file"


def test_a_recorded_price_keeps_the_machine() -> None:
    """Its size is in the table, at any price."""
    price = select(make_info(usd_per_hour="9"), [make_node("p3.8xlarge"), make_node("p3.8xlarge")])
    assert price.usd_per_hour == Decimal(9)
    assert price.offer is not None
    assert price.offer.gpu_count == 4


def test_machines_of_different_types() -> None:
    price = select_price(make_info(), [make_node("p3.8xlarge"), make_node("p3.2xlarge")])
    assert isinstance(price, str)
    assert "p3.2xlarge, p3.8xlarge" in price


def test_a_machine_without_a_price() -> None:
    price = select_price(make_info(), [make_node("q9.nano")])
    assert isinstance(price, str)
    assert "no price found for q9.nano" in price
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
