"""Framework time by phase, operator and kernel."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.quantities import count_of, percent
from stepscope.rules import OperatorTime, OverallFrameworkMetricsDetails
from stepscope.views.profiling_report.blocks import (
    Block,
    Cell,
    Column,
    Missing,
    Section,
    Table,
    Text,
)
from stepscope.views.profiling_report.building import WINDOW, make_pie, shorten
from stepscope.views.profiling_report.evaluated import Evaluated

OTHERS_ABOVE = 0.25
"""Share of the time outside of TRAIN and EVAL above which a warning is shown."""
ONE_PASS_ABOVE = 0.7
"""Share of one pass, forward or backward, above which a warning is shown."""
ALL_STEPS = "the time of all training steps and evaluation inside them, of all ranks"
STEPS = "the wall time of all training steps of all ranks, without evaluation"


def build_framework_section(evaluated: Evaluated) -> Section:
    """Build shares of phases, passes, operators, kernels and collectives."""
    details = evaluated.details("OverallFrameworkMetrics", OverallFrameworkMetricsDetails)
    if not details:
        blocks = evaluated.missing("OverallFrameworkMetrics")
        return Section(id="framework", title="Framework metrics summary", blocks=blocks)
    return Section(
        id="framework",
        title="Framework metrics summary",
        blocks=[
            *_show_phases(details),
            *_show_passes(details),
            *_show_devices(details),
            *_show_general(details),
        ],
        sections=[
            _build_operators(
                details.cpu_operators,
                id="cpu-operators",
                title="Overview: CPU operators",
                kind="CPU operator",
                scope="the host self time of the listed operators, without the operators they "
                "call; those with at most 2% of the total are omitted",
            ),
            _build_operators(
                details.gpu_kernels,
                id="gpu-operators",
                title="Overview: GPU operators",
                kind="GPU kernel",
                scope="the time of the listed kernels, without communication; those with at most "
                "2% of the total are omitted",
            ),
            _build_operators(
                details.collectives,
                id="collectives",
                title="Overview: collectives",
                kind="collective",
                scope="the time of the listed collectives on devices; those with at most 2% of "
                "the total are omitted",
            ),
        ],
    )


def _show_phases(details: OverallFrameworkMetricsDetails) -> list[Block]:
    shares = details.phase_share_ratio
    if not shares:
        return [Missing(text="No training step was recorded, so there are no phases to compare.")]
    blocks: list[Block] = [
        Text(
            text="TRAIN is copies of batches, forward, loss, backward, optimizer and "
            "communication. Others is waiting for batches, checkpoints and time between phases. "
            "Most of the time should be TRAIN and EVAL."
        ),
        make_pie("TRAIN, EVAL and others", shares, ALL_STEPS),
    ]
    rest = shares.get("others", 0.0)
    if rest > OTHERS_ABOVE:
        blocks.append(
            Text(
                text=f"Others take {percent(rest)} of the steps, more than "
                f"{percent(OTHERS_ABOVE)}: "
                "the chart of framework operations shows the phases.",
                tone="warning",
            )
        )
    return blocks


def _show_passes(details: OverallFrameworkMetricsDetails) -> list[Block]:
    shares = details.forward_backward_share_ratio
    if not shares:
        return [Missing(text="No forward or backward pass was recorded separately.")]
    blocks: list[Block] = [
        make_pie(
            "Forward and backward", shares, "the time of forward and backward passes, all ranks"
        )
    ]
    name, share = max(shares.items(), key=lambda item: item[1])
    if share > ONE_PASS_ABOVE:
        blocks.append(
            Text(
                text=f"The {name} pass takes {percent(share)} of both passes, more than "
                f"{percent(ONE_PASS_ABOVE)}.",
                tone="warning",
            )
        )
    return blocks


def _show_devices(details: OverallFrameworkMetricsDetails) -> list[Block]:
    shares = details.cpu_gpu_share_ratio
    if not shares:
        return [Missing(text=f"No operator and no kernel was recorded: {WINDOW}.")]
    name, share = max(shares.items(), key=lambda item: item[1])
    return [
        make_pie(
            "Operators on the CPU and kernels on GPUs",
            shares,
            f"their self time in {count_of(details.recording_count, 'trace')}, summed over threads "
            "and devices",
        ),
        Text(text=f"{percent(share)} of the recorded time of operators and kernels is {name}."),
    ]


def _show_general(details: OverallFrameworkMetricsDetails) -> list[Block]:
    shares = details.step_phase_share_ratio
    if not shares:
        return []
    named_shares = {phase.replace("_", " "): share for phase, share in shares.items()}
    return [make_pie("General framework operations", named_shares, STEPS)]


def _build_operators(
    rows: Sequence[OperatorTime],
    *,
    id: str,  # noqa: A002 - the name of the section's field
    title: str,
    kind: str,
    scope: str,
) -> Section:
    if not rows:
        missing = Missing(text=f"No {kind} was recorded: {WINDOW}.")
        return Section(id=id, title=title, blocks=[missing])
    largest = rows[0]
    shares = {row.name: row.percent / 100 for row in rows}
    cells: list[list[Cell]] = [
        [number, round(row.percent, 2), row.time_ns // 1000, shorten(row.name)]
        for number, row in enumerate(rows)
    ]
    return Section(
        id=id,
        title=title,
        blocks=[
            Text(
                text=f"The most expensive {kind} was {shorten(largest.name)} with "
                f"{percent(largest.percent / 100)}."
            ),
            Table(
                title=title,
                columns=[
                    Column(label="#", digits=0),
                    Column(label="Percentage", unit="%", digits=2),
                    Column(label="Cumulative time", unit="µs", digits=0),
                    Column(label=kind),
                ],
                rows=cells,
                share_of=scope,
            ),
            make_pie(f"Time by {kind}", shares, scope),
        ],
    )
