"""Which price a run is reckoned at, and what is said of where it is from."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from stepscope.cost.prices import ENVIRONMENT
from stepscope.cost.pricing import ASKED, NO_PRICE, TOLD, Asked, Priced, price_of
from stepscope.errors import UsageError
from stepscope.schema import NodeInfo, RunInfo


def info(**options: Any) -> RunInfo:
    return RunInfo(
        schema_version=1,
        run_id="r",
        created_ns=0,
        command=[],
        working_directory="/",
        stepscope_version="0",
        options=options,
    )


def node(kind: str | None) -> NodeInfo:
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
        instance_type=kind,
    )


def reckoned(run: RunInfo, nodes: list[NodeInfo], asked: Asked | None = None) -> Priced:
    found = price_of(run, nodes, Asked() if asked is None else asked)
    assert isinstance(found, Priced), found
    return found


def test_the_order_in_which_they_win() -> None:
    """Each of these wins over those after it."""
    told = info(usd_per_hour="3.00", instance_type="p3.16xlarge")
    found = node("p3.8xlarge")
    asked = Asked(usd_per_hour="1.5", instance_type="p3.2xlarge")
    assert reckoned(told, [found], asked).used.usd_per_hour == 1.5
    assert reckoned(told, [found], Asked(instance_type="p3.2xlarge")).used.usd_per_hour == 3.06
    assert reckoned(told, [found]).used.usd_per_hour == 3.00
    assert reckoned(info(instance_type="p3.16xlarge"), [found]).used.usd_per_hour == 24.48
    assert reckoned(info(), [found]).used.usd_per_hour == 12.24
    assert price_of(info(), [node(None)]) == NO_PRICE


def test_what_is_said_of_each() -> None:
    assert reckoned(info(usd_per_hour="3"), []).used.said == TOLD
    assert reckoned(info(), [], Asked(usd_per_hour="3")).used.said == ASKED
    used = reckoned(info(), [node("p4d.24xlarge")]).used
    assert used.as_of == "2026-01-19"
    assert used.as_of in used.said
    assert used.source is not None
    assert used.source.startswith("https://")
    kept = info(usd_per_hour="9", price_source="price of rig, from your own price file")
    assert reckoned(kept, []).used.said == "price of rig, from your own price file"


def test_a_price_that_was_told_knows_its_machine() -> None:
    """Its size is in the table, whatever was paid for it."""
    found = reckoned(info(usd_per_hour="9"), [node("p3.8xlarge"), node("p3.8xlarge")])
    assert found.usd_per_hour == Decimal(9)
    assert found.offer is not None
    assert found.offer.gpu_count == 4


def test_machines_of_different_types() -> None:
    found = price_of(info(), [node("p3.8xlarge"), node("p3.2xlarge")])
    assert isinstance(found, str)
    assert "p3.2xlarge, p3.8xlarge" in found


def test_a_machine_that_is_in_no_table() -> None:
    found = price_of(info(), [node("q9.nano")])
    assert isinstance(found, str)
    assert "no price of q9.nano is known" in found
    with pytest.raises(UsageError, match=r"no price of q9\.nano"):
        price_of(info(), [], Asked(instance_type="q9.nano"))


@pytest.mark.parametrize("wrong", ["a lot", "-1", "nan", ""])
def test_what_is_asked_must_be_a_price(wrong: str) -> None:
    with pytest.raises(UsageError, match="is no price"):
        price_of(info(), [], Asked(usd_per_hour=wrong))


def test_a_broken_file_fails_commands_and_not_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[[groups")
    monkeypatch.setenv(ENVIRONMENT, str(broken))
    found = price_of(info(), [node("p3.8xlarge")])
    assert isinstance(found, str)
    assert "broken.toml" in found
    assert reckoned(info(usd_per_hour="3"), []).usd_per_hour == 3  # nobody needs the file
    with pytest.raises(UsageError, match=r"broken\.toml"):
        price_of(info(), [], Asked(prices=broken))
