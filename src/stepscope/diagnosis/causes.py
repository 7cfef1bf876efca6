"""Which cause within a suspect, and the evidence for it.

Each function looks at one suspect's signals and returns what it found. Names of causes are part
of the command line's JSON and do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stepscope.analysis.input_pipeline import Making, StageShare, Waiting
from stepscope.analysis.operators import ComputeProfile
from stepscope.analysis.statistics import distribution
from stepscope.diagnosis.pipeline_model import Pipeline
from stepscope.diagnosis.shares import Shares
from stepscope.diagnosis.signals import Rank, Signals
from stepscope.diagnosis.verdict import Evidence, Stage

STARTING_RATIO = 0.5
"""Starting iterators is the cause when it makes up this much of the waiting."""
HIDDEN_RATIO = 0.15
"""More workers are the fix when they would bring the data share of the step below this."""
WAITING_FETCH_CPU_RATIO = 0.4
"""A fetch that uses less CPU than this of its time waits for something outside."""
CONTRIBUTING_RATIO = 0.1
"""A stage with this share of the step is worth a fix of its own."""
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


@dataclass(slots=True, kw_only=True)
class Finding:
    """A cause with what speaks for it."""

    cause: str
    stages: list[Stage] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    contributing: list[tuple[str, str]] = field(default_factory=list)
    """Causes that are worth a fix as well, each with the reason, the largest first."""


def data_pipeline_cause(rank: Rank, pipeline: Pipeline | None, shares: Shares) -> Finding:
    """Why batches come late.

    Args:
        rank: the one that waits longest for them.
        pipeline: how it is fed, None where nobody saw that.
        shares: of the job's step.
    """
    if shares.inline_data > shares.phases["data_wait"] + shares.phases["h2d"]:
        return _inline_data(rank, shares)
    if shares.phases["h2d"] > shares.phases["data_wait"]:
        return Finding(
            cause="host_to_device_copies",
            stages=[
                Stage(name="copies to the device", detail="", share_ratio=shares.phases["h2d"])
            ],
        )
    waiting, making = rank.waiting, rank.making
    finding = Finding(cause="slow_dataset", stages=_data_stages(waiting, making, shares))
    finding.evidence = _data_evidence(rank, waiting, making)
    finding.cause = _making_cause(pipeline, waiting, making, finding)
    finding.contributing = _contributing(waiting, making, shares)
    return finding


def overhead_cause(signals: Signals, shares: Shares) -> Finding:
    """What keeps the host from feeding operators."""
    parts = shares.overhead_parts
    largest = max(parts, key=lambda name: parts[name])
    stages = [
        Stage(name=_PART_NAMES[name], detail="", share_ratio=share)
        for name, share in sorted(parts.items(), key=lambda item: -item[1])
        if share >= 0.01
    ]
    if largest == "checkpoint":
        return Finding(cause="checkpoint", stages=stages, evidence=_checkpoint_evidence(signals))
    if largest == "inside_compute":
        profile = next((r.compute_profile for r in signals.ranks if r.compute_profile), None)
        assert profile is not None  # noqa: S101 - without a window this part is zero
        cause = "tiny_operators" if profile.small_ratio >= 0.5 else "dispatch_overhead"
        return Finding(cause=cause, stages=stages, evidence=_operator_evidence(profile))
    return _between_phases(signals, stages)


def model_cause(signals: Signals, shares: Shares) -> Finding:
    """Which part of the model's own work is the largest."""
    phases = shares.phases
    passes = phases["forward"] + phases["loss"] + phases["backward"]
    cause = "optimizer" if phases["optimizer"] > passes else "compute"
    stages = [
        Stage(name=name, detail="", share_ratio=phases[name])
        for name in sorted(("forward", "loss", "backward", "optimizer"), key=lambda n: -phases[n])
        if phases[name] >= 0.01
    ]
    evidence = []
    profile = next((r.compute_profile for r in signals.ranks if r.compute_profile), None)
    if profile is not None:
        evidence += _operator_evidence(profile)
    for optimizer in (signals.ranks[0].facts("optimizer") or [])[:1]:
        evidence.append(
            Evidence(
                text=f"{optimizer['name']} updates {optimizer['parameter_count']:,} parameters in "
                f"{optimizer['tensor_count']} tensors every step",
                value=optimizer["parameter_count"],
                unit="count",
                source="steps",
            )
        )
    return Finding(cause=cause, stages=stages, evidence=evidence)


def communication_cause(signals: Signals, shares: Shares) -> Finding:
    """Explicit collectives, or the gradient exchange of DDP."""
    explicit = shares.phases["communication"]
    exchange = shares.suspects["communication"] - explicit
    cause = "gradient_exchange" if exchange >= explicit else "collectives"
    stages = [
        Stage(name=name, detail="", share_ratio=share)
        for name, share in (
            ("gradient exchange that nothing hides", exchange),
            ("collectives called by the script", explicit),
        )
        if share >= 0.01
    ]
    evidence = [
        Evidence(
            text=f"{len(signals.ranks)} ranks; DistributedDataParallel itself measured the "
            "exchange and its overlap with the backward pass",
            value=len(signals.ranks),
            unit="count",
            source="steps",
        )
    ]
    return Finding(cause=cause, stages=stages, evidence=evidence)


def contention_finding(signals: Signals, lost: float) -> Finding:
    """Others take the cores, and the training thread loses this share of its time to them."""
    seen = signals.contention
    assert seen is not None  # noqa: S101 - asked only when contention was found
    return Finding(
        cause="cpu_contention",
        stages=[
            Stage(
                name="ready to run, but without a core",
                detail="main thread of the training process",
                share_ratio=lost,
            )
        ],
        evidence=[
            Evidence(
                text=f"processes outside the job kept {seen.outside_cores:.1f} of "
                f"{signals.cores_available or 0:g} cores busy while it trained",
                value=seen.outside_cores,
                unit="count",
                source="system",
            ),
            Evidence(
                text=f"the training thread was ready to run but had no core for "
                f"{lost:.0%} of the time",
                value=lost,
                unit="ratio",
                source="system",
            ),
        ],
    )


_PART_NAMES = {
    "checkpoint": "writing checkpoints",
    "between_phases": "Python between the phases",
    "inside_compute": "dispatch inside the compute phases",
}


def slowest_fed(ranks: Sequence[Rank]) -> Rank:
    """The rank that waits longest for batches."""
    return max(ranks, key=lambda rank: rank.waiting.total_ns)


def _data_stages(waiting: Waiting, making: Making | None, shares: Shares) -> list[Stage]:
    """What the data share of the step consists of, largest first."""
    if not waiting.total_ns:
        return []
    per_ns = shares.phases["data_wait"] / waiting.total_ns
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


def _contributing(waiting: Waiting, making: Making | None, shares: Shares) -> list[tuple[str, str]]:
    if making is None or not waiting.total_ns:
        return []
    of_step = shares.phases["data_wait"] * waiting.making_ns / waiting.total_ns
    return [
        (
            STAGE_CAUSES[stage.stage],
            f"{_stage_name(stage)} takes {stage.ratio * of_step:.0%} of the step",
        )
        for stage in making.stages
        if stage.ratio * of_step >= CONTRIBUTING_RATIO
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


def _data_evidence(rank: Rank, waiting: Waiting, making: Making | None) -> list[Evidence]:
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
    pipeline: Pipeline | None, waiting: Waiting, making: Making | None, finding: Finding
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
    top = making.stages[0].stage
    if top == "other" and making.cpu_ratio < WAITING_FETCH_CPU_RATIO:
        return "slow_reads"
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
        evidence=[
            _line_evidence(line.file, line.line, line.text, line.ratio) for line in lines[:3]
        ],
    )


def _line_evidence(file: str, line: int, text: str, ratio: float) -> Evidence:
    name = file.rpartition("/")[2]
    return Evidence(
        text=f"{name}:{line} takes {ratio:.0%} of the time between phases: {text}".rstrip(": "),
        value=ratio,
        unit="ratio",
        source="steps",
    )


def _between_phases(signals: Signals, stages: list[Stage]) -> Finding:
    works = [work for rank in signals.ranks if (work := rank.host_work) is not None]
    if not works:
        return Finding(cause="python_overhead", stages=stages)
    work = max(works, key=lambda w: w.sample_count)
    causes = {c: r for c, r in work.causes.items() if c not in {"data_preparation", "checkpoint"}}
    top = max(causes, key=lambda c: causes[c]) if causes else "python"
    cause = "python_overhead" if top == "python" else top
    return Finding(
        cause=cause,
        stages=stages,
        evidence=[_line_evidence(w.file, w.line, w.text, w.ratio) for w in work.lines[:3]],
    )


def _checkpoint_evidence(signals: Signals) -> list[Evidence]:
    saves = [rank.spans.of("checkpoint") for rank in signals.ranks]
    durations = np.concatenate([save.duration for save in saves])
    summary = distribution(durations)
    if summary is None:
        return []
    sizes = np.concatenate([save.value for save in saves])
    return [
        Evidence(
            text=f"{summary.count} saves of {sizes.mean() / 1e6:.0f} MB took "
            f"{summary.mean / 1e6:.0f} ms each",
            value=summary.mean,
            unit="ns",
            source="steps",
        )
    ]


def _operator_evidence(profile: ComputeProfile) -> list[Evidence]:
    largest = ", ".join(f"{name} {ratio:.0%}" for name, ratio in list(profile.largest.items())[:3])
    return [
        Evidence(
            text=f"{profile.operator_count_per_step:,.0f} operators a step, "
            f"{profile.small_ratio:.0%} of them shorter than 20 us",
            value=profile.operator_count_per_step,
            unit="count",
            source="steps",
        ),
        Evidence(
            text=f"sizeable operators run for {1 - profile.overhead_ratio:.0%} of the compute "
            f"phases; the largest: {largest}",
            value=1 - profile.overhead_ratio,
            unit="ratio",
            source="steps",
        ),
    ]
