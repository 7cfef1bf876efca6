"""Sections on the job, and on its time by phase, operator and kernel."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope import analysis, cost, quantities, rules, run
from stepscope.quantities import duration, percent
from stepscope.views.job.job_time import JobClass, JobRestart, JobTimeView, show_job_time
from stepscope.views.job.overview import list_applied_changes
from stepscope.views.profiling_report import building
from stepscope.views.profiling_report.blocks import (
    BarChart,
    Block,
    Cell,
    Listing,
    Section,
    Table,
    Text,
)

JOB = "the job's duration"
MEAN_JOB = "the job's duration, the mean over ranks"
MAX_CHANGES = 30
MAX_RESTARTS = 30
MAX_FUNCTIONS = 3
MIN_FUNCTION_RATIO = 0.05
"""Functions with a smaller share of their class of time are left out."""
LONG_FINALIZATION = 0.1
"""Share of the job above which finalization is mentioned."""


def build_job_section(results: building.RuleResults, *, in_progress: bool) -> Section:
    """Describe start and end of the job, and the time before and after training."""
    job, parts = results.job, _split_job(results.job)
    verb = "has run" if in_progress else "ran"
    start = quantities.utc_time(job.start_ns).replace(" ", " at ", 1)
    blocks: list[Block] = [
        Text(text=f"The job started on {start} and {verb} for {duration(job.duration_ns)}."),
        Table(
            title="Training job",
            columns=building.make_text_columns("property", "value"),
            rows=list_properties(results, in_progress=in_progress),
            share_of=JOB if parts else None,
        ),
    ]
    if parts is None:
        blocks.append(Text(text=_explain_missing_parts(results), tone="missing"))
    elif job.duration_ns > 0:
        shares = {name: max(0, part) / job.duration_ns for name, part in parts.items()}
        blocks.append(building.make_pie("Job duration by part", shares, JOB))
        blocks += _note_long_parts(parts, job.duration_ns)
    blocks += _list_changes(results)
    return Section(id="job", title="Training job summary", blocks=blocks)


def list_properties(results: building.RuleResults, *, in_progress: bool) -> list[list[Cell]]:
    """List the times and the cost of the job: name and value."""
    return _list_times(results.job, in_progress=in_progress) + _list_cost(results)


def _explain_missing_parts(results: building.RuleResults) -> str:
    recording_end = run.explain_recording_end(results.run)
    if recording_end is not None and not results.job_is_damaged:
        return f"Training and finalization cannot be separated. {recording_end}"
    return f"Initialization and training cannot be separated: {_explain(results)}."


def _split_job(job: run.JobStatistics) -> dict[str, int] | None:
    if job.initialization_ns is None or job.training_ns is None or job.finalization_ns is None:
        return None
    return {
        "Initialization": job.initialization_ns,
        "Training loop": job.training_ns,
        "Finalization": job.finalization_ns,
    }


def _explain(results: building.RuleResults) -> str:
    """Explain why the job cannot be split."""
    if results.job_is_damaged:
        return "a part of the run cannot be read"
    if results.run.traces and not results.run.ranks:
        return "traces do not show when the job started and ended"
    return "no training step was recorded"


def _list_times(job: run.JobStatistics, *, in_progress: bool) -> list[list[Cell]]:
    rows: list[list[Cell]] = [
        ["Start time", quantities.utc_time(job.start_ns)],
        ["Last heartbeat" if in_progress else "End time", quantities.utc_time(job.end_ns)],
        ["Job duration (s)", quantities.figure(job.duration_ns / 1e9, 2)],
    ]
    parts = _split_job(job)
    if parts is None:
        return rows
    start_ns = job.start_ns + parts["Initialization"]
    rows += [
        ["Training loop start", quantities.utc_time(start_ns)],
        ["Training loop end", quantities.utc_time(start_ns + parts["Training loop"])],
        ["Training loop duration (s)", quantities.figure(parts["Training loop"] / 1e9, 2)],
        ["Initialization time (s)", quantities.figure(parts["Initialization"] / 1e9, 2)],
        ["Finalization time (s)", quantities.figure(parts["Finalization"] / 1e9, 2)],
    ]
    if job.duration_ns > 0:
        rows += [
            [f"{name} (%)", quantities.figure(100 * part / job.duration_ns, 2)]
            for name, part in parts.items()
        ]
    return rows


def _list_cost(results: building.RuleResults) -> list[list[Cell]]:
    """Describe the cost of the job and the source of the price; empty without a price."""
    reader = results.run.reader
    priced = cost.price_job(
        reader.info,
        results.run.nodes.values(),
        instance_count=run.machine_count(reader),
        duration_ns=results.job.duration_ns,
    )
    if isinstance(priced, str):
        return []
    price = priced.price
    return [
        ["Cost", quantities.dollars(float(priced.cost.usd))],
        [
            "Price of a machine per hour",
            f"{quantities.dollars(float(price.usd_per_hour))} ({price.used.origin})",
        ],
    ]


def _list_changes(results: building.RuleResults) -> list[Block]:
    """List the changes of the configuration while the job ran."""
    applied = list_applied_changes(results.run)
    changes, more = building.limit_items(applied, MAX_CHANGES, "changes")
    rows: list[list[Cell]] = [
        [
            quantities.utc_time(c.changed_ns),
            building.shorten(c.setting),
            building.shorten(c.before),
            building.shorten(c.after),
        ]
        for c in changes
    ]
    columns = building.make_text_columns("time", "setting", "before", "after")
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


def build_job_time_section(results: building.RuleResults) -> Section:
    """Build the division of the whole job into classes of time."""
    payload, damage = run.make_with_damage(results.run, show_job_time)
    reason = "a part of the run cannot be read" if damage else payload.missing
    blocks: list[Block] = (
        _show_job_time(payload)
        if reason is None
        else [Text(text=f"{reason[0].upper()}{reason[1:]}.", tone="missing")]
    )
    return Section(id="job-time", title="Job time", blocks=blocks)


def _show_job_time(payload: JobTimeView) -> list[Block]:
    first_step = (
        "No step was recorded."
        if payload.first_step_ns is None
        else f"The first step began after {duration(payload.first_step_ns)}."
    )
    device = (
        ""
        if payload.device_goodput_ratio is None
        else f" Times the busy share of the GPUs, it is {percent(payload.device_goodput_ratio)}."
    )
    restarts, more = building.limit_items(payload.restarts, MAX_RESTARTS, "restarts")
    return [
        Text(
            text=f"Goodput is {percent(payload.goodput_ratio)}: the share of "
            f"{duration(payload.duration_ns)} in steps whose result was kept.{device} {first_step}"
        ),
        BarChart(
            title="Job time by class",
            item="class",
            axis=f"share of {MEAN_JOB}",
            unit="ratio",
            names=[part.title for part in payload.classes],
            values=[_round_ratio(part.share_ratio) for part in payload.classes],
        ),
        Table(
            title="Job time by class",
            columns=[
                *building.make_text_columns("class"),
                *building.make_number_columns("time", unit="s", digits=2),
                *building.make_number_columns("share", unit="%", digits=1),
                *building.make_text_columns("functions"),
            ],
            rows=[_make_class_row(part) for part in payload.classes],
            share_of=MEAN_JOB,
        ),
        *([_list_restarts(restarts, more)] if restarts else []),
        *_list_reasons(payload.not_seen),
    ]


def _list_reasons(reasons: Sequence[str]) -> list[Block]:
    """List the reasons for time that was not seen, a sentence per rank."""
    shown, more = building.limit_items(reasons, building.MAX_SENTENCES, "reasons")
    items = [f"{reason[0].upper()}{reason[1:]}." for reason in shown]
    return [*([Listing(items=items)] if items else []), *building.note_omitted(more)]


def _make_class_row(part: JobClass) -> list[Cell]:
    functions = []
    for function in part.functions[:MAX_FUNCTIONS]:
        if (function.share_ratio or 0.0) < MIN_FUNCTION_RATIO:
            continue
        functions.append(f"{building.shorten(function.title)} {duration(function.total_ns)}")
    share = None if part.share_ratio is None else round(100 * part.share_ratio, 2)
    return [part.title, round(part.time_ns / 1e9, 3), share, "; ".join(functions) or None]


def _round_ratio(ratio: float | None) -> float | None:
    return None if ratio is None else building.round_figure(ratio)


def _list_restarts(restarts: Sequence[JobRestart], more: str | None) -> Table:
    return Table(
        title="Restarts",
        columns=building.make_number_columns("incarnation", digits=0)
        + building.make_number_columns(
            "died after", "new process after", "next step after", unit="s", digits=2
        )
        + building.make_number_columns("steps lost", digits=0),
        rows=[
            [
                restart.incarnation,
                building.round_figure(restart.died_ns / 1e9),
                building.round_figure(restart.notice_ns / 1e9),
                None
                if restart.return_ns is None
                else building.round_figure(restart.return_ns / 1e9),
                restart.steps_lost,
            ]
            for restart in restarts
        ],
        more=more,
    )


RULE = "OverallFrameworkMetrics"
OTHERS_ABOVE = 0.25
"""Share of the time outside of TRAIN and EVAL above which a warning is shown."""
ONE_PASS_ABOVE = 0.7
"""Share of one pass, forward or backward, above which a warning is shown."""
RECORDED_STEPS = "the time from the first to the last step of each process"
ALL_STEPS = "the time of all training steps and evaluation inside them, of all ranks"
TRACED_STEPS = "the step time of the traces, until the device work of a step is done"
STEPS = "the wall time of all training steps of all ranks, without evaluation"
_PHASES = (
    "TRAIN is copies of batches, forward, loss, backward, optimizer and communication. Others is "
    "waiting for batches, checkpoints and time between phases. Most of the time should be TRAIN "
    "and EVAL."
)
_RECORDED_MODES = (
    "TRAIN, EVAL, PREDICT and GLOBAL are the modes of the steps in the imported files. Others is "
    "the time between steps, such as waiting for batches. Most of the time should be TRAIN and "
    "EVAL; steps of a script that names no modes are GLOBAL."
)
_OMITTED = "those with at most 2% of the total are omitted"


def build_framework_section(results: building.RuleResults) -> Section:
    """Build shares of phases, passes, operators, kernels and collectives."""
    details = results.details(RULE, rules.OverallFrameworkMetricsDetails)
    blocks, sections, is_imported = results.missing(RULE), [], results.run.is_imported
    if details:
        blocks = [
            *_show_phases(details),
            *_show_passes(details),
            *_show_devices(details, is_imported=is_imported),
        ]
        if shares := details.step_phase_share_ratio:
            blocks.append(
                building.make_pie(
                    "General framework operations", building.name_phases(shares), STEPS
                )
            )
        if shares := details.step_part_share_ratio:
            parts = {analysis.PART_NAMES[part]: share for part, share in shares.items()}
            blocks.append(building.make_pie("Parts of traced steps", parts, TRACED_STEPS))
        sections = [
            _build_operators(
                details.cpu_operators,
                id="cpu-operators",
                title="Overview: CPU operators",
                kind="CPU operator",
                scope="the host self time of the listed operators, without the operators they "
                f"call; {_OMITTED}",
                is_imported=is_imported,
            ),
            _build_operators(
                details.gpu_kernels,
                id="gpu-operators",
                title="Overview: GPU operators",
                kind="GPU kernel",
                scope=f"the time of the listed kernels, without communication; {_OMITTED}",
                is_imported=is_imported,
            ),
            _build_operators(
                details.collectives,
                id="collectives",
                title="Overview: collectives",
                kind="collective",
                scope=f"the time of the listed collectives on devices; {_OMITTED}",
                is_imported=is_imported,
            ),
        ]
    return Section(
        id="framework", title="Framework metrics summary", blocks=blocks, sections=sections
    )


def _show_phases(details: rules.OverallFrameworkMetricsDetails) -> list[Block]:
    shares = details.phase_share_ratio
    if not shares:
        text = (
            "Steps of traces are not marked as training or evaluation."
            if details.step_part_share_ratio
            else "No training step was recorded, so there are no phases to compare."
        )
        return [Text(text=text, tone="missing")]
    is_recorded = details.modes_are_recorded is True
    share_of = RECORDED_STEPS if is_recorded else ALL_STEPS
    blocks: list[Block] = [
        Text(text=_RECORDED_MODES if is_recorded else _PHASES),
        building.make_pie("TRAIN, EVAL and others", shares, share_of),
    ]
    share = shares.get("others", 0.0)
    if share > OTHERS_ABOVE:
        extent = "time from the first to the last step" if is_recorded else "steps"
        text = (
            f"Others take {percent(share)} of the {extent}, more than {percent(OTHERS_ABOVE)}: the "
            "chart of framework operations shows the phases."
        )
        blocks.append(Text(text=text, tone="warning"))
    return blocks


def _show_passes(details: rules.OverallFrameworkMetricsDetails) -> list[Block]:
    shares = details.forward_backward_share_ratio
    if not shares:
        text = "No forward or backward pass was recorded separately."
        return [Text(text=text, tone="missing")]
    share_of = "the time of forward and backward passes, all ranks"
    blocks: list[Block] = [building.make_pie("Forward and backward", shares, share_of)]
    name, share = max(shares.items(), key=lambda item: item[1])
    if share > ONE_PASS_ABOVE:
        text = (
            f"The {name} pass takes {percent(share)} of both passes, more than "
            f"{percent(ONE_PASS_ABOVE)}."
        )
        blocks.append(Text(text=text, tone="warning"))
    return blocks


def _show_devices(
    details: rules.OverallFrameworkMetricsDetails, *, is_imported: bool
) -> list[Block]:
    shares = details.cpu_gpu_share_ratio
    if not shares:
        return [building.explain_missing_events("operator and no kernel", is_imported=is_imported)]
    name, share = max(shares.items(), key=lambda item: item[1])
    traces = quantities.count_of(details.recording_count, "trace")
    share_of = f"their self time in {traces}, summed over threads and devices"
    return [
        building.make_pie("Operators on the CPU and kernels on GPUs", shares, share_of),
        Text(text=f"{percent(share)} of the recorded time of operators and kernels is {name}."),
    ]


def _build_operators(
    operators: Sequence[rules.OperatorTime],
    *,
    id: str,  # noqa: A002 - the name of the section's field
    title: str,
    kind: str,
    scope: str,
    is_imported: bool,
) -> Section:
    if not operators:
        missing = building.explain_missing_events(kind, is_imported=is_imported)
        return Section(id=id, title=title, blocks=[missing])
    largest, share = building.shorten(operators[0].name), percent(operators[0].percent / 100)
    rows: list[list[Cell]] = [
        [number, round(row.percent, 2), row.time_ns // 1000, building.shorten(row.name)]
        for number, row in enumerate(operators)
    ]
    columns = [
        *building.make_number_columns("#", digits=0),
        *building.make_number_columns("Percentage", unit="%", digits=2),
        *building.make_number_columns("Cumulative time", unit="µs", digits=0),
        *building.make_text_columns(kind),
    ]
    return Section(
        id=id,
        title=title,
        blocks=[
            Text(text=f"The most expensive {kind} was {largest} with {share}."),
            Table(title=title, columns=columns, rows=rows, share_of=scope),
            building.make_pie(
                f"Time by {kind}", {row.name: row.percent / 100 for row in operators}, scope
            ),
        ],
    )
