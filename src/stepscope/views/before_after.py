"""Two runs as a table of what a change was worth: use, times, hours, dollars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import msgspec

from stepscope.analysis.statistics import mean_of_known
from stepscope.diagnosis import Signals, diagnose
from stepscope.diagnosis.cost import JobCost
from stepscope.diagnosis.epochs import Epochs, find_epochs
from stepscope.diagnosis.job_times import job_borders, machine_count
from stepscope.diagnosis.pricing import Priced, PriceUsed, price_of
from stepscope.diagnosis.usage import mean_p95, node_usage
from stepscope.quantities import digits, duration

HOUR_NS = 3600 * 10**9
Unit = Literal["ratio", "ns", "hours", "usd"]


class BeforeAfterRow(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of both runs; null where a run does not have it."""

    name: str
    unit: Unit
    before: float | None
    after: float | None
    text: str
    """As it is read: `40 % → 88 %`."""
    change_ratio: float | None
    """Of `before`; negative where there is less of it."""


class BeforeAfter(msgspec.Struct, frozen=True, kw_only=True):
    """The payload."""

    rows: list[BeforeAfterRow]
    epoch_count: float | None
    """Epochs that the full run was reckoned with; null where it is the run as it was recorded."""
    saved_hours: float | None
    """Of machines; negative where more were used."""
    saved_usd: float | None
    saving_ratio: float | None
    """Of the cost before; both from the costs as they are rounded to the cent."""
    speed_up: float | None
    """How many times as fast: by epochs, else by steps."""
    before_price: PriceUsed | None
    after_price: PriceUsed | None
    notes: list[str]
    """Why there are no dollars or no epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What the table is made of, of one run."""

    gpu_mean: float | None = None
    gpu_p95: float | None = None
    """Mean of the 95th percentiles of the GPUs."""
    cpu_mean: float | None = None
    cpu_p95: float | None = None
    """Mean of the 95th percentiles of the machines."""
    step_ns: float | None = None
    epoch_ns: float | None = None
    job_ns: int | None = None
    """Duration of the run."""
    instance_count: int = 0
    usd_per_hour: Decimal | None = None
    """Of one machine."""
    price: PriceUsed | None = None
    notes: Sequence[str] = ()


def side_of(signals: Signals) -> Side:
    """One run's figures. Means and percentiles of use are those of its training steps."""
    nodes = node_usage(signals)
    gpus = [level for node in nodes for level in node.gpus.values()]
    cpus = [node.cpu for node in nodes if node.cpu is not None]
    price = price_of(signals.reader.info, signals.nodes.values())
    passes = find_epochs(signals)
    begin_ns, end_ns = job_borders(signals)
    run = signals.reader.info.run_id
    return Side(
        gpu_mean=mean_of_known(level.mean for level in gpus),
        gpu_p95=mean_p95(gpus),
        cpu_mean=mean_of_known(level.mean for level in cpus),
        cpu_p95=mean_p95(cpus),
        step_ns=diagnose(signals).mean_step_ns,
        epoch_ns=passes.mean_ns if isinstance(passes, Epochs) else None,
        job_ns=end_ns - begin_ns,
        instance_count=machine_count(signals),
        usd_per_hour=price.usd_per_hour if isinstance(price, Priced) else None,
        price=price.used if isinstance(price, Priced) else None,
        notes=[f"{run}: {each}" for each in (price, passes) if isinstance(each, str)],
    )


def before_after(before: Side, after: Side, epochs: float | None = None) -> BeforeAfter:
    """The table of two runs.

    Args:
        before, after: the runs.
        epochs: the full run is so many epochs, at the time that one takes in each run; None for
            the runs as they were recorded.
    """
    ours, theirs = _full_ns(before, epochs), _full_ns(after, epochs)
    was, became = _cost(before, ours), _cost(after, theirs)
    hours = _hours(before, ours), _hours(after, theirs)
    rows = [
        _row("GPU utilisation", "ratio", before.gpu_mean, after.gpu_mean),
        _row("GPU utilisation, p95", "ratio", before.gpu_p95, after.gpu_p95),
        _row("CPU utilisation", "ratio", before.cpu_mean, after.cpu_mean),
        _row("CPU utilisation, p95", "ratio", before.cpu_p95, after.cpu_p95),
        _row("step", "ns", before.step_ns, after.step_ns),
        _row("epoch", "ns", before.epoch_ns, after.epoch_ns),
        _row("run" if epochs is None else f"run of {epochs:g} epochs", "ns", ours, theirs),
        _row("instance-hours", "hours", *hours),
        _row(
            "cost",
            "usd",
            None if was is None else float(was.usd),
            None if became is None else float(became.usd),
        ),
    ]
    return BeforeAfter(
        rows=[row for row in rows if row.before is not None or row.after is not None],
        epoch_count=epochs,
        saved_hours=hours[0] - hours[1] if hours[0] is not None and hours[1] is not None else None,
        saved_usd=float(was.usd - became.usd) if was is not None and became is not None else None,
        saving_ratio=became.saving_ratio(was) if was is not None and became is not None else None,
        speed_up=_speed_up(before, after),
        before_price=before.price,
        after_price=after.price,
        notes=[*before.notes, *after.notes],
    )


def _full_ns(side: Side, epochs: float | None) -> int | None:
    if epochs is None:
        return side.job_ns
    return None if side.epoch_ns is None else round(epochs * side.epoch_ns)


def _hours(side: Side, duration_ns: int | None) -> float | None:
    if duration_ns is None or not side.instance_count:
        return None
    return side.instance_count * duration_ns / HOUR_NS


def _cost(side: Side, duration_ns: int | None) -> JobCost | None:
    if side.usd_per_hour is None or duration_ns is None or not side.instance_count:
        return None
    return JobCost(
        instance_count=side.instance_count,
        usd_per_hour=side.usd_per_hour,
        duration_ns=duration_ns,
    )


def _speed_up(before: Side, after: Side) -> float | None:
    for one, two in ((before.epoch_ns, after.epoch_ns), (before.step_ns, after.step_ns)):
        if one and two:
            return one / two
    return None


def _row(name: str, unit: Unit, before: float | None, after: float | None) -> BeforeAfterRow:
    change = (after - before) / before if before and after is not None else None
    return BeforeAfterRow(
        name=name,
        unit=unit,
        before=before,
        after=after,
        text=f"{_text(unit, before)} → {_text(unit, after)}",
        change_ratio=change,
    )


def _text(unit: Unit, value: float | None) -> str:
    if value is None:
        return "n/a"
    if unit == "ratio":
        return f"{digits(100 * value)} %"
    if unit == "usd":
        return f"${value:,.2f}"
    if unit == "hours":
        return f"{digits(value)} h"
    return duration(value)
