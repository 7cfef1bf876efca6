"""Two runs as a table of what a change was worth: use, times, hours, dollars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

import msgspec

from stepscope.analysis import average_present
from stepscope.comparison.workload_contract import terms_of
from stepscope.cost import (
    FEWEST_SAMPLES,
    JobCost,
    Priced,
    PriceUsed,
    mean_p95,
    node_usage,
    price_of,
)
from stepscope.diagnosis import diagnose
from stepscope.quantities import duration, number
from stepscope.run import Epochs, Run, find_epochs, job_borders, machine_count

HOUR_NS = 3600 * 10**9
Unit = Literal["ratio", "ns", "hours", "usd"]
Pace = Literal["epoch", "step"]
OTHER_BATCH = "the batch is not the same in both runs: a step says nothing of how fast they are"
FEW_SAMPLES = "a 95th percentile takes {least} samples; of use it has {count}"
NO_FULL_RUN = "a run of {epochs:g} epochs: how long an epoch takes is known of {of} run"
OTHER_TIMES = "utilisation is that {before} in the first run and that {after} in the second"
WHILE_TRAINING, OF_ALL = "while training", "of the whole run"


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
    change_text: str | None
    """As it is read: percentage points of what is a ratio itself, else per cent of `before`."""


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
    """How many times as fast; null where neither epochs nor steps can be compared."""
    speed_up_by: Pace | None
    """What was timed for that. An epoch includes what is evaluated or saved in it; a step does
    not, and counts only where the batch is the same."""
    before_price: PriceUsed | None
    after_price: PriceUsed | None
    notes: list[str]
    """Why there are no dollars, epochs, percentiles or speed-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What the table is made of, of one run."""

    name: str = ""
    gpu_mean: float | None = None
    gpu_p95: float | None = None
    """Mean of the 95th percentiles of the GPUs."""
    cpu_mean: float | None = None
    cpu_p95: float | None = None
    """Mean of the 95th percentiles of the machines."""
    trained: bool = True
    """Use is that of training; else of all the time, where no step was seen."""
    batch: Mapping[str, str] = field(default_factory=dict)
    """What is known of the batch, by name."""
    step_ns: float | None = None
    epoch_ns: float | None = None
    job_ns: int | None = None
    """Duration of the run."""
    instance_count: int = 0
    usd_per_hour: Decimal | None = None
    """Of one machine."""
    price: PriceUsed | None = None
    notes: Sequence[str] = ()


def side_of(run: Run) -> Side:
    """One run's figures."""
    nodes = node_usage(run)
    gpus = [level for node in nodes for level in node.gpus.values()]
    cpus = [node.cpu for node in nodes if node.cpu is not None]
    price = price_of(run.reader.info, run.nodes.values())
    passes = find_epochs(run)
    begin_ns, end_ns = job_borders(run)
    notes = [each for each in (price, passes) if isinstance(each, str)]
    fewest = min((level.count for level in (*gpus, *cpus)), default=FEWEST_SAMPLES)
    if fewest < FEWEST_SAMPLES:
        notes.append(FEW_SAMPLES.format(count=fewest, least=FEWEST_SAMPLES))
    return Side(
        name=run.reader.info.run_id,
        gpu_mean=average_present(level.mean for level in gpus),
        gpu_p95=mean_p95(gpus),
        cpu_mean=average_present(level.mean for level in cpus),
        cpu_p95=mean_p95(cpus),
        trained=bool(run.ranks),
        batch=terms_of(run)["batch"],
        step_ns=diagnose(run).mean_step_ns,
        epoch_ns=passes.mean_ns if isinstance(passes, Epochs) else None,
        job_ns=end_ns - begin_ns,
        instance_count=machine_count(run),
        usd_per_hour=price.usd_per_hour if isinstance(price, Priced) else None,
        price=price.used if isinstance(price, Priced) else None,
        notes=notes,
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
    speed_up, by = _speed_up(before, after)
    when = f" {_when(before)}" if before.trained == after.trained else ""
    rows = [
        _row(f"GPU utilisation{when}", "ratio", before.gpu_mean, after.gpu_mean),
        _row(f"GPU utilisation{when}, p95", "ratio", before.gpu_p95, after.gpu_p95),
        _row(f"CPU utilisation{when}", "ratio", before.cpu_mean, after.cpu_mean),
        _row(f"CPU utilisation{when}, p95", "ratio", before.cpu_p95, after.cpu_p95),
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
        speed_up=speed_up,
        speed_up_by=by,
        before_price=before.price,
        after_price=after.price,
        notes=[*_of_runs(before, after), *_notes(before, after, epochs)],
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


def _when(side: Side) -> str:
    """Of which time use is: it is low while a job starts, and that is not the step's fault."""
    return WHILE_TRAINING if side.trained else OF_ALL


def _speed_up(before: Side, after: Side) -> tuple[float, Pace] | tuple[None, None]:
    if before.epoch_ns and after.epoch_ns:
        return before.epoch_ns / after.epoch_ns, "epoch"
    if before.step_ns and after.step_ns and not _other_batch(before, after):
        return before.step_ns / after.step_ns, "step"
    return None, None


def _other_batch(before: Side, after: Side) -> bool:
    """Whether anything that both runs say of the batch is not the same."""
    shared = before.batch.keys() & after.batch.keys()
    return any(before.batch[name] != after.batch[name] for name in shared)


def _of_runs(before: Side, after: Side) -> Iterator[str]:
    for note in dict.fromkeys([*before.notes, *after.notes]):
        of = [side.name for side in (before, after) if note in side.notes]
        yield f"{'both runs' if len(of) > 1 else of[0]}: {note}"


def _notes(before: Side, after: Side, epochs: float | None) -> Iterator[str]:
    if before.step_ns and after.step_ns and _other_batch(before, after):
        yield OTHER_BATCH
    known = [side for side in (before, after) if side.epoch_ns is not None]
    if epochs is not None and len(known) < 2:
        yield NO_FULL_RUN.format(epochs=epochs, of="only one" if known else "neither")
    if before.trained != after.trained:
        yield OTHER_TIMES.format(before=_when(before), after=_when(after))


def _row(name: str, unit: Unit, before: float | None, after: float | None) -> BeforeAfterRow:
    return BeforeAfterRow(
        name=name,
        unit=unit,
        before=before,
        after=after,
        text=f"{_text(unit, before)} → {_text(unit, after)}",
        change_ratio=(after - before) / before if before and after is not None else None,
        change_text=_change(unit, before, after),
    )


def _change(unit: Unit, before: float | None, after: float | None) -> str | None:
    if before is None or after is None:
        return None
    if unit == "ratio":
        return f"{100 * (after - before):+.1f} pp"
    return f"{100 * (after - before) / before:+.1f} %" if before else None


def _text(unit: Unit, value: float | None) -> str:
    if value is None:
        return "n/a"
    if unit == "ratio":
        return f"{number(100 * value)} %"
    if unit == "usd":
        return f"${value:,.2f}"
    if unit == "hours":
        return f"{number(value)} h"
    return duration(value)
