"""The verdict: which suspect, which cause, how sure, why not the others, what to do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.diagnosis import causes
from stepscope.diagnosis.advice import fixes
from stepscope.diagnosis.causes import Finding
from stepscope.diagnosis.pipeline_model import Pipeline
from stepscope.diagnosis.shares import Proportions, Shares, phase_matrix, proportions, shares_of
from stepscope.diagnosis.signals import Rank, Signals
from stepscope.diagnosis.verdict import (
    SUSPECT_NAMES,
    SUSPECTS,
    Evidence,
    RuledOut,
    Suspect,
    Verdict,
)
from stepscope.diagnosis.what_if import WhatIf
from stepscope.intervals import Intervals, overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When a share of the step is an accusation."""

    min_steps: int = 20
    """Fewer complete steps than this are no evidence."""
    data_pipeline: float = 0.20
    """Seed of the field: below a fifth of the step, loading counts as fixed."""
    communication: float = 0.20
    framework_overhead: float = 0.25
    optimizer: float = 0.40
    """An optimizer that takes this much of the step, and more than both passes, is named."""
    heavy_compute: float = 0.85
    """A model is heavy when it owns this much of the step …"""
    heavy_step_core_ns: float = 200_000_000
    """… and a step keeps one core (or one GPU) busy for this long. Below that, a job that is
    bound by computing simply does its work."""
    outside_core_ratio: float = 0.25
    """Others use this share of the cores …"""
    waiting_ratio: float = 0.20
    """… while the training thread is ready to run without a core for this share of the time."""
    max_dropped_ratio: float = 0.01
    """More dropped records than this, relative to those kept, are a conflict."""
    resamples: int = 200


THRESHOLDS = Thresholds()


_NEED_A_WINDOW: frozenset[Suspect] = frozenset({"model", "healthy"})
"""Coarse times cannot tell these from overhead inside the compute phases."""


def diagnose(signals: Signals, thresholds: Thresholds = THRESHOLDS) -> Verdict:
    """The verdict on a run. Abstains, and says why, where the evidence does not carry one."""
    obstacle = _obstacle(signals, thresholds)
    if obstacle is not None:
        return _abstain(signals, obstacle)
    split = proportions(signals.ranks)
    matrix = phase_matrix(signals.ranks)
    shares = shares_of(matrix, split)
    suspect = _accuse(signals, shares, split, thresholds)
    fed = causes.slowest_fed(signals.ranks)
    pipeline = Pipeline.of(signals, fed)
    if suspect == "data_pipeline":
        finding = causes.data_pipeline_cause(fed, pipeline, shares)
    else:
        finding = _finding(signals, suspect, shares, thresholds)
    share = _owned(suspect, finding, shares)
    return Verdict(
        suspect=suspect,
        cause=finding.cause,
        share_ratio=share,
        confidence_ratio=_confidence(signals, matrix, split, suspect, thresholds),
        headline=_headline(suspect, finding, share),
        stages=finding.stages,
        evidence=[_phase_evidence(shares), *finding.evidence],
        ruled_out=_ruled_out(signals, suspect, shares, split, thresholds),
        fixes=fixes(
            finding,
            WhatIf(signals, shares, _mean_step_ns(signals), fed=fed, pipeline=pipeline),
            loader=fed.loader,
            cores=signals.cores_available,
        ),
        notes=_notes(signals, suspect, split),
        step_count=_measured_count(signals),
        mean_step_ns=_mean_step_ns(signals),
        phases=shares.phases,
    )


def _obstacle(signals: Signals, thresholds: Thresholds) -> str | None:
    """Why no verdict can be given, None when one can."""
    ranks = signals.ranks
    if not ranks:
        return _why_no_steps(signals)
    fewest = min(len(rank.steps) for rank in ranks)
    measured = min(int(rank.steps.measured().sum()) for rank in ranks)
    if fewest < thresholds.min_steps or not measured:
        return (
            f"{fewest} complete steps were recorded and a verdict needs {thresholds.min_steps}: "
            "let the job run longer"
        )
    dropped = sum(process.dropped_count for process in signals.processes)
    kept = signals.reader.row_count("spans")
    if dropped > thresholds.max_dropped_ratio * kept:
        return (
            f"{dropped} records were dropped because the spool was full ({kept} were kept): raise "
            "--spool-limit"
        )
    if all(_nothing_inside(rank) for rank in ranks):
        return (
            "steps were recorded, but no phase of them and no stack sample says what they were "
            "spent on"
        )
    for rank in ranks:
        measured_steps = rank.steps.measured()
        total = rank.steps.wall_ns[measured_steps].sum()
        if rank.steps.phase_ns["other"][measured_steps].sum() < -0.02 * total:
            return f"the phases of {rank.name} overlap by more than its steps are long"
    return None


def _nothing_inside(rank: Rank) -> bool:
    """Whether nothing but the borders of a rank's steps is known."""
    in_phases = sum(
        int(times.sum()) for phase, times in rank.steps.phase_ns.items() if phase != "other"
    )
    return not in_phases and rank.host_work is None


def _why_no_steps(signals: Signals) -> str:
    processes = [process for process in signals.processes if process.role == "main"]
    if not processes and signals.traces:
        return (
            "the run holds recordings and no watched job; stepscope show RUN gpu-time, operators "
            "or steps says what is in them"
        )
    if not processes:
        return (
            "no process of the job recorded anything: no optimizer stepped in a Python that "
            "imports PyTorch, and no stepscope annotation was used"
        )
    notes = [note for process in processes for note in process.notes]
    if notes:
        return f"no training step was seen: {notes[0]}"
    return (
        "no training step was seen: no torch optimizer stepped twice; mark the steps of another "
        "kind of loop with stepscope.step()"
    )


def _abstain(signals: Signals, obstacle: str) -> Verdict:
    return Verdict(
        suspect="insufficient_evidence",
        cause="insufficient_evidence",
        share_ratio=0.0,
        confidence_ratio=0.0,
        headline=f"No verdict: {obstacle}.",
        stages=[],
        evidence=[],
        ruled_out=[],
        fixes=[],
        notes=_loss_notes(signals),
        step_count=sum(len(rank.steps) for rank in signals.ranks),
    )


def _accuse(
    signals: Signals, shares: Shares, split: Proportions, thresholds: Thresholds
) -> Suspect:
    owned = shares.suspects
    limits: dict[Suspect, float] = {
        "data_pipeline": thresholds.data_pipeline,
        "communication": thresholds.communication,
        "framework_overhead": thresholds.framework_overhead,
    }
    accused = [suspect for suspect, limit in limits.items() if owned[suspect] >= limit]
    lost = _lost_to_others(signals, thresholds)
    if lost and all(owned[suspect] <= lost for suspect in accused):
        return "framework_overhead"
    if accused:
        return max(accused, key=lambda suspect: owned[suspect])
    if _heavy_optimizer(shares, thresholds) or _heavy_model(signals, shares, split, thresholds):
        return "model"
    return "healthy"


def _lost_to_others(signals: Signals, thresholds: Thresholds) -> float:
    """Share of the time that the training thread stood without a core because others had it.

    Zero where that is not so, or not known.
    """
    seen, cores = signals.contention, signals.cores_available
    if seen is None or seen.waiting_ratio is None or not cores:
        return 0.0
    taken = seen.outside_cores >= thresholds.outside_core_ratio * cores
    return seen.waiting_ratio if taken and seen.waiting_ratio >= thresholds.waiting_ratio else 0.0


def _heavy_optimizer(shares: Shares, thresholds: Thresholds) -> bool:
    phases = shares.phases
    passes = phases["forward"] + phases["loss"] + phases["backward"]
    return phases["optimizer"] >= max(thresholds.optimizer, passes)


def _heavy_model(
    signals: Signals, shares: Shares, split: Proportions, thresholds: Thresholds
) -> bool:
    if not split.has_window or shares.suspects["model"] < thresholds.heavy_compute:
        return False
    busy = signals.busy_devices
    return busy is not None and busy * _mean_step_ns(signals) >= thresholds.heavy_step_core_ns


def _mean_step_ns(signals: Signals) -> float:
    walls = [rank.steps.wall_ns[rank.steps.measured()] for rank in signals.ranks]
    return float(np.concatenate(walls).mean())


def _finding(signals: Signals, suspect: Suspect, shares: Shares, thresholds: Thresholds) -> Finding:
    """The cause where it does not lie in the data pipeline."""
    if suspect == "model":
        return causes.model_cause(signals, shares)
    if suspect == "communication":
        return causes.communication_cause(signals, shares)
    if suspect == "framework_overhead":
        lost = _lost_to_others(signals, thresholds)
        if lost and lost >= shares.suspects["framework_overhead"]:
            return causes.contention_finding(signals, lost)
        return causes.overhead_cause(signals, shares)
    return Finding(cause="none", stages=causes.model_cause(signals, shares).stages)


def _owned(suspect: Suspect, finding: Finding, shares: Shares) -> float:
    if finding.cause == "cpu_contention":
        return finding.stages[0].share_ratio
    if suspect in SUSPECTS:
        return shares.suspects[suspect]
    return shares.suspects["model"]


def _confidence(
    signals: Signals,
    matrix: NDArray[np.int64],
    split: Proportions,
    suspect: Suspect,
    thresholds: Thresholds,
) -> float:
    """How often resampled steps give the same verdict (circular block bootstrap), times n/(n+5).

    Steps are resampled in blocks, because slow steps come in groups. A verdict on compute
    without a profiler window cannot tell the model from overhead, and counts half.
    """
    count = len(matrix)
    block = max(1, round(count ** (1 / 3)))
    generator = np.random.default_rng(0)
    length = np.full(-(-count // block), block)
    length[-1] -= length.sum() - count
    # The sum of a block is that up to its end less that up to its beginning.
    until = np.zeros((count + block + 1, matrix.shape[1]), dtype=np.int64)
    np.cumsum(np.concatenate([matrix, matrix[:block]]), axis=0, out=until[1:])
    same = 0
    for _ in range(thresholds.resamples):
        begin = generator.integers(0, count, size=len(length))
        sums = until[begin + length] - until[begin]
        resampled = _accuse(signals, shares_of(sums, split), split, thresholds)
        same += resampled == suspect
    steps = _measured_count(signals)
    certainty = same / thresholds.resamples * steps / (steps + 5)
    if suspect in _NEED_A_WINDOW and not split.has_window:
        certainty *= 0.5
    return round(certainty, 3)


def _measured_count(signals: Signals) -> int:
    return sum(int(rank.steps.measured().sum()) for rank in signals.ranks)


def _headline(suspect: Suspect, finding: Finding, share: float) -> str:
    if suspect == "healthy":
        return (
            f"Nothing to accuse: {share:.0%} of the step is the model's own work, and no other "
            "part is large enough to matter."
        )
    what = finding.cause.replace("_", " ")
    name = SUSPECT_NAMES[suspect]
    return f"{name[0].upper()}{name[1:]} owns {share:.0%} of the step; the cause: {what}."


def _phase_evidence(shares: Shares) -> Evidence:
    parts = [
        f"{name.replace('_', ' ')} {share:.0%}"
        for name, share in shares.phases.items()
        if share >= 0.005
    ]
    return Evidence(text="a step is " + ", ".join(parts), source="steps")


def _ruled_out(
    signals: Signals,
    suspect: Suspect,
    shares: Shares,
    split: Proportions,
    thresholds: Thresholds,
) -> list[RuledOut]:
    owned = shares.suspects
    reasons: dict[Suspect, str] = {
        "data_pipeline": f"waiting for batches takes {owned['data_pipeline']:.0%} of the step, "
        f"an accusation needs {thresholds.data_pipeline:.0%}",
        "model": _why_not_model(signals, shares, split),
        "communication": _why_not_communication(signals, shares, thresholds),
        "framework_overhead": f"time between the phases, checkpoints and dispatch take "
        f"{owned['framework_overhead']:.0%} of the step, an accusation needs "
        f"{thresholds.framework_overhead:.0%}",
    }
    limits = {
        "data_pipeline": thresholds.data_pipeline,
        "communication": thresholds.communication,
        "framework_overhead": thresholds.framework_overhead,
    }
    for other, limit in limits.items():
        if owned[other] >= limit:  # type: ignore[index]
            reasons[other] = (  # type: ignore[index]
                f"it owns {owned[other]:.0%} of the step too: look at it next"  # type: ignore[index]
            )
    return [
        RuledOut(suspect=other, share_ratio=owned[other], why=reasons[other])
        for other in SUSPECTS
        if other != suspect
    ]


def _why_not_model(signals: Signals, shares: Shares, split: Proportions) -> str:
    compute = shares.suspects["model"]
    if not split.has_window:
        return f"computing takes {compute:.0%} of the step"
    profile = next(p for rank in signals.ranks if (p := rank.compute_profile) is not None)
    return (
        f"sizeable operators take {compute:.0%} of the step; half of the operators' time is in "
        f"operators of at least {profile.median_work_ns / 1e6:.2g} ms"
    )


def _why_not_communication(signals: Signals, shares: Shares, thresholds: Thresholds) -> str:
    if len(signals.ranks) == 1 and not shares.suspects["communication"]:
        return "one rank, no collectives"
    return (
        f"exposed communication takes {shares.suspects['communication']:.0%} of the step, an "
        f"accusation needs {thresholds.communication:.0%}"
    )


def _notes(signals: Signals, suspect: Suspect, split: Proportions) -> list[str]:
    notes = _loss_notes(signals)
    extents = [Intervals(rank.steps.start[:1], rank.steps.end[-1:]) for rank in signals.ranks]
    evaluation = sum(
        int(overlap(extent, rank.steps.evaluation).sum())
        for extent, rank in zip(extents, signals.ranks, strict=True)
    )
    span = sum(extent.total_ns for extent in extents)
    if evaluation and evaluation >= 0.1 * span:
        notes.append(
            f"evaluation takes {evaluation / span:.0%} of the time from the first step to the last"
        )
    if not split.has_window and suspect in _NEED_A_WINDOW:
        notes.append(
            "no profiler window was recorded: overhead inside the compute phases cannot be told "
            "from the model's own work"
        )
    return notes


def _loss_notes(signals: Signals) -> list[str]:
    notes = list(signals.reader.damage)
    for process in signals.processes:
        notes.extend(f"process {process.pid}: {note}" for note in process.notes)
        if process.dropped_count:
            notes.append(
                f"process {process.pid}: {process.dropped_count} records were dropped because the "
                "spool was full"
            )
    for status in signals.reader.statuses().values():
        notes.extend(status.notes)
    return notes
