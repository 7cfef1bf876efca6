"""Which price a run is reckoned at, and where that price is from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

import msgspec

from stepscope.cost.job_cost import price, recorded_price
from stepscope.cost.prices import Offer, PriceTable, price_table
from stepscope.errors import UsageError
from stepscope.schema import NodeInfo, RunInfo

NO_PRICE = (
    "the price of a machine is not known: start the job with stepscope run --usd-per-hour or "
    "--instance-type, or give one of them to stepscope cost or compare"
)
TOLD = "as stepscope run --usd-per-hour was told"
ASKED = "as given to this command"


class PriceUsed(msgspec.Struct, frozen=True, kw_only=True):
    """What one machine costs an hour, and who says so."""

    usd_per_hour: float
    said: str
    """Where the price is from and of which day, to be shown beside what is made from it."""
    instance_type: str | None
    as_of: str | None
    """The day, as YYYY-MM-DD; null where nobody says."""
    source: str | None
    """An address; null for a price that somebody told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A price to reckon with."""

    usd_per_hour: Decimal
    used: PriceUsed
    offer: Offer | None
    """The machine in the table of prices; None for a price without a known type of machine."""
    table: PriceTable | None
    """Where other machines are to be found; None where nobody says what machine this is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a user says of the machines now, which wins over what was recorded."""

    usd_per_hour: str | None = None
    instance_type: str | None = None
    prices: Path | None = None
    """A file of the user's own."""


NOTHING_ASKED = Asked()


def price_of(
    info: RunInfo, nodes: Iterable[NodeInfo], asked: Asked = NOTHING_ASKED
) -> Priced | str:
    """The price to reckon a run at, or one sentence that says why there is none.

    In this order: what the user says now, what `stepscope run` was told, the type of machine that
    `stepscope run` was told, the one that the machines told themselves.

    Raises:
        UsageError: what the user says now is no price, or names a machine without one.
    """
    kinds = _instance_types(info, nodes)
    kind = asked.instance_type or (kinds[0] if len(kinds) == 1 else None)
    table = None
    if kind is not None or asked.prices is not None:
        try:
            table = price_table(asked.prices)
        except UsageError as error:
            if asked != NOTHING_ASKED:
                raise
            return str(error).rstrip(".")  # a view shall not fail for it
    offer = table.find(kind) if table is not None and kind is not None else None
    if asked.usd_per_hour is not None:
        return _told(_asked_price(asked.usd_per_hour), ASKED, kind, offer, table)
    if asked.instance_type is not None:
        if offer is None:
            raise UsageError(no_offer(asked.instance_type))
        return _from_table(offer, table)
    told = recorded_price(info)
    if told is not None:
        source = info.options.get("price_source")
        said = source if isinstance(source, str) else TOLD
        return _told(told, said, kind, offer, table)
    if len(kinds) > 1:
        return (
            f"the machines are of different types ({', '.join(kinds)}): give the mean price of "
            "one with --usd-per-hour"
        )
    if kind is None:
        return NO_PRICE
    return no_offer(kind) if offer is None else _from_table(offer, table)


def as_told(info: RunInfo, nodes: Iterable[NodeInfo], asked: Asked) -> RunInfo:
    """The run as if `stepscope run` had been told what the user says now: for what looks at several
    figures of a run, which then all have one price.

    Raises:
        UsageError: what the user says is no price, or names a machine without one.
    """
    found = price_of(info, nodes, asked)
    if asked == NOTHING_ASKED or isinstance(found, str):
        return info
    said = {"usd_per_hour": str(found.usd_per_hour), "price_source": found.used.said}
    return msgspec.structs.replace(info, options=info.options | said)


def no_offer(kind: str) -> str:
    """What is said of a type of machine that is in no table."""
    return (
        f"no price of {kind} is known: give --usd-per-hour, or name it in a price file of your own"
    )


def _instance_types(info: RunInfo, nodes: Iterable[NodeInfo]) -> list[str]:
    """Types of the machines of a run, each once: those that were told, else those found."""
    told = info.options.get("instance_type")
    if isinstance(told, str) and told:
        return [told]
    return sorted({node.instance_type for node in nodes if node.instance_type})


def _asked_price(text: str) -> Decimal:
    try:
        return price(text)
    except (ValueError, InvalidOperation):
        raise UsageError(
            f"{text!r} is no price: give dollars per hour such as 3.06, up to a million."
        ) from None


def _told(
    usd_per_hour: Decimal,
    said: str,
    kind: str | None,
    offer: Offer | None,
    table: PriceTable | None,
) -> Priced:
    used = PriceUsed(
        usd_per_hour=float(usd_per_hour), said=said, instance_type=kind, as_of=None, source=None
    )
    return Priced(usd_per_hour=usd_per_hour, used=used, offer=offer, table=table)


def _from_table(offer: Offer, table: PriceTable | None) -> Priced:
    used = PriceUsed(
        usd_per_hour=float(offer.usd_per_hour),
        said=offer.origin,
        instance_type=offer.type,
        as_of=None if offer.as_of is None else offer.as_of.isoformat(),
        source=offer.source or None,
    )
    return Priced(usd_per_hour=offer.usd_per_hour, used=used, offer=offer, table=table)
