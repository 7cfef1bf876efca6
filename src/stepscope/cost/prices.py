"""What machines cost: a table of published prices, and files of a user's own.

The table is `prices.toml`, beside this file; docs/cost.md describes its format, which is that of
users' files too. Prices are on demand, in US dollars per hour of one machine, as they stood on
the day that the file states; nothing is fetched.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from stepscope.cost.job_cost import price
from stepscope.errors import UsageError

SHIPPED = Path(__file__).with_name("prices.toml")
ENVIRONMENT = "STEPSCOPE_PRICES"
"""Names a file of the user's own."""


class _Instance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a file."""

    type: str
    usd_per_hour: Decimal
    gpu: str | None = None
    gpu_count: int = 0
    gpu_memory_gib: float | None = None
    """Of one GPU."""
    vcpu_count: int | None = None
    memory_gib: float | None = None


class _Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Machines of one provider and region whose prices have one source and one date."""

    provider: str = ""
    region: str = ""
    as_of: date | None = None
    source: str = ""
    sizes: str = ""
    """Where the numbers of GPUs and cores and the memory are from, if not from `source`."""
    instances: list[_Instance]


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    groups: list[_Group]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A type of machine at a price."""

    type: str
    usd_per_hour: Decimal
    provider: str
    region: str
    as_of: date | None
    """None where a user's file does not say."""
    source: str
    """An address; empty where a user's file does not say."""
    sizes: str
    own: bool
    """From a file of the user's."""
    gpu: str | None
    gpu_count: int
    gpu_memory_gib: float | None
    """Of one GPU."""
    vcpu_count: int | None
    memory_gib: float | None

    @property
    def origin(self) -> str:
        """Where the price is from, as it is said beside a figure that is made from it."""
        where = " ".join(part for part in (self.provider, self.region) if part)
        parts = [f"price of {self.type}" + (f" ({where}, on demand)" if where else "")]
        if self.own:
            parts.append("from your own price file")
        if self.as_of is not None:
            parts.append(f"as of {self.as_of.isoformat()}")
        return ", ".join(parts)


class PriceTable:
    """Offers, a user's own before the published ones, then the newest first."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self.offers = sorted(
            offers, key=lambda offer: (not offer.own, -(offer.as_of or date.min).toordinal())
        )

    def find(self, instance_type: str) -> Offer | None:
        """The offer to reckon with for a type of machine: the user's own, else the newest; None
        when there is none."""
        wanted = instance_type.strip().lower()
        return next((each for each in self.offers if each.type.lower() == wanted), None)

    def alternatives(self, offer: Offer) -> list[Offer]:
        """The newest offers of other machines that cost money in the same place: prices of one
        provider and region, with the same model of GPU."""
        found: dict[str, Offer] = {}
        for each in self.offers:
            alike = (each.provider, each.region, each.gpu) == (
                offer.provider,
                offer.region,
                offer.gpu,
            )
            if alike and each.gpu_memory_gib == offer.gpu_memory_gib:
                found.setdefault(each.type, each)
        return list(found.values())


def read_prices(path: Path, *, own: bool) -> list[Offer]:
    """The offers of a file.

    Args:
        path: a TOML file.
        own: whether it is the user's. Where such a file says no more of a type than its price,
            the rest is as published.

    Raises:
        UsageError: it cannot be read, or is no file of prices.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"The price file {path} cannot be read: {why}.") from None
    try:
        file = msgspec.convert(tomllib.loads(text, parse_float=Decimal), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(
            f"The price file {path} is not in the format of docs/cost.md: {error}."
        ) from None
    offers = [_offer(group, each, own=own) for group in file.groups for each in group.instances]
    for offer in offers:
        _check(path, offer)
    return offers


def _check(path: Path, offer: Offer) -> None:
    """Find what is no price or no size: a machine without cores would hold any job."""
    try:
        price(offer.usd_per_hour)
    except ValueError:
        raise UsageError(
            f"The price file {path} gives {offer.type} the price {offer.usd_per_hour}; give "
            "US dollars per hour, up to a million."
        ) from None
    sizes = (offer.gpu_memory_gib, offer.vcpu_count, offer.memory_gib)
    wrong = [each for each in sizes if each is not None and not 0 < each < math.inf]
    if wrong or offer.gpu_count < 0:
        raise UsageError(
            f"The price file {path} gives {offer.type} the size "
            f"{wrong[0] if wrong else offer.gpu_count}; give numbers above 0."
        )


def price_table(own: Path | None = None) -> PriceTable:
    """The published prices, and those of a file of the user's.

    Args:
        own: that file; by default the one that the environment variable `STEPSCOPE_PRICES` names.

    Raises:
        UsageError: it cannot be read, or is no file of prices.
    """
    named = os.environ.get(ENVIRONMENT)
    path = own if own is not None else Path(named) if named else None
    if path is None:
        return published_prices()
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError:
        changed_ns = 0  # reading it says what is wrong
    return _own_table(path, changed_ns)


@lru_cache(maxsize=4)
def _own_table(path: Path, changed_ns: int) -> PriceTable:
    """A list of jobs asks for each of them."""
    del changed_ns
    return PriceTable([*read_prices(path, own=True), *published_prices().offers])


@cache
def published_prices() -> PriceTable:
    """The table that stepscope ships."""
    return PriceTable(read_prices(SHIPPED, own=False))


def _offer(group: _Group, instance: _Instance, *, own: bool) -> Offer:
    said = instance
    bare = said.gpu is None and not said.gpu_count and said.vcpu_count is None
    known = published_prices().find(said.type) if own and bare else None
    size = said if known is None else known
    return Offer(
        type=said.type,
        usd_per_hour=said.usd_per_hour,
        provider=group.provider or (known.provider if known else ""),
        region=group.region or (known.region if known else ""),
        as_of=group.as_of,
        source=group.source,
        sizes=group.sizes or group.source,
        own=own,
        gpu=size.gpu,
        gpu_count=size.gpu_count,
        gpu_memory_gib=size.gpu_memory_gib,
        vcpu_count=size.vcpu_count,
        memory_gib=size.memory_gib,
    )
