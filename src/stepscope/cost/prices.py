"""Prices of machines: a table of published prices, and custom price files; cost of a job.

The table is `prices.toml` next to this file; docs/cost.md describes its format, which custom files
share. Prices are on demand, in US dollars per hour of one machine, as of the date in the file;
nothing is fetched.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from functools import cache, lru_cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stepscope import errors

SHIPPED = Path(__file__).with_name("prices.toml")
ENVIRONMENT = "STEPSCOPE_PRICES"
NO_PRICE = (
    "machine price not known; set --usd-per-hour or --instance-type of `stepscope cost RUN`, "
    "of compare or of run"
)
"""Environment variable with the path of a custom price file."""


class _Instance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine type in a file."""

    type: str
    usd_per_hour: Decimal
    gpu: str | None = None
    gpu_count: int = 0
    gpu_memory_gib: float | None = None
    """Memory of one GPU."""
    vcpu_count: int | None = None
    memory_gib: float | None = None


class _Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Machines of one provider and region with one source and date of their prices."""

    provider: str = ""
    region: str = ""
    as_of: date | None = None
    source: str = ""
    sizes: str = ""
    """Source of the GPU and core counts and of the memory, if not `source`."""
    instances: list[_Instance]


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    groups: list[_Group]


class Offer(_Instance, frozen=True, kw_only=True):
    """A machine type at a price."""

    provider: str
    region: str
    as_of: date | None
    """None where a custom file has no date."""
    source: str
    """URL; empty where a custom file has no source."""
    sizes: str
    is_custom: bool
    """From a custom price file."""

    @property
    def origin(self) -> str:
        """Source and date of the price, shown next to figures that use it."""
        location = " ".join(part for part in (self.provider, self.region) if part)
        parts = [f"price of {self.type}" + (f" ({location}, on demand)" if location else "")]
        if self.is_custom:
            parts.append("from your own price file")
        if self.as_of is not None:
            parts.append(f"as of {self.as_of.isoformat()}")
        return ", ".join(parts)


class PriceTable:
    """Offers: custom prices before published ones, then newest first."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self.offers = sorted(
            offers, key=lambda offer: (not offer.is_custom, -(offer.as_of or date.min).toordinal())
        )

    def find(self, instance_type: str) -> Offer | None:
        """Find the offer of a machine type: the custom one, else the newest; None where there is
        none."""
        key = instance_type.strip().lower()
        return next((offer for offer in self.offers if offer.type.lower() == key), None)

    def find_alternatives(self, offer: Offer) -> list[Offer]:
        """Find the newest offer of each machine type of the same provider, region and GPU model."""
        alternatives: dict[str, Offer] = {}
        for candidate in self.offers:
            if _get_family(candidate) == _get_family(offer):
                alternatives.setdefault(candidate.type, candidate)
        return list(alternatives.values())


def explain_missing_offer(instance_type: str, table: PriceTable) -> str:
    """Explain that a machine type is not in the table."""
    similar = errors.name_similar(instance_type, (offer.type for offer in table.offers)).strip()
    return (
        f"no price found for {instance_type}{f' ({similar})' if similar else ''}; set "
        "--usd-per-hour or add it to a custom price file"
    )


def _get_family(offer: Offer) -> tuple[str, str, str | None, float | None]:
    return (offer.provider, offer.region, offer.gpu, offer.gpu_memory_gib)


def read_prices(path: Path, *, is_custom: bool) -> list[Offer]:
    """Read the offers of a price file.

    Args:
        path: a TOML file.
        is_custom: the file is a user's. Where it gives only the price of a type, the size is taken
            from the published table.

    Raises:
        UsageError: the file cannot be read, or is not a price file.
    """
    import tomllib  # most commands need the names of this module alone

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise errors.UsageError(f"Cannot read price file {path}: {reason}.") from None
    try:
        file = msgspec.convert(tomllib.loads(text, parse_float=Decimal), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise errors.UsageError(
            f"Price file {path} is not in the format described in docs/cost.md: {error}."
        ) from None
    offers = [
        _make_offer(group, instance, is_custom=is_custom)
        for group in file.groups
        for instance in group.instances
    ]
    for offer in offers:
        _check_offer(path, offer)
    return offers


def _check_offer(path: Path, offer: Offer) -> None:
    """Check price and sizes: a machine with zero cores would be recommended for any job."""
    try:
        parse_usd_per_hour(offer.usd_per_hour)
    except ValueError:
        raise errors.UsageError(
            f"Price file {path}: {offer.type} has the price {offer.usd_per_hour}; give US dollars "
            "per hour, up to a million."
        ) from None
    sizes = (offer.gpu_memory_gib, offer.vcpu_count, offer.memory_gib)
    invalid = [size for size in sizes if size is not None and not 0 < size < math.inf]
    if invalid or offer.gpu_count < 0:
        raise errors.UsageError(
            f"Price file {path}: {offer.type} has the size "
            f"{invalid[0] if invalid else offer.gpu_count}; give numbers above 0."
        )


def load_price_table(custom_path: Path | None = None) -> PriceTable:
    """Load the published prices and those of a custom price file.

    Args:
        custom_path: the custom file; by default that of the environment variable
            `STEPSCOPE_PRICES`.

    Raises:
        UsageError: the file cannot be read, or is not a price file.
    """
    default_path = os.environ.get(ENVIRONMENT)
    path = custom_path if custom_path is not None else Path(default_path) if default_path else None
    if path is None:
        return load_published_prices()
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError:
        changed_ns = 0  # reading the file reports the error
    return _load_custom_table(path, changed_ns)


@lru_cache(maxsize=4)
def _load_custom_table(path: Path, changed_ns: int) -> PriceTable:
    """Load a custom table; cached, because a list of jobs loads it for each of them."""
    del changed_ns
    return PriceTable([*read_prices(path, is_custom=True), *load_published_prices().offers])


@cache
def load_published_prices() -> PriceTable:
    """Load the table that ships with stepscope."""
    return PriceTable(read_prices(SHIPPED, is_custom=False))


def _make_offer(group: _Group, instance: _Instance, *, is_custom: bool) -> Offer:
    has_size = instance.gpu is not None or instance.gpu_count or instance.vcpu_count is not None
    published = None
    if is_custom and not has_size:
        published = load_published_prices().find(instance.type)
    size = instance if published is None else published
    return Offer(
        type=instance.type,
        usd_per_hour=instance.usd_per_hour,
        provider=group.provider or (published.provider if published else ""),
        region=group.region or (published.region if published else ""),
        as_of=group.as_of,
        source=group.source,
        sizes=group.sizes or group.source,
        is_custom=is_custom,
        gpu=size.gpu,
        gpu_count=size.gpu_count,
        gpu_memory_gib=size.gpu_memory_gib,
        vcpu_count=size.vcpu_count,
        memory_gib=size.memory_gib,
    )


MAX_USD_PER_HOUR = 10**6
"""Maximum price of a machine; sums of such prices stay exact to the cent."""
HOUR_NS = 3600 * 10**9
_CENT = Decimal("0.01")


class JobCost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of one job.

    Prices and sums are decimal numbers of US dollars, so rounding to the cent is exact.
    """

    instance_count: int
    usd_per_hour: Decimal
    """Price of one instance."""
    duration_ns: int

    @property
    def exact_usd(self) -> Decimal:
        """instances x price x duration, not rounded."""
        return self.instance_count * self.usd_per_hour * self.duration_ns / Decimal(HOUR_NS)

    @property
    def usd(self) -> Decimal:
        """Cost rounded to the cent, half a cent up, as it is shown."""
        return self.exact_usd.quantize(_CENT, ROUND_HALF_UP)

    @property
    def instance_hours(self) -> float:
        """instances x duration in hours."""
        return self.instance_count * self.duration_ns / HOUR_NS

    def for_duration(self, duration_ns: float) -> JobCost:
        """Return the cost of the same instances for another duration."""
        return replace(self, duration_ns=round(duration_ns))

    def compute_usd(self, duration_ns: float | None) -> float | None:
        """Compute the cost of the same instances for another duration, not rounded; None where the
        duration is not known."""
        return None if duration_ns is None else float(self.for_duration(duration_ns).exact_usd)

    def saving_ratio(self, before: JobCost) -> float | None:
        """Compute the share of another job's cost that this one saves, negative when it costs more.

        Computed from the rounded costs, so that it agrees with the two figures shown next to it.
        None when the other job cost nothing.
        """
        return float(1 - self.usd / before.usd) if before.usd else None


def parse_usd_per_hour(value: float | str | Decimal) -> Decimal:
    """Parse an hourly price.

    Raises:
        ValueError, decimal.InvalidOperation: it is not a number between 0 and `MAX_USD_PER_HOUR`.
    """
    usd_per_hour = Decimal(str(value))
    if not usd_per_hour.is_finite() or not 0 <= usd_per_hour <= MAX_USD_PER_HOUR:
        raise ValueError(f"{value!r} is not a price")
    return usd_per_hour
