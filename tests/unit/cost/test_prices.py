"""The published table of prices, and files of a user's own."""

from __future__ import annotations

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
    price_table,
    published_prices,
    read_prices,
)
from stepscope.errors import UsageError

OFFERS = published_prices().offers


def names(offers: list[Offer]) -> list[str]:
    return sorted(each.type for each in offers)


@pytest.mark.parametrize("offer", OFFERS, ids=lambda each: f"{each.type} {each.as_of}")
def test_every_published_price_is_complete_and_says_where_it_is_from(offer: Offer) -> None:
    assert offer.type.strip() == offer.type != ""
    assert offer.usd_per_hour > 0
    assert offer.provider
    assert offer.region
    assert offer.as_of is not None
    assert date(2017, 1, 1) < offer.as_of <= date(2026, 11, 22)
    for address in (offer.source, offer.sizes):
        assert address.startswith("https://")
        assert " " not in address
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
    assert not offer.own


def test_no_price_stands_twice() -> None:
    counts = Counter((each.type, each.provider, each.region, each.as_of) for each in OFFERS)
    assert [key for key, count in counts.items() if count > 1] == []


def test_a_type_has_one_size_at_every_price() -> None:
    sizes: dict[str, set[object]] = {}
    for each in OFFERS:
        size = (each.gpu, each.gpu_count, each.gpu_memory_gib, each.vcpu_count, each.memory_gib)
        sizes.setdefault(each.type, set()).add(size)
    assert [name for name, found in sizes.items() if len(found) > 1] == []


def test_twice_the_machine_is_not_cheaper() -> None:
    """A slip in a figure would show: of one family, more GPUs and cores never cost less."""
    for one in OFFERS:
        for two in OFFERS:
            alike = (one.provider, one.region, one.as_of, one.gpu, one.type.split(".")[0]) == (
                two.provider,
                two.region,
                two.as_of,
                two.gpu,
                two.type.split(".")[0],
            )
            assert one.vcpu_count is not None
            assert two.vcpu_count is not None
            if alike and one.gpu_count < two.gpu_count and one.vcpu_count < two.vcpu_count:
                assert one.usd_per_hour < two.usd_per_hour, (one.type, two.type)


def test_the_published_cases_have_their_prices() -> None:
    table = published_prices()
    for kind, usd in (("ml.p3.8xlarge", "14.688"), ("ml.p3.2xlarge", "3.825")):
        offer = table.find(kind)
        assert offer is not None
        assert offer.usd_per_hour == Decimal(usd)
        assert (offer.region, offer.as_of) == ("us-west-2", date(2020, 12, 10))
    before = [each for each in OFFERS if each.type == "p4d.24xlarge"]
    assert [round(each.usd_per_hour, 2) for each in before] == [Decimal("21.96"), Decimal("32.77")]


def test_the_newest_price_is_taken() -> None:
    found = published_prices().find("P4D.24xlarge ")
    assert found is not None
    assert found.as_of == max(each.as_of for each in OFFERS if each.type == "p4d.24xlarge")
    assert "as of 2026-01-19" in found.origin
    assert published_prices().find("p99.nano") is None


def test_alternatives_are_of_the_same_place_and_gpu() -> None:
    table = published_prices()
    offer = table.find("p3.8xlarge")
    assert offer is not None
    # p3dn has twice the memory per GPU, ml.p3 is another region and service.
    assert names(table.alternatives(offer)) == ["p3.16xlarge", "p3.2xlarge", "p3.8xlarge"]


def own(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_price_of_ones_own_wins_and_keeps_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own(
        tmp_path / "mine.toml",
        "[[groups]]\n"
        "as_of = 2019-05-01\n"
        'instances = [{ type = "p3.2xlarge", usd_per_hour = 1.19 }]\n'
        "[[groups]]\n"
        'provider = "basement"\n'
        'instances = [{ type = "rig", usd_per_hour = 0.4, gpu = "RTX 4090", gpu_count = 2 }]\n',
    )
    monkeypatch.setenv(ENVIRONMENT, str(file))
    table = price_table()
    mine = table.find("p3.2xlarge")
    assert mine is not None
    assert (mine.usd_per_hour, mine.own) == (Decimal("1.19"), True)  # older, but one's own
    assert (mine.gpu, mine.gpu_count, mine.vcpu_count) == ("V100", 1, 8)
    assert mine.origin == (
        "price of p3.2xlarge (AWS us-east-1, on demand), from your own price file, as of 2019-05-01"
    )
    assert names(table.alternatives(mine)) == ["p3.16xlarge", "p3.2xlarge", "p3.8xlarge"]
    rig = table.find("rig")
    assert rig is not None
    assert (rig.gpu_count, rig.vcpu_count, rig.as_of) == (2, None, None)
    assert table.find("p3.8xlarge") == published_prices().find("p3.8xlarge")


def test_an_option_wins_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = '[[groups]]\ninstances = [{{ type = "rig", usd_per_hour = {} }}]\n'
    monkeypatch.setenv(ENVIRONMENT, str(own(tmp_path / "one.toml", line.format(1))))
    found = price_table(own(tmp_path / "two.toml", line.format("2.50"))).find("rig")
    assert found is not None
    assert found.usd_per_hour == Decimal("2.50")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("groups = 3", "groups"),
        ("[[groups]]\ninstances = [{ type = 1, usd_per_hour = 2 }]", "type"),
        ("[[groups]]\ninstances = [{ type = 'x' }]", "usd_per_hour"),
        ("[[groups]]\ninstances = [{ type = 'x', usd_per_hour = 'much' }]", "usd_per_hour"),
        ("[[groups]]\ninstances = [{ type = 'x', usd_per_hour = -1 }]", "-1"),
        ("[[groups]]\ninstances = [{ type = 'x', usd_per_hour = nan }]", "NaN"),
        ("[[groups]]\ninstances = [{ type = 'x', usd_per_hour = 1e30 }]", "up to a million"),
        ("[[groups]]\ninstances = [{ type = 'x', usd_per_hour = 1, vcpu_count = 0 }]", "size 0;"),
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
def test_a_bad_file_gets_a_sentence(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as error:
        read_prices(own(tmp_path / "bad.toml", text), own=True)
    assert "bad.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        price_table(tmp_path / "none.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="it is no text"):
        read_prices(tmp_path / "binary", own=True)


def test_the_table_is_beside_the_code() -> None:
    assert SHIPPED.suffix == ".toml"
    assert PriceTable(read_prices(SHIPPED, own=False)).offers == OFFERS
