"""Price of a run's machines: its selection, its origin, and the cost of the job at that price.

`price_job` makes the priced figures of every surface: the commands cost and compare, the views
overview and jobs, the profiling report, and `stepscope.open(RUN)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated

import msgspec

from stepscope import diagnosis, errors, schema
from stepscope.cost.prices import (
    NO_PRICE,
    JobCost,
    Offer,
    PriceTable,
    explain_missing_offer,
    load_price_table,
    parse_usd_per_hour,
)

NO_MACHINES = "number of machines not known; the job was neither monitored nor imported with nodes"
SET_BY_RUN = "set with --usd-per-hour when the job was started"
SET_BY_COMMAND = "set on the command line"


class PriceUsed(msgspec.Struct, frozen=True, kw_only=True):
    """Hourly price of one machine and its origin."""

    usd_per_hour: Annotated[float, schema.field_label("price per hour", unit="usd")]
    origin: str = msgspec.field(name="said")
    """Source and date of the price, shown next to figures that use it."""
    instance_type: str | None
    as_of: str | None
    """Date of the price, as YYYY-MM-DD; null where not known."""
    source: str | None
    """URL of the source; null for a price set by a user."""


class MachinePrice(msgspec.Struct, frozen=True, kw_only=True):
    """Selected price of a run's machines."""

    usd_per_hour: Decimal
    used: PriceUsed
    offer: Offer | None
    """The machine in the price table; None where its type is not known."""
    table: PriceTable | None
    """Table with other machines; None where the machine's type is not known."""


class PricedJob(msgspec.Struct, frozen=True, kw_only=True):
    """Price of a job's machines and the cost of the job."""

    price: MachinePrice
    cost: JobCost

    @property
    def job_usd(self) -> float:
        """Cost of the job, rounded to the cent."""
        return float(self.cost.usd)


class VerdictCost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a mean step, and the parts that a verdict attributes or predicts to save."""

    step_usd: float
    suspect_usd: float
    """The suspect's share; with its part of the evaluation where evaluation is the bottleneck."""
    fix_savings_usd: list[float | None]
    """Predicted saving of each fix of the verdict, in its order; None without a prediction."""


class PriceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Price options of a command; they take precedence over the recorded ones."""

    usd_per_hour: str | None = None
    instance_type: str | None = None
    prices: Path | None = None
    """A custom price file."""


RECORDED_PRICE = PriceRequest()
"""No options: the price recorded with the run."""


def price_job(
    info: schema.RunInfo,
    nodes: Iterable[schema.NodeInfo],
    *,
    instance_count: int,
    duration_ns: int,
    request: PriceRequest = RECORDED_PRICE,
) -> PricedJob | str:
    """Price a job; one sentence with the reason where there is no price.

    Raises:
        UsageError: a requested price is not valid, or a requested machine has no price.
    """
    if instance_count == 0:
        return NO_MACHINES
    price = select_price(info, nodes, request)
    if isinstance(price, str):
        return price
    cost = JobCost(
        instance_count=instance_count, usd_per_hour=price.usd_per_hour, duration_ns=duration_ns
    )
    return PricedJob(price=price, cost=cost)


def price_verdict(verdict: diagnosis.Verdict, cost: JobCost) -> VerdictCost | None:
    """Price the mean step of a verdict, its bottleneck and its fixes; None without steps."""
    step_ns = verdict.mean_step_ns
    step_usd = cost.compute_usd(step_ns)
    if step_ns is None or step_usd is None:
        return None

    def price_saving(prediction: diagnosis.Prediction | None) -> float | None:
        return None if prediction is None else prediction.saved_ns / step_ns * step_usd

    return VerdictCost(
        step_usd=step_usd,
        suspect_usd=(verdict.suspect_step_ns or 0.0) / step_ns * step_usd,
        fix_savings_usd=[price_saving(fix.prediction) for fix in verdict.fixes],
    )


def select_price(
    info: schema.RunInfo, nodes: Iterable[schema.NodeInfo], request: PriceRequest = RECORDED_PRICE
) -> MachinePrice | str:
    """Select the price of a run's machines; one sentence with the reason where there is none.

    In this order: the options of the command, the price recorded by `stepscope run`, the machine
    type recorded by `stepscope run`, the type that the machines report.

    Raises:
        UsageError: a requested price is not valid, or a requested machine has no price.
    """
    types = list_instance_types(info, nodes)
    instance_type = request.instance_type or (types[0] if len(types) == 1 else None)
    table = None
    if instance_type is not None or request.prices is not None:
        try:
            table = load_price_table(request.prices)
        except errors.UsageError as error:
            if request != RECORDED_PRICE:
                raise
            return str(error).rstrip(".")  # a broken price file must not fail a view
    offer = None
    if table is not None and instance_type is not None:
        offer = table.find(instance_type)
    if request.usd_per_hour is not None:
        usd_per_hour = _parse_request(request.usd_per_hour)
        return _set_price(usd_per_hour, SET_BY_COMMAND, instance_type, offer, table)
    if request.instance_type is not None:
        if offer is None:
            raise errors.UsageError(
                explain_missing_offer(request.instance_type, load_price_table(request.prices))
            )
        return _convert_offer(offer, table)
    recorded = _read_recorded_price(info)
    if recorded is not None:
        source = info.options.get("price_source")
        origin = source if isinstance(source, str) else SET_BY_RUN
        return _set_price(recorded, origin, instance_type, offer, table)
    if len(types) > 1:
        return (
            f"machines have different types ({', '.join(types)}); set their mean price with "
            "--usd-per-hour"
        )
    if instance_type is None:
        return NO_PRICE
    if offer is None:
        return explain_missing_offer(instance_type, load_price_table(request.prices))
    return _convert_offer(offer, table)


def apply_price(
    info: schema.RunInfo, nodes: Iterable[schema.NodeInfo], request: PriceRequest
) -> schema.RunInfo:
    """Return the run's info with the requested price recorded, so that all figures of the run use
    the same price.

    Raises:
        UsageError: a requested price is not valid, or a requested machine has no price.
    """
    price = select_price(info, nodes, request)
    if request == RECORDED_PRICE or isinstance(price, str):
        return info
    recorded = {"usd_per_hour": str(price.usd_per_hour), "price_source": price.used.origin}
    return msgspec.structs.replace(info, options=info.options | recorded)


def list_instance_types(info: schema.RunInfo, nodes: Iterable[schema.NodeInfo]) -> list[str]:
    """List the distinct machine types of a run: the recorded option, else the reported types."""
    recorded = info.options.get("instance_type")
    if isinstance(recorded, str) and recorded:
        return [recorded]
    return sorted({node.instance_type for node in nodes if node.instance_type})


def _parse_request(text: str) -> Decimal:
    try:
        return parse_usd_per_hour(text)
    except (ValueError, InvalidOperation):
        raise errors.UsageError(
            f"{text!r} is not a price; give US dollars per hour, such as 3.06, up to a million."
        ) from None


def _read_recorded_price(info: schema.RunInfo) -> Decimal | None:
    """Read the hourly price that `stepscope run` recorded; None where there is no valid one."""
    recorded = info.options.get("usd_per_hour")
    try:
        return None if recorded is None else parse_usd_per_hour(recorded)
    except (ValueError, InvalidOperation):  # the run may come from an untrusted source
        return None


def _set_price(
    usd_per_hour: Decimal,
    origin: str,
    instance_type: str | None,
    offer: Offer | None,
    table: PriceTable | None,
) -> MachinePrice:
    used = PriceUsed(
        usd_per_hour=float(usd_per_hour),
        origin=origin,
        instance_type=instance_type,
        as_of=None,
        source=None,
    )
    return MachinePrice(usd_per_hour=usd_per_hour, used=used, offer=offer, table=table)


def _convert_offer(offer: Offer, table: PriceTable | None) -> MachinePrice:
    used = PriceUsed(
        usd_per_hour=float(offer.usd_per_hour),
        origin=offer.origin,
        instance_type=offer.type,
        as_of=None if offer.as_of is None else offer.as_of.isoformat(),
        source=offer.source or None,
    )
    return MachinePrice(usd_per_hour=offer.usd_per_hour, used=used, offer=offer, table=table)
