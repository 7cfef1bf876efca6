"""Section on the job: start, training and end."""

from __future__ import annotations

from stepscope.cost import price_job
from stepscope.quantities import dollars, duration, figure, percent
from stepscope.run import JobStatistics, explain_recording_end, machine_count
from stepscope.views.configuration import list_applied_changes
from stepscope.views.profiling_report.blocks import (
    Block,
    Cell,
    Section,
    Table,
    Text,
)
from stepscope.views.profiling_report.building import (
    limit_items,
    make_pie,
    make_text_columns,
    shorten,
)
from stepscope.views.profiling_report.rule_results import RuleResults
from stepscope.views.times import utc_time

JOB = "the job's duration"
MAX_CHANGES = 30
LONG_FINALIZATION = 0.1
"""Share of the job above which finalization is mentioned."""


def build_job_section(results: RuleResults, *, in_progress: bool) -> Section:
    """Describe start and end of the job, and the time before and after training."""
    job, parts = results.job, _split_job(results.job)
    verb = "has run" if in_progress else "ran"
    start = utc_time(job.start_ns).replace(" ", " at ", 1)
    blocks: list[Block] = [
        Text(text=f"The job started on {start} and {verb} for {duration(job.duration_ns)}."),
        Table(
            title="Training job",
            columns=make_text_columns("property", "value"),
            rows=list_properties(results, in_progress=in_progress),
            share_of=JOB if parts else None,
        ),
    ]
    if parts is None:
        blocks.append(Text(text=_explain_missing_parts(results), tone="missing"))
    elif job.duration_ns > 0:
        shares = {name: max(0, part) / job.duration_ns for name, part in parts.items()}
        blocks.append(make_pie("Job duration by part", shares, JOB))
        blocks += _note_long_parts(parts, job.duration_ns)
    blocks += _list_changes(results)
    return Section(id="job", title="Training job summary", blocks=blocks)


def list_properties(results: RuleResults, *, in_progress: bool) -> list[list[Cell]]:
    """List the times and the cost of the job: name and value."""
    return _list_times(results.job, in_progress=in_progress) + _list_cost(results)


def _explain_missing_parts(results: RuleResults) -> str:
    recording_end = explain_recording_end(results.run)
    if recording_end is not None and not results.job_is_damaged:
        return f"Training and finalization cannot be separated. {recording_end}"
    return f"Initialization and training cannot be separated: {_explain(results)}."


def _split_job(job: JobStatistics) -> dict[str, int] | None:
    if job.initialization_ns is None or job.training_ns is None or job.finalization_ns is None:
        return None
    return {
        "Initialization": job.initialization_ns,
        "Training loop": job.training_ns,
        "Finalization": job.finalization_ns,
    }


def _explain(results: RuleResults) -> str:
    """Explain why the job cannot be split."""
    if results.job_is_damaged:
        return "a part of the run cannot be read"
    if results.run.traces and not results.run.ranks:
        return "traces do not show when the job started and ended"
    return "no training step was recorded"


def _list_times(job: JobStatistics, *, in_progress: bool) -> list[list[Cell]]:
    rows: list[list[Cell]] = [
        ["Start time", utc_time(job.start_ns)],
        ["Last heartbeat" if in_progress else "End time", utc_time(job.end_ns)],
        ["Job duration (s)", figure(job.duration_ns / 1e9, 2)],
    ]
    parts = _split_job(job)
    if parts is None:
        return rows
    start_ns = job.start_ns + parts["Initialization"]
    rows += [
        ["Training loop start", utc_time(start_ns)],
        ["Training loop end", utc_time(start_ns + parts["Training loop"])],
        ["Training loop duration (s)", figure(parts["Training loop"] / 1e9, 2)],
        ["Initialization time (s)", figure(parts["Initialization"] / 1e9, 2)],
        ["Finalization time (s)", figure(parts["Finalization"] / 1e9, 2)],
    ]
    if job.duration_ns > 0:
        rows += [
            [f"{name} (%)", figure(100 * part / job.duration_ns, 2)] for name, part in parts.items()
        ]
    return rows


def _list_cost(results: RuleResults) -> list[list[Cell]]:
    """Describe the cost of the job and the source of the price; empty without a price."""
    reader = results.run.reader
    priced = price_job(
        reader.info,
        results.run.nodes.values(),
        instance_count=machine_count(reader),
        duration_ns=results.job.duration_ns,
    )
    if isinstance(priced, str):
        return []
    price = priced.price
    return [
        ["Cost", dollars(float(priced.cost.usd))],
        [
            "Price of a machine per hour",
            f"{dollars(float(price.usd_per_hour))} ({price.used.origin})",
        ],
    ]


def _list_changes(results: RuleResults) -> list[Block]:
    """List the changes of the configuration while the job ran."""
    applied = list_applied_changes(results.run)
    changes, more = limit_items(applied, MAX_CHANGES, "changes")
    rows: list[list[Cell]] = [
        [utc_time(c.changed_ns), shorten(c.setting), shorten(c.before), shorten(c.after)]
        for c in changes
    ]
    columns = make_text_columns("time", "setting", "before", "after")
    title = "Configuration changes while the job ran"
    return [Table(title=title, columns=columns, rows=rows, more=more)] if rows else []


def _note_long_parts(parts: dict[str, int], duration_ns: int) -> list[Block]:
    texts = []
    if parts["Initialization"] > parts["Training loop"]:
        texts.append("Initialization took longer than training; a section below analyzes it.")
    share = parts["Finalization"] / duration_ns
    if share > LONG_FINALIZATION:
        texts.append(
            f"{percent(share)} of the job's duration passed after the last step: check the time "
            "for saving, evaluating and uploading."
        )
    return [Text(text=text, tone="warning") for text in texts]
