"""Verdict on a job that was recorded from outside: stacks and use of devices, without steps.

Stacks show how much of its time the training thread waits for batches, and what the processes that
create them do. They do not show what a GPU does meanwhile, nor what the rest of a step waits for: a
verdict on another suspect needs steps or a window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import NormalDist

from stepscope import analysis, schema
from stepscope.diagnosis.causes.attribution import AttributionThresholds
from stepscope.diagnosis.causes.data_causes import STAGE_CAUSES
from stepscope.diagnosis.measured import UNMEASURED_RATIO
from stepscope.diagnosis.sentences import list_bars
from stepscope.diagnosis.traces import diagnose_traces
from stepscope.diagnosis.verdict import (
    UNKNOWN,
    Evidence,
    Fix,
    SuspectShare,
    Verdict,
    make_abstention,
    name_cause,
)
from stepscope.quantities import count_of, percent
from stepscope.run import IDLE_GPU_RATIO, Run

MIN_SECONDS = 10
"""Seconds with samples of a training thread that a verdict needs."""
MIN_STAGE_RATIO = 0.5
"""A stage is the cause from this share of batch creation, if its processes are busy for as much of
the time."""
QUANTILE = NormalDist().inv_cdf(0.95)
SHARE_OF = "time of the training threads while attached"
FULL_RECORDING = "for a verdict on every suspect, start the job with `stepscope run -- CMD`"


def diagnose_attached(run: Run, thresholds: AttributionThresholds, notes: Sequence[str]) -> Verdict:
    """Diagnose a job that was recorded from outside. Abstains where its evidence does not tell.

    Args:
        run: a run without steps.
        thresholds: those of verdicts on jobs.
        notes: notes on the run, for the verdict.
    """
    samples = {process.process: run.stack_samples(process) for process in run.processes}
    measured = [(p, analysis.measure_thread_activity(samples[p.process])) for p in run.processes]
    training = [(p, a) for p, a in measured if p.role == "main" and a.is_training]
    busy_ratio = _measure_gpus(run)
    obstacle = _find_obstacle([a for _, a in measured], [a for _, a in training])
    if obstacle is None:
        share = analysis.estimate_wait_share([activity for _, activity in training])
        if _is_exceeded(share, busy_ratio, thresholds.data_pipeline):
            creators = [worker for process, _ in training for worker in run.workers_of(process)]
            creators = creators or [process for process, _ in training]
            work = analysis.measure_sampled_batches(
                [samples[creator.process] for creator in creators]
            )
            return _accuse(run, share, busy_ratio, thresholds, training, work, notes)
        obstacle = (
            f"training threads waited for batches in {percent(share.ratio)} of "
            f"{_count_samples(training)}{_name_busy_gpus(busy_ratio)}, and stacks alone do not "
            "tell model, communication and overhead apart"
        )
    if run.traces:
        return diagnose_traces(run, thresholds, notes)
    evidence = [] if busy_ratio is None else [_describe_gpus(busy_ratio)]
    return make_abstention(
        f"attached from outside: {obstacle}; {FULL_RECORDING}",
        [*(item.text for item in evidence), *notes],
        evidence_kind="sampled",
    )


def _find_obstacle(
    processes: Sequence[analysis.ThreadActivity], training: Sequence[analysis.ThreadActivity]
) -> str | None:
    """Find the reason why stacks give no verdict; None where they may."""
    sample_count = sum(activity.sample_count for activity in processes)
    if not sample_count:
        return "no stacks were sampled, and nothing else tells what the job waits for"
    if not training:
        return (
            f"in {count_of(sample_count, 'stack sample')}, no process ran a DataLoader, a module, "
            "a backward pass or an optimizer of PyTorch"
        )
    seconds = sum(len(activity.wait_blocks) for activity in training)
    if seconds < MIN_SECONDS:
        return (
            f"the stacks of training threads cover {count_of(seconds, 'second')}, a verdict needs "
            f"{MIN_SECONDS}; attach for longer"
        )
    return None


def _is_exceeded(share: analysis.SampledShare, busy_ratio: float | None, threshold: float) -> bool:
    """Check whether waiting surely exceeds its threshold, and is not hidden behind work of GPUs."""
    exposed = share.ratio if busy_ratio is None else min(share.ratio, 1 - busy_ratio)
    return exposed - QUANTILE * share.standard_error > threshold


def _accuse(  # noqa: PLR0917
    run: Run,
    share: analysis.SampledShare,
    busy_ratio: float | None,
    thresholds: AttributionThresholds,
    training: Sequence[tuple[schema.ProcessInfo, analysis.ThreadActivity]],
    work: analysis.SampledBatchWork | None,
    notes: Sequence[str],
) -> Verdict:
    """Make the verdict that the data pipeline is the bottleneck."""
    cause, is_inline = UNKNOWN, not any(run.workers_of(process) for process, _ in training)
    phases = _measure_phases([activity for _, activity in training])
    evidence = [_describe_phases(phases), _describe_wait(share, training)]
    if busy_ratio is not None:
        evidence.append(_describe_gpus(busy_ratio))
    if work is not None:
        evidence.append(_describe_work(work, is_inline=is_inline))
        stage, ratio = next(iter(work.stages.items()))
        is_busy = is_inline or work.busy_ratio >= MIN_STAGE_RATIO
        if is_busy and ratio >= MIN_STAGE_RATIO:
            cause = STAGE_CAUSES[stage]
    cores = _describe_cores(run, training)
    evidence += [] if cores is None else [cores]
    distance = (share.ratio - thresholds.data_pipeline) / share.standard_error
    accuracy = UNMEASURED_RATIO
    words = f"Cause: {name_cause(cause)}." if cause != UNKNOWN else "Cause: not found from outside."
    return Verdict(
        suspect="data_pipeline",
        cause=cause,
        share_ratio=share.ratio,
        share_of=SHARE_OF,
        confidence_ratio=round(NormalDist().cdf(distance) * accuracy, 3),
        evidence_kind="sampled",
        headline=f"Attached from outside: training threads wait for the data pipeline for "
        f"{percent(share.ratio)} of their time. {words}",
        stages=[],
        evidence=evidence,
        ruled_out=[],
        suspects=[
            SuspectShare(suspect="data_pipeline", share_ratio=share.ratio, share_of=SHARE_OF)
        ],
        fixes=[_advise(cause, work)],
        phases=phases,
        bars=list_bars(phases),
        notes=[f"Other suspects cannot be told from outside; {FULL_RECORDING}.", *notes],
    )


def _measure_phases(training: Sequence[analysis.ThreadActivity]) -> dict[str, float]:
    """Compute the shares of the activities of training threads, largest first."""
    counts: Counter[str] = Counter()
    for activity in training:
        counts.update(activity.counts)
    return {name: count / counts.total() for name, count in counts.most_common()}


def _describe_phases(phases: Mapping[str, float]) -> Evidence:
    parts = [f"{name.replace('_', ' ')} {percent(share)}" for name, share in phases.items()]
    return Evidence(text=f"Time of the training threads by activity: {', '.join(parts)}.")


def _advise(cause: str, work: analysis.SampledBatchWork | None) -> Fix:
    if work is None or cause == UNKNOWN:
        return Fix(
            title="Time the batches",
            instructions="start the job with `stepscope run -- CMD`, which times every stage of "
            "batch creation and predicts the saving of each fix",
            why="Stacks from outside do not show why batches are late.",
        )
    stage = analysis.STAGE_LABELS[next(iter(work.stages))]
    return Fix(
        title=f"Shorten {stage}",
        instructions=f"make {work.label} faster or do it once, before training; more DataLoader "
        "workers help where cores are free. `stepscope run -- CMD` predicts the saving of each",
        why=f"{stage.capitalize()} has most samples of batch creation.",
    )


def _describe_wait(
    share: analysis.SampledShare,
    training: Sequence[tuple[schema.ProcessInfo, analysis.ThreadActivity]],
) -> Evidence:
    margin = NormalDist().inv_cdf(0.975) * share.standard_error
    low, high = max(0.0, share.ratio - margin), min(1.0, share.ratio + margin)
    return Evidence(
        text=f"Training threads waited for batches in {percent(share.ratio)} of "
        f"{_count_samples(training)} (95% interval {percent(low)} to {percent(high)}).",
        value=share.ratio,
        unit="ratio",
    )


def _describe_work(work: analysis.SampledBatchWork, *, is_inline: bool) -> Evidence:
    stages = [
        f"{analysis.STAGE_LABELS[name]} {percent(part)}" for name, part in work.stages.items()
    ]
    creator = (
        "The training thread itself"
        if is_inline
        else count_of(work.process_count, "DataLoader worker")
    )
    return Evidence(
        text=f"{creator} created batches in {percent(work.busy_ratio)} of the samples: "
        f"{', '.join(stages)}. Most of it is in {work.label}.",
        value=work.busy_ratio,
        unit="ratio",
    )


def _describe_cores(
    run: Run, training: Sequence[tuple[schema.ProcessInfo, analysis.ThreadActivity]]
) -> Evidence | None:
    """Describe the CPU time of the workers; None without workers or samples."""
    workers = [worker for process, _ in training for worker in run.workers_of(process)]
    cores = analysis.average_present(
        run.metrics[worker.node].mean("process_cpu_cores", str(worker.pid))
        for worker in workers
        if worker.node in run.metrics
    )
    if cores is None:
        return None
    text = f"A DataLoader worker used {percent(cores)} of one core on average."
    return Evidence(text=text, value=cores, unit="cores", source="system")


def _measure_gpus(run: Run) -> float | None:
    """Measure the busy share of the GPUs in use; None without any."""
    means = [
        metrics.mean("gpu_busy_ratio", gpu)
        for metrics in run.metrics.values()
        for gpu in metrics.devices_of("gpu_busy_ratio")
    ]
    return analysis.average_present(
        mean for mean in means if mean is not None and mean >= IDLE_GPU_RATIO
    )


def _describe_gpus(busy_ratio: float) -> Evidence:
    return Evidence(
        text=f"The GPUs in use had no work for {percent(1 - busy_ratio)} of the time.",
        value=1 - busy_ratio,
        unit="ratio",
        source="system",
    )


def _name_busy_gpus(busy_ratio: float | None) -> str:
    return "" if busy_ratio is None else f" while GPUs were busy for {percent(busy_ratio)}"


def _count_samples(training: Sequence[tuple[schema.ProcessInfo, analysis.ThreadActivity]]) -> str:
    return count_of(sum(activity.sample_count for _, activity in training), "stack sample")
