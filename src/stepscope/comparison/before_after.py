"""Table of two runs before and after a change: utilization, times, hours, dollars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from stepscope import analysis, quantities, rule_feed, schema
from stepscope.comparison.workload_contract import collect_terms
from stepscope.cost import (
    HOUR_NS,
    MIN_SAMPLES,
    JobCost,
    PriceUsed,
    average_p95,
    measure_node_usage,
    price_job,
)
from stepscope.run import Epochs, Run, find_epochs, job_borders, machine_count, run_name

Unit = Literal["ratio", "ns", "hours", "usd"]
Pace = Literal["epoch", "step"]
OTHER_BATCH = "the runs use different batches, so step times do not compare their speed"
FEW_SAMPLES = "a 95th percentile needs {minimum} samples; utilization has {count}"
NO_FULL_RUN = "a run of {epochs} epochs needs the epoch time, which is known for {known} run"
OTHER_TIMES = "utilization is {before} in the first run and {after} in the second"
WHILE_TRAINING, WHOLE_RUN = "while training", "of the whole run"


class BeforeAfterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of both runs; null where a run does not have it."""

    name: Annotated[str, schema.field_label("figure")]
    unit: Unit
    before: Annotated[float | None, schema.field_label(unit="inherited")]
    after: Annotated[float | None, schema.field_label(unit="inherited")]
    text: Annotated[str, schema.field_label("from → to")]
    """Both values as text: `40% → 88%`."""
    change_ratio: float | None
    """Change relative to `before`; negative for a decrease."""
    change_text: Annotated[str | None, schema.field_label("change in words")]
    """Change as text: percentage points for ratios, else relative to `before`."""


class BeforeAfter(msgspec.Struct, frozen=True, kw_only=True):
    """Table of two runs before and after a change, with the savings."""

    rows: list[BeforeAfterRow]
    epoch_count: float | None
    """Epochs of a full run; null where the runs are compared as recorded."""
    saved_hours: Annotated[float | None, schema.field_label("saved machine time")]
    """Saved instance-hours; negative where more were used."""
    saved_usd: Annotated[float | None, schema.field_label("saved cost")]
    saving_ratio: float | None
    """Saving relative to the cost before; both from costs rounded to the cent."""
    speed_up: Annotated[float | None, schema.field_label("speedup", unit="none")]
    """Null where neither epochs nor steps can be compared."""
    speed_up_by: Pace | None
    """Unit of work of the speed-up. An epoch includes its evaluation and checkpoints; a step does
    not, and counts only with equal batches."""
    before_price: PriceUsed | None
    after_price: PriceUsed | None
    notes: list[str]
    """Reasons for missing dollars, epochs, percentiles or speed-up."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one of the two runs."""

    name: str = ""
    gpu_mean: float | None = None
    gpu_p95: float | None = None
    """Mean of the 95th percentiles of the GPUs."""
    cpu_mean: float | None = None
    cpu_p95: float | None = None
    """Mean of the 95th percentiles of the machines."""
    is_training: bool = True
    """Utilization covers the training; else all of the run, where no step was recorded."""
    batch: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Recorded properties of the batch, by name."""
    step_ns: float | None = None
    epoch_ns: float | None = None
    job_ns: int | None = None
    """Duration of the run."""
    instance_count: int = 0
    cost: JobCost | None = None
    """Cost of the run; None without a price or without instances."""
    price: PriceUsed | None = None
    notes: Sequence[str] = ()


def measure_side(run: Run) -> Side:
    """Measure the figures of one run."""
    nodes = measure_node_usage(run)
    gpus = [level for node in nodes for level in node.gpus.values()]
    cpus = [node.cpu for node in nodes if node.cpu is not None]
    start_ns, end_ns = job_borders(run)
    instance_count = machine_count(run.reader)
    priced = price_job(
        run.reader.info,
        run.nodes.values(),
        instance_count=instance_count,
        duration_ns=end_ns - start_ns,
    )
    passes = find_epochs(run)
    notes = [reason for reason in (priced, passes) if isinstance(reason, str)]
    sample_count = min((level.count for level in (*gpus, *cpus)), default=MIN_SAMPLES)
    if sample_count < MIN_SAMPLES:
        notes.append(FEW_SAMPLES.format(count=sample_count, minimum=MIN_SAMPLES))
    return Side(
        name=run_name(run.reader.location, run.reader.info.run_id),
        gpu_mean=analysis.average_present(level.mean for level in gpus),
        gpu_p95=average_p95(gpus),
        cpu_mean=analysis.average_present(level.mean for level in cpus),
        cpu_p95=average_p95(cpus),
        is_training=bool(run.ranks),
        batch=collect_terms(run)["batch"],
        step_ns=run.derive(rule_feed.make_verdict).mean_step_ns,
        epoch_ns=passes.mean_ns if isinstance(passes, Epochs) else None,
        job_ns=end_ns - start_ns,
        instance_count=instance_count,
        cost=None if isinstance(priced, str) or not instance_count else priced.cost,
        price=None if isinstance(priced, str) else priced.price.used,
        notes=notes,
    )


def compare_before_after(before: Side, after: Side, epochs: float | None = None) -> BeforeAfter:
    """Compare two runs before and after a change.

    Args:
        epochs: epochs of a full run, at the epoch time of each run; None for the runs as recorded.
    """
    before_ns, after_ns = _compute_full_ns(before, epochs), _compute_full_ns(after, epochs)
    before_cost, after_cost = _scale_cost(before, before_ns), _scale_cost(after, after_ns)
    before_hours, after_hours = _compute_hours(before, before_ns), _compute_hours(after, after_ns)
    speed_up, pace = _compute_speed_up(before, after)
    period = f" {_name_period(before)}" if before.is_training == after.is_training else ""
    rows = [
        _make_row(f"GPU utilisation{period}", "ratio", before.gpu_mean, after.gpu_mean),
        _make_row(f"GPU utilisation{period}, p95", "ratio", before.gpu_p95, after.gpu_p95),
        _make_row(f"CPU utilisation{period}", "ratio", before.cpu_mean, after.cpu_mean),
        _make_row(f"CPU utilisation{period}, p95", "ratio", before.cpu_p95, after.cpu_p95),
        _make_row("step", "ns", before.step_ns, after.step_ns),
        _make_row("epoch", "ns", before.epoch_ns, after.epoch_ns),
        _make_row(
            "run" if epochs is None else f"run of {quantities.number(epochs)} epochs",
            "ns",
            before_ns,
            after_ns,
        ),
        _make_row("instance-hours", "hours", before_hours, after_hours),
        _make_row("cost", "usd", _get_usd(before_cost), _get_usd(after_cost)),
    ]
    saved_hours = saved_usd = saving_ratio = None
    if before_hours is not None and after_hours is not None:
        saved_hours = before_hours - after_hours
    if before_cost is not None and after_cost is not None:
        saved_usd = float(before_cost.usd - after_cost.usd)
        saving_ratio = after_cost.saving_ratio(before_cost)
    return BeforeAfter(
        rows=[row for row in rows if row.before is not None or row.after is not None],
        epoch_count=epochs,
        saved_hours=saved_hours,
        saved_usd=saved_usd,
        saving_ratio=saving_ratio,
        speed_up=speed_up,
        speed_up_by=pace,
        before_price=before.price,
        after_price=after.price,
        notes=[*_list_run_notes(before, after), *_list_notes(before, after, epochs)],
    )


def _compute_full_ns(side: Side, epochs: float | None) -> int | None:
    if epochs is None:
        return side.job_ns or None
    return None if side.epoch_ns is None else round(epochs * side.epoch_ns)


def _compute_hours(side: Side, duration_ns: int | None) -> float | None:
    if duration_ns is None or not side.instance_count:
        return None
    return side.instance_count * duration_ns / HOUR_NS


def _scale_cost(side: Side, duration_ns: int | None) -> JobCost | None:
    if side.cost is None or duration_ns is None:
        return None
    return side.cost.for_duration(duration_ns)


def _get_usd(cost: JobCost | None) -> float | None:
    return None if cost is None else float(cost.usd)


def _name_period(side: Side) -> str:
    """Name the period of the utilization, which is low while a job starts."""
    return WHILE_TRAINING if side.is_training else WHOLE_RUN


def _compute_speed_up(before: Side, after: Side) -> tuple[float, Pace] | tuple[None, None]:
    if before.epoch_ns and after.epoch_ns:
        return before.epoch_ns / after.epoch_ns, "epoch"
    if before.step_ns and after.step_ns and not _has_other_batch(before, after):
        return before.step_ns / after.step_ns, "step"
    return None, None


def _has_other_batch(before: Side, after: Side) -> bool:
    """Return whether a property of the batch that both runs recorded differs."""
    shared = before.batch.keys() & after.batch.keys()
    return any(before.batch[name] != after.batch[name] for name in shared)


def _list_run_notes(before: Side, after: Side) -> Iterator[str]:
    """List the notes of each run with the run's name."""
    for note in dict.fromkeys([*before.notes, *after.notes]):
        names = [side.name for side in (before, after) if note in side.notes]
        yield f"{'both runs' if len(names) > 1 else names[0]}: {note}"


def _list_notes(before: Side, after: Side, epochs: float | None) -> Iterator[str]:
    if before.step_ns and after.step_ns and _has_other_batch(before, after):
        yield OTHER_BATCH
    timed = [side for side in (before, after) if side.epoch_ns is not None]
    if epochs is not None and len(timed) < 2:
        yield NO_FULL_RUN.format(
            epochs=quantities.number(epochs), known="only one" if timed else "neither"
        )
    if before.is_training != after.is_training:
        yield OTHER_TIMES.format(before=_name_period(before), after=_name_period(after))


def _make_row(name: str, unit: Unit, before: float | None, after: float | None) -> BeforeAfterRow:
    return BeforeAfterRow(
        name=name,
        unit=unit,
        before=before,
        after=after,
        text=f"{_format(unit, before)} → {_format(unit, after)}",
        change_ratio=(after - before) / before if before and after is not None else None,
        change_text=_format_change(unit, before, after),
    )


def _format_change(unit: Unit, before: float | None, after: float | None) -> str | None:
    if before is None or after is None:
        return None
    if unit == "ratio":
        return quantities.change(after - before, "ratio")
    return quantities.relative_change((after - before) / before) if before else None


def _format(unit: Unit, value: float | None) -> str:
    if value is None:
        return quantities.MISSING
    if unit == "ratio":
        return f"{quantities.number(100 * value)}%"
    if unit == "usd":
        return f"${quantities.fixed(value, 2)}"
    if unit == "hours":
        return f"{quantities.number(value)} h"
    return quantities.duration(value)
