"""Framework time by phase, operator and kernel."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.analysis import PART_NAMES
from stepscope.quantities import count_of, percent
from stepscope.rules import OperatorTime, OverallFrameworkMetricsDetails
from stepscope.views.profiling_report.blocks import Block, Cell, Section, Table, Text
from stepscope.views.profiling_report.building import (
    explain_missing_events,
    make_number_columns,
    make_pie,
    make_text_columns,
    name_phases,
    shorten,
)
from stepscope.views.profiling_report.rule_results import RuleResults

RULE = "OverallFrameworkMetrics"
OTHERS_ABOVE = 0.25
"""Share of the time outside of TRAIN and EVAL above which a warning is shown."""
ONE_PASS_ABOVE = 0.7
"""Share of one pass, forward or backward, above which a warning is shown."""
ALL_STEPS = "the time of all training steps and evaluation inside them, of all ranks"
TRACED_STEPS = "the step time of the traces, until the device work of a step is done"
STEPS = "the wall time of all training steps of all ranks, without evaluation"
_PHASES = (
    "TRAIN is copies of batches, forward, loss, backward, optimizer and communication. Others is "
    "waiting for batches, checkpoints and time between phases. Most of the time should be TRAIN "
    "and EVAL."
)
_OMITTED = "those with at most 2% of the total are omitted"


def build_framework_section(results: RuleResults) -> Section:
    """Build shares of phases, passes, operators, kernels and collectives."""
    details = results.details(RULE, OverallFrameworkMetricsDetails)
    blocks, sections, is_imported = results.missing(RULE), [], results.run.is_imported
    if details:
        blocks = [
            *_show_phases(details),
            *_show_passes(details),
            *_show_devices(details, is_imported=is_imported),
        ]
        if shares := details.step_phase_share_ratio:
            blocks.append(make_pie("General framework operations", name_phases(shares), STEPS))
        if shares := details.step_part_share_ratio:
            parts = {PART_NAMES[part]: share for part, share in shares.items()}
            blocks.append(make_pie("Parts of traced steps", parts, TRACED_STEPS))
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


def _show_phases(details: OverallFrameworkMetricsDetails) -> list[Block]:
    shares = details.phase_share_ratio
    if not shares:
        text = (
            "Steps of traces are not marked as training or evaluation."
            if details.step_part_share_ratio
            else "No training step was recorded, so there are no phases to compare."
        )
        return [Text(text=text, tone="missing")]
    blocks: list[Block] = [
        Text(text=_PHASES),
        make_pie("TRAIN, EVAL and others", shares, ALL_STEPS),
    ]
    share = shares.get("others", 0.0)
    if share > OTHERS_ABOVE:
        text = (
            f"Others take {percent(share)} of the steps, more than {percent(OTHERS_ABOVE)}: the "
            "chart of framework operations shows the phases."
        )
        blocks.append(Text(text=text, tone="warning"))
    return blocks


def _show_passes(details: OverallFrameworkMetricsDetails) -> list[Block]:
    shares = details.forward_backward_share_ratio
    if not shares:
        text = "No forward or backward pass was recorded separately."
        return [Text(text=text, tone="missing")]
    share_of = "the time of forward and backward passes, all ranks"
    blocks: list[Block] = [make_pie("Forward and backward", shares, share_of)]
    name, share = max(shares.items(), key=lambda item: item[1])
    if share > ONE_PASS_ABOVE:
        text = (
            f"The {name} pass takes {percent(share)} of both passes, more than "
            f"{percent(ONE_PASS_ABOVE)}."
        )
        blocks.append(Text(text=text, tone="warning"))
    return blocks


def _show_devices(details: OverallFrameworkMetricsDetails, *, is_imported: bool) -> list[Block]:
    shares = details.cpu_gpu_share_ratio
    if not shares:
        return [explain_missing_events("operator and no kernel", is_imported=is_imported)]
    name, share = max(shares.items(), key=lambda item: item[1])
    traces = count_of(details.recording_count, "trace")
    share_of = f"their self time in {traces}, summed over threads and devices"
    return [
        make_pie("Operators on the CPU and kernels on GPUs", shares, share_of),
        Text(text=f"{percent(share)} of the recorded time of operators and kernels is {name}."),
    ]


def _build_operators(
    operators: Sequence[OperatorTime],
    *,
    id: str,  # noqa: A002 - the name of the section's field
    title: str,
    kind: str,
    scope: str,
    is_imported: bool,
) -> Section:
    if not operators:
        missing = explain_missing_events(kind, is_imported=is_imported)
        return Section(id=id, title=title, blocks=[missing])
    largest, share = shorten(operators[0].name), percent(operators[0].percent / 100)
    rows: list[list[Cell]] = [
        [number, round(row.percent, 2), row.time_ns // 1000, shorten(row.name)]
        for number, row in enumerate(operators)
    ]
    columns = [
        *make_number_columns("#", digits=0),
        *make_number_columns("Percentage", unit="%", digits=2),
        *make_number_columns("Cumulative time", unit="µs", digits=0),
        *make_text_columns(kind),
    ]
    return Section(
        id=id,
        title=title,
        blocks=[
            Text(text=f"The most expensive {kind} was {largest} with {share}."),
            Table(title=title, columns=columns, rows=rows, share_of=scope),
            make_pie(f"Time by {kind}", {row.name: row.percent / 100 for row in operators}, scope),
        ],
    )
