"""Causes of late batches."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from stepscope import analysis, run
from stepscope.diagnosis.causes import wait_causes
from stepscope.diagnosis.causes.cause import (
    CONTRIBUTING_RATIO,
    MIN_CONTRIBUTING_RATIO,
    CauseFinding,
    CauseInputs,
    describe_utilization,
    explain_missing_batches,
)
from stepscope.diagnosis.causes.stalls import list_lines, name_first
from stepscope.diagnosis.shares.pipeline_model import Pipeline, WorkerEstimate
from stepscope.diagnosis.shares.shares import Shares
from stepscope.diagnosis.verdict import UNKNOWN, Evidence, Stage
from stepscope.quantities import count_of, duration, number, percent

STARTING_RATIO = 0.5
"""Starting iterators, or handing over batches, is the cause from this share of the waiting on."""
MAIN_WAIT_RATIO = 0.5
"""A wait for what fills batches is the cause from this share of the data pipeline on."""
MAX_DATA_RATIO = 0.15
"""Too few workers are the cause if more of them bring the waiting below this share of the step …"""
MIN_WORKER_GAIN = 0.25
"""… and shorten the step by at least this much."""
STAGE_CAUSES = {
    "lock": "waiting_for_a_lock",
    "read": "slow_reads",
    "decode": "slow_decode",
    "augment": "slow_augmentation",
    "tokenise": "slow_tokenisation",
    "collate": "slow_collate",
    "other": "slow_dataset",
}


def find_starved_rank(ranks: Sequence[run.Rank]) -> run.Rank:
    """Find the rank that waits longest for batches."""
    return max(ranks, key=lambda rank: rank.waiting.total_ns)


def find_data_pipeline_cause(inputs: CauseInputs) -> CauseFinding:
    """Find the cause of late batches on the rank that waits longest for them."""
    rank, shares = inputs.starved_rank, inputs.shares
    waits = wait_causes.list_input_waits(inputs)
    if waits and waits[0].share >= MAIN_WAIT_RATIO * shares.suspects["data_pipeline"]:
        finding = wait_causes.describe_waits(waits)
        finding.certainty = _estimate_inline_certainty(inputs, waits[0].share)
        return finding
    if shares.inline_data > shares.phases["data_wait"] + shares.phases["h2d"]:
        return _describe_inline_data(inputs)
    if shares.phases["h2d"] > shares.phases["data_wait"]:
        share = shares.phases["h2d"]
        return CauseFinding(
            cause="host_to_device_copies",
            stages=[Stage(name="copies to the device", detail="", share_ratio=share)],
        )
    waiting, making = _add_worker_contention(inputs), rank.making
    data_share = shares.phases["data_wait"] - shares.delayed_by_others + shares.worker_contention
    finding = CauseFinding(cause=UNKNOWN)
    finding.stages = _list_stages(waiting, making, data_share)
    finding.evidence = _collect_evidence(rank, waiting, making)
    if shares.worker_contention >= CONTRIBUTING_RATIO:
        finding.evidence.insert(0, _describe_worker_contention(shares))
    finding.cause = _find_making_cause(inputs.pipeline, waiting, making, finding)
    if finding.cause == UNKNOWN:
        finding.certainty = 1.0
        finding.missing = explain_missing_batches(rank, making)
        finding.evidence += describe_utilization(inputs.run)
    if shares.inline_data >= CONTRIBUTING_RATIO:
        inline = _describe_inline_data(inputs)
        finding.stages += inline.stages
        finding.contributing.append(
            (inline.cause, shares.inline_data, inline.reason or inline.evidence[0].text)
        )
    # Other causes are those that remain with the fix of the first one.
    data_share *= _measure_remaining(inputs.pipeline, finding.cause)
    for cause, share, text in _list_contributing(waiting, making, data_share):
        if cause == finding.cause:
            finding.reason = text
        else:
            finding.contributing.append((cause, share, text))
    if finding.reason is None and finding.stages and finding.cause != "too_few_workers":
        largest = finding.stages[0]
        finding.reason = _describe_share(largest.name, largest.share_ratio)
    return finding


def _add_worker_contention(inputs: CauseInputs) -> analysis.DataWait:
    """Add the time in which the training thread had no core because workers had them: it is a cost
    of batch creation, and it makes receiving a finished batch slower."""
    rank = inputs.starved_rank
    waiting = inputs.split.core_waits.correct_waiting(rank.late_batches)
    wall_ns = int(rank.steps.wall_ns[rank.steps.measured()].sum())
    shares = inputs.shares
    contention_ns = round(shares.worker_contention * wall_ns * (1 - shares.without_core))
    return replace(
        waiting,
        total_ns=waiting.total_ns + contention_ns,
        making_ns=waiting.making_ns + contention_ns,
    )


def _describe_worker_contention(shares: Shares) -> Evidence:
    return Evidence(
        text=f"For an estimated {percent(shares.worker_contention)} of step time the training "
        "thread, or a thread that shares its operators, was runnable without a core because the "
        "workers had the cores.",
        value=shares.worker_contention,
        unit="ratio",
        source="system",
    )


def _list_stages(
    waiting: analysis.DataWait, making: analysis.BatchCreation | None, data_share: float
) -> list[Stage]:
    """List the parts of the data share of the step, largest first."""
    if not waiting.total_ns:
        return []
    share_per_ns = data_share / waiting.total_ns
    making_share = waiting.making_ns * share_per_ns
    stages = []
    if making is not None and making.stages:
        for stage in making.stages:
            share = making_share * stage.ratio
            name, detail = _name_stage(stage), _describe_labels(stage)
            stages.append(Stage(name=name, detail=detail, share_ratio=share))
    elif waiting.making_ns:
        stages.append(Stage(name="making batches", detail="", share_ratio=making_share))
    stages += [
        Stage(
            name="starting the loader",
            detail="worker start-up and the first batch",
            share_ratio=waiting.starting_ns * share_per_ns,
        ),
        Stage(
            name="handing over",
            detail="batch was ready",
            share_ratio=waiting.handing_over_ns * share_per_ns,
        ),
    ]
    sizeable = [stage for stage in stages if stage.share_ratio >= 0.005]
    return sorted(sizeable, key=lambda stage: -stage.share_ratio)


def name_dataset_function(making: analysis.BatchCreation | None) -> str | None:
    """Name the function of the dataset's own code that takes the most time; None where the stack
    samples name none."""
    labels = list_labels(making, "other")
    return next((label for label in labels if label != analysis.NO_DATASET_CODE), None)


def list_transforms(making: analysis.BatchCreation | None) -> dict[str, float]:
    """List the transforms of samples by name with their shares of batch creation, largest first."""
    return list_labels(making, "augment")


def list_labels(making: analysis.BatchCreation | None, name: str) -> dict[str, float]:
    """List the parts of a stage by name with their shares of batch creation, largest first."""
    stages = making.stages if making is not None else []
    return next((stage.labels for stage in stages if stage.stage == name), {})


def _measure_remaining(pipeline: Pipeline | None, cause: str) -> float:
    """Measure the share of the cost of batch creation that remains with the fix of a cause: more
    workers may hide all of it behind the rest of the step, fewer do not wait for cores."""
    if pipeline is not None and cause == "too_many_workers":
        return 1 - pipeline.delayed_ratio
    best = pipeline.find_best_workers() if pipeline is not None else None
    if pipeline is None or best is None or cause != "too_few_workers":
        return 1.0
    hidden_ns, present_ns = pipeline.predict_step_ns(fetch_ratio=0.0), pipeline.predict_step_ns()
    remaining_ns = max(0.0, best.step_ns - hidden_ns)
    return remaining_ns / (present_ns - hidden_ns) if present_ns > hidden_ns else 0.0


def _list_contributing(
    waiting: analysis.DataWait, making: analysis.BatchCreation | None, data_share: float
) -> list[tuple[str, float, str]]:
    """List the stages of batch creation that cost enough.

    Args:
        waiting: waiting for batches.
        making: creation of batches.
        data_share: share of the step that it causes.
    """
    if making is None or not waiting.total_ns:
        return []
    making_share = data_share * waiting.making_ns / waiting.total_ns
    return [
        (STAGE_CAUSES[stage.stage], share, _describe_share(_name_stage(stage), share))
        for stage in making.stages
        if (share := stage.ratio * making_share) >= MIN_CONTRIBUTING_RATIO
        and (stage.stage != "other" or name_dataset_function(making) is not None)
    ]


def _describe_share(stage_name: str, share: float) -> str:
    return f"{stage_name[:1].upper()}{stage_name[1:]} takes {percent(share)} of step time."


def _name_stage(stage: analysis.StageShare) -> str:
    """Name a stage, after the library where that is more precise: 'parquet decode'."""
    labels = list(stage.labels.items())
    if stage.stage == "decode" and labels and labels[0][1] > 0.6 * stage.ratio:
        label = labels[0][0]
        if " " in label:
            return label
    return stage.name


def _describe_labels(stage: analysis.StageShare) -> str:
    """Describe the parts of a stage; '' where they do not add to its name."""
    parts = {label: ratio / stage.ratio for label, ratio in stage.labels.items()}
    if list(parts) == [_name_stage(stage)]:
        return ""
    return ", ".join(
        f"{label} {percent(ratio)}" for label, ratio in list(parts.items())[:3] if ratio >= 0.01
    )


def _collect_evidence(
    rank: run.Rank, waiting: analysis.DataWait, making: analysis.BatchCreation | None
) -> list[Evidence]:
    """Collect facts about the input pipeline, most important first."""
    facts: list[tuple[str, float | None, str]] = []
    if waiting.starved_ratio is not None:
        text = (
            f"The prefetch queue was empty for {percent(waiting.starved_ratio)} of batch requests."
        )
        facts.append((text, waiting.starved_ratio, "ratio"))
    if making is not None:
        text = f"Batch creation takes {duration(making.mean_ns)} on average"
        if making.cpu_ratio is not None:
            text += f", {percent(making.cpu_ratio)} of it CPU time"
        facts.append((f"{text}.", making.mean_ns, "ns"))
        if making.worker_busy_ratio is not None:
            busy = percent(making.worker_busy_ratio)
            text = f"Workers spent {busy} of the time creating batches."
            facts.append((text, making.worker_busy_ratio, "ratio"))
        for name, ratio in list(making.transforms.items())[:1]:
            text = f"Transform {name} takes {percent(ratio)} of batch creation time."
            facts.append((text, ratio, "ratio"))
    if rank.loader is not None:
        settings = ", ".join(
            f"{name}={getattr(rank.loader, name)}"
            for name in ("num_workers", "prefetch_factor", "pin_memory", "batch_size")
        )
        facts.append((f"DataLoader settings: {settings}.", None, ""))
    return [
        Evidence(text=text, value=value, unit=unit, source="input-pipeline")
        for text, value, unit in facts
    ]


def _find_making_cause(
    pipeline: Pipeline | None,
    waiting: analysis.DataWait,
    making: analysis.BatchCreation | None,
    finding: CauseFinding,
) -> str:
    """Find the cause within batch creation; extends the evidence and certainty of the finding."""
    total_ns = max(1, waiting.total_ns)
    if pipeline is not None and pipeline.is_crowded:
        finding.evidence.insert(0, _describe_crowd(pipeline))
        return "too_many_workers"
    has_workers = pipeline is None or pipeline.workers > 0
    if has_workers and waiting.starting_ns >= STARTING_RATIO * total_ns:
        return "worker_startup"
    if waiting.handing_over_ns >= STARTING_RATIO * total_ns:
        return "batch_handover"
    if making is None or pipeline is None:
        return UNKNOWN
    step_ns, estimate = pipeline.predict_step_ns(), pipeline.find_best_workers()
    if (
        estimate is not None
        and estimate.workers > pipeline.workers
        and estimate.data_ratio <= MAX_DATA_RATIO
        and estimate.step_ns <= (1 - MIN_WORKER_GAIN) * step_ns
    ):
        finding.evidence.insert(0, _describe_estimate(estimate, pipeline.workers, step_ns))
        return "too_few_workers"
    if not making.stages:
        if making.collate_ratio is not None and making.collate_ratio >= 0.5:
            return "slow_collate"
        return "slow_reads" if pipeline.is_waiting else UNKNOWN
    first, second = ([stage.ratio for stage in making.stages] + [0.0])[:2]
    finding.certainty = analysis.estimate_lead_probability(first, second, making.sample_count)
    finding.evidence_kind = "sampled"
    largest = making.stages[0]
    stage = largest.stage
    if stage == "other" and pipeline.is_waiting:
        return "slow_reads"
    if stage == "other" and name_dataset_function(making) is None:
        return UNKNOWN
    finding.evidence.insert(0, _describe_largest_stage(largest))
    for name, ratio in list(list_transforms(making).items())[:1] if stage == "augment" else ():
        finding.words = f"slow transforms, {name} {percent(ratio)} of batch creation"
    return STAGE_CAUSES[stage]


def _describe_largest_stage(stage: analysis.StageShare) -> Evidence:
    """Describe a stage of batch creation by its share, and those of its parts."""
    name = "transforming samples" if stage.stage == "augment" else _name_stage(stage)
    labels = list(stage.labels.items())
    parts = ", ".join(
        f"{label} {percent(ratio)}" for label, ratio in labels[:3] if ratio >= 0.01 * stage.ratio
    )
    detail = f": {parts}" if parts and _describe_labels(stage) else ""
    text = f"{name[:1].upper()}{name[1:]} takes {percent(stage.ratio)} of batch creation{detail}."
    return Evidence(text=text, value=stage.ratio, unit="ratio", source="input-pipeline")


def _describe_crowd(pipeline: Pipeline) -> Evidence:
    return Evidence(
        text=f"{count_of(pipeline.workers, 'worker')} share {number(pipeline.core_count)} cores: "
        f"batch creation waits for a core for {percent(pipeline.delayed_ratio)} of its time.",
        value=pipeline.delayed_ratio,
        unit="ratio",
        source="input-pipeline",
    )


def _describe_estimate(estimate: WorkerEstimate, workers: int, step_ns: float) -> Evidence:
    return Evidence(
        text=f"{count_of(estimate.workers, 'worker')} instead of {workers} would hide batch "
        f"creation behind the rest of the step: about {duration(estimate.step_ns)} instead of "
        f"{duration(step_ns)} per step.",
        value=estimate.step_ns,
        unit="ns",
        source="input-pipeline",
    )


def _describe_inline_data(inputs: CauseInputs) -> CauseFinding:
    lines, share = list_lines(inputs, "data_preparation"), inputs.shares.inline_data
    stage = "preparing data in the training thread"
    return CauseFinding(
        cause="inline_data_preparation",
        certainty=_estimate_inline_certainty(inputs, share),
        evidence_kind="sampled",
        reason=None if lines else _describe_share(stage, share),
        stages=[Stage(name=stage, detail=name_first(lines), share_ratio=share)],
        evidence=[line.describe() for line in lines[:3]],
    )


def _estimate_inline_certainty(inputs: CauseInputs, share: float) -> float:
    """Estimate the probability that a sampled share is larger than the overhead between phases."""
    works = [work for rank in inputs.run.ranks if (work := rank.host_work) is not None]
    between_phases = inputs.shares.overhead_parts["between_phases"]
    sample_count = sum(sum(work.phase_samples.values()) for work in works)
    return analysis.estimate_lead_probability(share, between_phases, sample_count)
