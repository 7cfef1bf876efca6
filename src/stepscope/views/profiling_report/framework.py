"""Framework time by phase, operator and kernel."""

from __future__ import annotations

from collections.abc import Sequence

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
from stepscope.views.profiling_report.evaluated import Evaluated
from stepscope.views.profiling_report.words import WINDOW, pie, shortened

OTHERS_ABOVE = 0.25
"""Share of others (neither TRAIN nor EVAL) that is worth a warning."""
ONE_PASS_ABOVE = 0.7
"""Share of one pass, forward or backward, that is."""
ALL_STEPS = "the time of all training steps and evaluation inside them, of all ranks"
STEPS = "the wall time of all training steps of all ranks, evaluation left out"


def framework_section(evaluated: Evaluated) -> Section:
    """Phases, passes, operators, kernels and collectives, as shares of what each is part of."""
    details = evaluated.details("OverallFrameworkMetrics", OverallFrameworkMetricsDetails)
    if not details:
        blocks = evaluated.missing("OverallFrameworkMetrics")
        return Section(id="framework", title="Framework metrics summary", blocks=blocks)
    return Section(
        id="framework",
        title="Framework metrics summary",
        blocks=[*_phases(details), *_passes(details), *_devices(details), *_general(details)],
        sections=[
            _operators(
                details.cpu_operators,
                id="cpu-operators",
                title="Overview: CPU operators",
                kind="CPU operator",
                scope="the host self time of the listed operators, without the operators they "
                "call; those with at most 2% of the total are omitted",
            ),
            _operators(
                details.gpu_kernels,
                id="gpu-operators",
                title="Overview: GPU operators",
                kind="GPU kernel",
                scope="the time of the listed kernels, communication left out; those with at most "
                "2% of the total are omitted",
            ),
            _operators(
                details.collectives,
                id="collectives",
                title="Overview: collectives",
                kind="collective",
                scope="the time of the listed collectives on devices; those with at most 2% of "
                "the total are omitted",
            ),
        ],
    )


def _phases(details: OverallFrameworkMetricsDetails) -> list[Block]:
    shares = details.phase_share_ratio
    if not shares:
        return [Missing(text="No training step was seen, so there are no phases to compare.")]
    blocks: list[Block] = [
        Text(
            text="TRAIN is copying batches, forward, loss, backward, optimizer and communication; "
            "others is waiting for batches, checkpoints and the time between phases. Most of the "
            "time should go into TRAIN and EVAL."
        ),
        pie("TRAIN, EVAL and others", shares, ALL_STEPS),
    ]
    rest = shares.get("others", 0.0)
    if rest > OTHERS_ABOVE:
        blocks.append(
            Text(
                text=f"Others take {rest:.1%} of the steps, more than {OTHERS_ABOVE:.0%}: see "
                "which phase it is below.",
                tone="warning",
            )
        )
    return blocks


def _passes(details: OverallFrameworkMetricsDetails) -> list[Block]:
    shares = details.forward_backward_share_ratio
    if not shares:
        return [Missing(text="No forward or backward pass was told apart from the rest.")]
    blocks: list[Block] = [
        pie("Forward and backward", shares, "the time of forward and backward passes, all ranks")
    ]
    name, share = max(shares.items(), key=lambda item: item[1])
    if share > ONE_PASS_ABOVE:
        blocks.append(
            Text(
                text=f"The {name} pass takes {share:.1%} of both passes, more than "
                f"{ONE_PASS_ABOVE:.0%}.",
                tone="warning",
            )
        )
    return blocks


def _devices(details: OverallFrameworkMetricsDetails) -> list[Block]:
    shares = details.cpu_gpu_share_ratio
    if not shares:
        return [Missing(text=f"No operator and no kernel was recorded: {WINDOW}.")]
    name, share = max(shares.items(), key=lambda item: item[1])
    return [
        pie(
            "Operators on the CPU and kernels on GPUs",
            shares,
            f"their own times in {details.recording_count} recordings, summed over threads and "
            "devices",
        ),
        Text(text=f"{share:.0%} of the recorded time of operators and kernels is {name}."),
    ]


def _general(details: OverallFrameworkMetricsDetails) -> list[Block]:
    shares = details.step_phase_share_ratio
    if not shares:
        return []
    named_shares = {phase.replace("_", " "): share for phase, share in shares.items()}
    return [pie("General framework operations", named_shares, STEPS)]


def _operators(
    rows: Sequence[OperatorTime],
    *,
    id: str,  # noqa: A002 - the name of the section's field
    title: str,
    kind: str,
    scope: str,
) -> Section:
    if not rows:
        why = Missing(text=f"No {kind} was recorded: {WINDOW}.")
        return Section(id=id, title=title, blocks=[why])
    largest = rows[0]
    shares = {row.name: row.percent / 100 for row in rows}
    listed: list[list[Cell]] = [
        [number, round(row.percent, 2), row.time_ns // 1000, shortened(row.name)]
        for number, row in enumerate(rows)
    ]
    return Section(
        id=id,
        title=title,
        blocks=[
            Text(
                text=f"The most expensive {kind} was {shortened(largest.name)} with "
                f"{int(largest.percent)} %."
            ),
            Table(
                title=title,
                columns=[
                    Column(label="#", digits=0),
                    Column(label="Percentage", unit="%", digits=2),
                    Column(label="Cumulative time", unit="us", digits=0),
                    Column(label=kind),
                ],
                rows=listed,
                share_of=scope,
            ),
            pie(f"Time by {kind}", shares, scope),
        ],
    )
