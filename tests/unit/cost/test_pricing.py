"""Prices: published, of the user's own, of a run, and costs to the cent."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.cost.prices import (
    ENVIRONMENT,
    HOUR_NS,
    SHIPPED,
    JobCost,
    Offer,
    PriceTable,
    load_price_table,
    load_published_prices,
    parse_usd_per_hour,
    read_prices,
)
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
