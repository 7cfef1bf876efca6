"""Why batches come late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepscope.analysis import BatchCreation, DataWait, StageShare, estimate_lead_probability
from stepscope.diagnosis.cause import (
    CONTRIBUTING_RATIO,
    UNRECOGNISED,
    Case,
    Finding,
    line_evidence,
)
from stepscope.diagnosis.pipeline_model import WAITING_FETCH_CPU_RATIO, Pipeline
from stepscope.diagnosis.shares import Shares
from stepscope.diagnosis.verdict import Evidence, Stage
from stepscope.run import Rank

STARTING_RATIO = 0.5
"""Starting iterators is the cause when it makes up this much of the waiting."""
HIDDEN_RATIO = 0.15
"""More workers are the fix when they would bring the data share of the step below this."""
MIN_WORKER_GAIN = 0.25
"""More workers are the fix only when they shorten the step at least by this."""
STAGE_CAUSES = {
    "read": "slow_reads",
    "decode": "slow_decode",
    "augment": "slow_augmentation",
    "tokenise": "slow_tokenisation",
    "collate": "slow_collate",
    "other": "slow_dataset",
}


def data_pipeline_cause(case: Case) -> Finding:
    """Why batches come late to the rank that waits longest for them."""
    rank, shares = case.fed, case.shares
    if shares.inline_data > shares.phases["data_wait"] + shares.phases["h2d"]:
        return _inline_data(rank, shares)
    if shares.phases["h2d"] > shares.phases["data_wait"]:
        share = shares.phases["h2d"]
        return Finding(
            cause="host_to_device_copies",
            stages=[Stage(name="copies to the device", detail="", share_ratio=share)],
        )
    waiting, making = _with_crowding(case), rank.making
    owned = shares.phases["data_wait"] - shares.late_for_others + shares.crowded
    finding = Finding(cause="slow_dataset")
    finding.stages = _data_stages(waiting, making, owned)
    finding.evidence = _data_evidence(rank, waiting, making)
    if shares.crowded >= CONTRIBUTING_RATIO:
        finding.evidence.insert(0, _crowding_evidence(shares))
    finding.cause = _making_cause(case.pipeline, waiting, making, finding)
    for cause, share, text in _contributing(waiting, making, owned):
        if cause == finding.cause:
            finding.why = text
        else:
            finding.contributing.append((cause, share, text))
    if finding.why is None and finding.stages and finding.cause != "too_few_workers":
        largest = finding.stages[0]
        finding.why = f"{largest.name} takes {largest.share_ratio:.0%} of the step"
    return finding


def _with_crowding(case: Case) -> DataWait:
    """The waiting, and beside it the time in which the training thread had no core because workers
    had them: making batches costs that too, and receiving one that lies ready takes longer."""
    rank = case.fed
    waiting = case.split.crowding.of_waiting(rank.late_batches)
    wall_ns = int(rank.steps.wall_ns[rank.steps.measured()].sum())
    beside_ns = round(case.shares.crowded * wall_ns)
    return replace(
        waiting,
        total_ns=waiting.total_ns + beside_ns,
        making_ns=waiting.making_ns + beside_ns,
    )


def _crowding_evidence(shares: Shares) -> Evidence:
    return Evidence(
        text=f"for {shares.crowded:.0%} of the step the training thread was ready to compute but "
        "had no core, because the workers had them",
        value=shares.crowded,
        unit="ratio",
        source="system",
    )


def slowest_fed(ranks: Sequence[Rank]) -> Rank:
    """The rank that waits longest for batches."""
    return max(ranks, key=lambda rank: rank.waiting.total_ns)


def _data_stages(waiting: DataWait, making: BatchCreation | None, owned: float) -> list[Stage]:
    """What the data share of the step consists of, largest first."""
    if not waiting.total_ns:
        return []
    per_ns = owned / waiting.total_ns
    stages = []
    if making is not None and making.stages:
        for stage in making.stages:
            share = waiting.making_ns * per_ns * stage.ratio
            stages.append(Stage(name=_stage_name(stage), detail=_labels(stage), share_ratio=share))
    elif waiting.making_ns:
        stages.append(
            Stage(name="making batches", detail="", share_ratio=waiting.making_ns * per_ns)
        )
    stages.append(
        Stage(
            name="starting the loader",
            detail="worker start-up and the first batch",
            share_ratio=waiting.starting_ns * per_ns,
        )
    )
    stages.append(
        Stage(
            name="handing over",
            detail="the batch lay ready",
            share_ratio=waiting.handing_over_ns * per_ns,
        )
    )
    kept = [stage for stage in stages if stage.share_ratio >= 0.005]
    return sorted(kept, key=lambda stage: -stage.share_ratio)


def _contributing(
    waiting: DataWait, making: BatchCreation | None, owned: float
) -> list[tuple[str, float, str]]:
    if making is None or not waiting.total_ns:
        return []
    of_step = owned * waiting.making_ns / waiting.total_ns
    return [
        (STAGE_CAUSES[stage.stage], share, f"{_stage_name(stage)} takes {share:.0%} of the step")
        for stage in making.stages
        if (share := stage.ratio * of_step) >= CONTRIBUTING_RATIO
    ]


def _stage_name(stage: StageShare) -> str:
    """Libraries name the stage better than we do: 'parquet decode'."""
    labels = list(stage.labels.items())
    if stage.stage == "decode" and labels and labels[0][1] > 0.6 * stage.ratio:
        first = labels[0][0]
        if " " in first:
            return first
    return stage.name


def _labels(stage: StageShare) -> str:
    """What a stage consists of, where that says more than its name."""
    parts = {label: ratio / stage.ratio for label, ratio in stage.labels.items()}
    if list(parts) == [_stage_name(stage)]:
        return ""
    return ", ".join(
        f"{label} {ratio:.0%}" for label, ratio in list(parts.items())[:3] if ratio >= 0.01
    )


def _data_evidence(rank: Rank, waiting: DataWait, making: BatchCreation | None) -> list[Evidence]:
    evidence = []
    if waiting.starved_ratio is not None:
        evidence.append(
            Evidence(
                text=f"{waiting.starved_ratio:.0%} of the requests found no batch ready",
                value=waiting.starved_ratio,
                unit="ratio",
                source="input-pipeline",
            )
        )
    if making is not None:
        evidence.append(
            Evidence(
                text=f"making a batch takes {making.mean_ns / 1e6:.0f} ms, "
                f"{making.cpu_ratio:.0%} of it on the CPU",
                value=making.mean_ns,
                unit="ns",
                source="input-pipeline",
            )
        )
        if making.worker_busy_ratio is not None:
            evidence.append(
                Evidence(
                    text=f"the workers were making batches {making.worker_busy_ratio:.0%} of the "
                    "time",
                    value=making.worker_busy_ratio,
                    unit="ratio",
                    source="input-pipeline",
                )
            )
        for name, ratio in list(making.transforms.items())[:1]:
            evidence.append(
                Evidence(
                    text=f"the transform {name} takes {ratio:.0%} of the time a batch takes",
                    value=ratio,
                    unit="ratio",
                    source="input-pipeline",
                )
            )
    if rank.loader is not None:
        loader = rank.loader
        evidence.append(
            Evidence(
                text=f"the DataLoader has num_workers={loader['num_workers']}, "
                f"prefetch_factor={loader['prefetch_factor']}, "
                f"pin_memory={loader['pin_memory']}, batch_size={loader['batch_size']}",
                source="input-pipeline",
            )
        )
    return evidence


def _making_cause(
    pipeline: Pipeline | None, waiting: DataWait, making: BatchCreation | None, finding: Finding
) -> str:
    total = max(1, waiting.total_ns)
    if waiting.starting_ns >= STARTING_RATIO * total:
        return "worker_startup"
    if waiting.handing_over_ns >= STARTING_RATIO * total:
        return "batch_handover"
    if making is None or pipeline is None:
        return "slow_dataset"
    workers, wall, estimate = pipeline.workers, pipeline.step_ns(), pipeline.best_workers()
    if (
        estimate is not None
        and estimate.workers > workers
        and estimate.data_ratio <= HIDDEN_RATIO
        and estimate.step_ns <= (1 - MIN_WORKER_GAIN) * wall
    ):
        finding.evidence.insert(
            0,
            Evidence(
                text=f"{estimate.workers} worker{'s' if estimate.workers > 1 else ''} instead of "
                f"{workers} would hide making batches behind the rest of the step: about "
                f"{estimate.step_ns / 1e6:.0f} ms instead of {wall / 1e6:.0f} ms a step",
                value=estimate.step_ns,
                unit="ns",
                source="input-pipeline",
            ),
        )
        return "too_few_workers"
    if not making.stages:
        if making.collate_ratio >= 0.5:
            return "slow_collate"
        return "slow_reads" if making.cpu_ratio < WAITING_FETCH_CPU_RATIO else "slow_dataset"
    first, second = ([stage.ratio for stage in making.stages] + [0.0])[:2]
    finding.certainty = estimate_lead_probability(first, second, making.sample_count)
    top = making.stages[0].stage
    if top == "other" and making.cpu_ratio < WAITING_FETCH_CPU_RATIO:
        return "slow_reads"
    if top == "other":
        finding.certainty *= UNRECOGNISED
    return STAGE_CAUSES[top]


def _inline_data(rank: Rank, shares: Shares) -> Finding:
    work = rank.host_work
    lines = work.lines if work is not None else []
    return Finding(
        cause="inline_data_preparation",
        stages=[
            Stage(
                name="preparing batches in the training thread",
                detail="no DataLoader",
                share_ratio=shares.inline_data,
            )
        ],
        evidence=[line_evidence(line.file, line.line, line.text, line.ratio) for line in lines[:3]],
    )
