"""The published price table, and custom price files."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from stepscope.cost.prices import (
    ENVIRONMENT,
    SHIPPED,
    Offer,
    PriceTable,
    load_price_table,
    load_published_prices,
    read_prices,
)
from stepscope.errors import UsageError

OFFERS = load_published_prices().offers


def list_types(offers: list[Offer]) -> list[str]:
    return sorted(offer.type for offer in offers)


@pytest.mark.parametrize("offer", OFFERS, ids=lambda offer: f"{offer.type} {offer.as_of}")
def test_published_prices_are_complete_and_have_a_source(offer: Offer) -> None:
    assert offer.type.strip() == offer.type != ""
    assert offer.usd_per_hour > 0
    assert offer.provider
    assert offer.region
    assert offer.as_of is not None
    assert date(2017, 1, 1) < offer.as_of <= date(2026, 11, 22)
    for url in (offer.source, offer.sizes):
        assert url.startswith("https://")
        assert " " not in url
    assert offer.vcpu_count is not None
    assert offer.vcpu_count > 0
    assert offer.memory_gib is not None
    assert offer.memory_gib > 0
    if offer.gpu is None:
        assert (offer.gpu_count, offer.gpu_memory_gib) == (0, None)
    else:
        assert offer.gpu_count > 0
        assert offer.gpu_memory_gib is not None
        assert offer.gpu_memory_gib > 0
    assert not offer.is_custom


def test_no_price_is_listed_twice() -> None:
    counts = Counter((offer.type, offer.provider, offer.region, offer.as_of) for offer in OFFERS)
    assert [key for key, count in counts.items() if count > 1] == []


def test_a_type_has_one_size_at_every_price() -> None:
    sizes: dict[str, set[object]] = {}
    for offer in OFFERS:
        gpus = (offer.gpu, offer.gpu_count, offer.gpu_memory_gib)
        sizes.setdefault(offer.type, set()).add((*gpus, offer.vcpu_count, offer.memory_gib))
    assert [name for name, type_sizes in sizes.items() if len(type_sizes) > 1] == []


def test_larger_machines_are_not_cheaper() -> None:
    """Within a family, more GPUs and cores never cost less; finds typing errors in the table."""
    for small, large in itertools.permutations(OFFERS, 2):
        assert small.vcpu_count is not None
        assert large.vcpu_count is not None
        is_larger = small.gpu_count < large.gpu_count and small.vcpu_count < large.vcpu_count
        if is_larger and get_family(small) == get_family(large):
            assert small.usd_per_hour < large.usd_per_hour, (small.type, large.type)


def get_family(offer: Offer) -> tuple[object, ...]:
    return (offer.provider, offer.region, offer.as_of, offer.gpu, offer.type.split(".")[0])


def test_the_published_cases_have_their_prices() -> None:
    table = load_published_prices()
    for instance_type, usd in (("ml.p3.8xlarge", "14.688"), ("ml.p3.2xlarge", "3.825")):
        offer = table.find(instance_type)
        assert offer.usd_per_hour == Decimal(usd)
        assert (offer.region, offer.as_of) == ("us-west-2", date(2020, 12, 10))
    prices = [offer.usd_per_hour for offer in OFFERS if offer.type == "p4d.24xlarge"]
    assert [round(price, 2) for price in prices] == [Decimal("21.96"), Decimal("32.77")]


def test_the_newest_price_is_taken() -> None:
    newest = load_published_prices().find("P4D.24xlarge ")
    dates = [offer.as_of for offer in OFFERS if offer.type == "p4d.24xlarge"]
    assert newest.as_of == max(dates)
    assert "as of 2026-01-19" in newest.origin
    assert load_published_prices().find("p99.nano") is None


def test_alternatives_are_of_the_same_place_and_gpu() -> None:
    table = load_published_prices()
    offer = table.find("p3.8xlarge")
    assert offer is not None
    # p3dn has twice the memory per GPU, ml.p3 is another region and service.
    assert list_types(table.find_alternatives(offer)) == ["p3.16xlarge", "p3.2xlarge", "p3.8xlarge"]


def write_file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_custom_price_takes_precedence_and_keeps_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_file(
        tmp_path / "mine.toml",
        "[[groups]]\n"
        "as_of = 2019-05-01\n"
        'instances = [{ type = "p3.2xlarge", usd_per_hour = 1.19 }]\n'
        "[[groups]]\n"
        'provider = "basement"\n'
        'instances = [{ type = "rig", usd_per_hour = 0.4, gpu = "RTX 4090", gpu_count = 2 }]\n',
    )
    monkeypatch.setenv(ENVIRONMENT, str(file))
    table = load_price_table()
    custom = table.find("p3.2xlarge")
    assert (custom.usd_per_hour, custom.is_custom) == (Decimal("1.19"), True)  # despite its date
    assert (custom.gpu, custom.gpu_count, custom.vcpu_count) == ("V100", 1, 8)
    assert custom.origin == (
        "price of p3.2xlarge (AWS us-east-1, on demand), from your own price file, as of 2019-05-01"
    )
    assert list_types(table.find_alternatives(custom)) == [
        "p3.16xlarge",
        "p3.2xlarge",
        "p3.8xlarge",
    ]
    rig = table.find("rig")
    assert (rig.gpu_count, rig.vcpu_count, rig.as_of) == (2, None, None)
    assert table.find("p3.8xlarge") == load_published_prices().find("p3.8xlarge")


def test_an_option_takes_precedence_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = '[[groups]]\ninstances = [{{ type = "rig", usd_per_hour = {} }}]\n'
    monkeypatch.setenv(ENVIRONMENT, str(write_file(tmp_path / "one.toml", line.format(1))))
    rig = load_price_table(write_file(tmp_path / "two.toml", line.format("2.50"))).find("rig")
    assert rig.usd_per_hour == Decimal("2.50")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("groups = 3", "groups"),
        ("[[groups]]\ninstances = [{ type = 1, usd_per_hour = 2 }]", "type"),
        ("[[groups]]\ninstances = [{ type = 'x' }]", "usd_per_hour"),
        ("[[groups]]\ninstances = [{ type = 'x', usd_per_hour = 'much' }]", "usd_per_hour"),
        ("[[groups]]\ninstances = [{ type = 'x', usd_per_hour = -1 }]", "-1"),
        ("[[groups]]\ninstances = [{ type = 'x', usd_per_hour = nan }]", "NaN"),
        (
            "[[groups]]\ninstances = [{ type = 'x', usd_per_hour = 1e30 }]",
            "; give US dollars per hour, up to a million",
        ),
        (
            "[[groups]]\ninstances = [{ type = 'x', usd_per_hour = 1, vcpu_count = 0 }]",
            "has the size 0; give numbers above 0",
        ),
        ("[[groups]]\ninstances = [{ type = 'x', usd_per_hour = 1, gpu_count = -2 }]", "size -2;"),
        (
            "[[groups]]\ninstances = [{ type = 'x', usd_per_hour = 1, memory_gib = nan }]",
            "size nan",
        ),
        ("[[groups]]\nas_of = 'May'\ninstances = []", "as_of"),
        ("[[groups]]\nprices = []", "prices"),
        ("[[groups", "docs/cost.md"),
    ],
)
def test_errors_of_an_invalid_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        read_prices(write_file(tmp_path / "bad.toml", text), is_custom=True)
    assert "bad.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_errors_of_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Cannot read price file .*: No such file"):
        load_price_table(tmp_path / "none.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="it is not a text file"):
        read_prices(tmp_path / "binary", is_custom=True)


def test_the_table_is_next_to_the_code() -> None:
    assert SHIPPED.suffix == ".toml"
    assert PriceTable(read_prices(SHIPPED, is_custom=False)).offers == OFFERS
