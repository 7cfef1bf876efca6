"""The job: when it began, trained and ended."""

from __future__ import annotations

from stepscope.cost import price_job
from stepscope.run import JobStatistics, machine_count
from stepscope.views.profiling_report.blocks import (
    Block,
    Cell,
    Column,
    Missing,
    Section,
    Table,
    Text,
)
from stepscope.views.profiling_report.evaluated import Evaluated
from stepscope.views.profiling_report.words import moment, pie

LONG_FINALIZATION = 0.1
"""Share of the job from which finalization is worth a word."""


def job_section(evaluated: Evaluated, *, in_progress: bool) -> Section:
    """Describe start and end of the job, and the time before and after training."""
    job = evaluated.job
    seconds = job.duration_ns / 1e9
    lasted = "has run" if in_progress else "ran"
    blocks: list[Block] = [
        Text(
            text=f"The job started on {moment(job.start_ns).replace(' ', ' at ', 1)} and {lasted} "
            f"for {seconds:,.0f} seconds."
        ),
        Table(
            title="Training job",
            columns=[Column(label="what"), Column(label="value")],
            rows=_rows(job, in_progress=in_progress) + _cost(evaluated),
            share_of="the job's duration",
        ),
    ]
    parts = _parts(job)
    if parts is None:
        steps = evaluated.why_missing("StepOutlier") or "no training step was seen"
        blocks.append(Missing(text=f"Initialization and training cannot be told apart: {steps}."))
    elif job.duration_ns > 0:
        duration = max(job.duration_ns, 1)
        shares = {name: max(0, part) / duration for name, part in parts.items()}
        blocks.append(pie("Where the job's time went", shares, "the job's duration"))
        blocks += _remarks(parts, duration)
    return Section(id="job", title="Training job summary", blocks=blocks)


def _parts(job: JobStatistics) -> dict[str, int] | None:
    if job.initialization_ns is None or job.training_ns is None or job.finalization_ns is None:
        return None
    return {
        "Initialization": job.initialization_ns,
        "Training loop": job.training_ns,
        "Finalization": job.finalization_ns,
    }


def _rows(job: JobStatistics, *, in_progress: bool) -> list[list[Cell]]:
    rows: list[list[Cell]] = [
        ["Start time", moment(job.start_ns)],
        ["Last heard of" if in_progress else "End time", moment(job.end_ns)],
        ["Job duration (s)", _seconds(job.duration_ns)],
    ]
    parts = _parts(job)
    if parts is None:
        return rows
    begin = job.start_ns + parts["Initialization"]
    rows += [
        ["Training loop start", moment(begin)],
        ["Training loop end", moment(begin + parts["Training loop"])],
        ["Training loop duration (s)", _seconds(parts["Training loop"])],
        ["Initialization time (s)", _seconds(parts["Initialization"])],
        ["Finalization time (s)", _seconds(parts["Finalization"])],
    ]
    if job.duration_ns > 0:
        rows += [
            [f"{name} (%)", f"{100 * part / job.duration_ns:.2f}"] for name, part in parts.items()
        ]
    return rows


def _cost(evaluated: Evaluated) -> list[list[Cell]]:
    """Describe the cost of the job and the source of the price; empty without a price."""
    reader = evaluated.run.reader
    priced = price_job(
        reader.info,
        evaluated.run.nodes.values(),
        instance_count=machine_count(reader),
        duration_ns=evaluated.job.duration_ns,
    )
    if isinstance(priced, str):
        return []
    price = priced.price
    return [
        ["Cost ($)", f"{priced.cost.usd:,}"],
        ["Price of a machine ($ per hour)", f"{price.usd_per_hour:,} ({price.used.origin})"],
    ]


def _seconds(time_ns: int) -> str:
    return f"{time_ns / 1e9:,.2f}"


def _remarks(parts: dict[str, int], duration: int) -> list[Block]:
    remarks: list[Block] = []
    if parts["Initialization"] > parts["Training loop"]:
        remarks.append(
            Text(
                text="Initialization took longer than training: see the section about it below.",
                tone="warning",
            )
        )
    share = parts["Finalization"] / duration
    if share > LONG_FINALIZATION:
        remarks.append(
            Text(
                text=f"{share:.0%} of the job's duration passed after the last step: saving, "
                "evaluating or uploading may be worth a look.",
                tone="warning",
            )
        )
    return remarks
