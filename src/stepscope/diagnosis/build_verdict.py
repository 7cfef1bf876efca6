"""The verdict: which suspect, which cause, how sure, why not the others, what to do."""

from __future__ import annotations

from stepscope.diagnosis.advice import fixes
from stepscope.diagnosis.attribution import (
    NEED_A_WINDOW,
    THRESHOLDS,
    Accusation,
    Judge,
    Thresholds,
)
from stepscope.diagnosis.cause import RIGHT_WHEN_STABLE, Case, Finding
from stepscope.diagnosis.causes import LACK_OF_CORES, find_cause, other_causes
from stepscope.diagnosis.data_causes import slowest_fed
from stepscope.diagnosis.overhead_causes import neighbours
from stepscope.diagnosis.pipeline_model import Pipeline
from stepscope.diagnosis.shares import Proportions, Shares, phase_matrix, proportions, shares_of
from stepscope.diagnosis.verdict import (
    LOOP_SHARE,
    STEP_SHARE,
    SUSPECT_NAMES,
    SUSPECTS,
    Evidence,
    RuledOut,
    Suspect,
    Verdict,
)
from stepscope.diagnosis.what_if import WhatIf
from stepscope.run import Rank, Run, embedding_ratio

MENTIONED_EVALUATION = 0.1
MENTIONED_THROTTLING = 0.05
MENTIONED_LOSS = 0.05
"""Share of the step."""


def diagnose(run: Run, thresholds: Thresholds = THRESHOLDS) -> Verdict:
    """The verdict on a run. Abstains, and says why, where the evidence does not carry one."""
    obstacle = _obstacle(run, thresholds)
    if obstacle is not None:
        return _abstain(run, obstacle)
    split = proportions(run.ranks)
    matrix = phase_matrix(run.ranks)
    shares = shares_of(matrix, split)
    judge = Judge(run, split, thresholds)
    accused = judge.accuse(shares)
    step_ns = run.mean_step_ns
    fed = slowest_fed(run.ranks)
    pipeline = Pipeline.of(run, fed)
    case = Case(run=run, shares=shares, split=split, fed=fed, pipeline=pipeline)
    finding = find_cause(case, accused)
    also = other_causes(case, finding, accused, judge.accusations(shares))
    stability = judge.stability(matrix, accused, _measured_count(run))
    return Verdict(
        suspect=accused.suspect,
        cause=finding.cause,
        share_ratio=accused.share,
        share_of=LOOP_SHARE if finding.cause == "evaluation" else STEP_SHARE,
        confidence_ratio=round(stability * finding.certainty * RIGHT_WHEN_STABLE, 3),
        headline=_headline(accused, finding),
        stages=finding.stages,
        evidence=[_phase_evidence(shares), *finding.evidence],
        ruled_out=_ruled_out(run, accused.suspect, shares, thresholds),
        also=also,
        fixes=fixes(
            finding,
            also,
            WhatIf(run, shares, split, step_ns, fed=fed, pipeline=pipeline),
            loader=fed.loader,
            cores=run.cores_available,
            embedding_ratio=embedding_ratio(run.ranks[0]),
        ),
        notes=_notes(run, accused, split, shares),
        step_count=_measured_count(run),
        mean_step_ns=step_ns,
        phases=shares.phases,
    )


def _obstacle(run: Run, thresholds: Thresholds) -> str | None:
    """Why no verdict can be given, None when one can."""
    ranks = run.ranks
    if not ranks:
        return _why_no_steps(run)
    fewest = min(len(rank.steps) for rank in ranks)
    measured = min(int(rank.steps.measured().sum()) for rank in ranks)
    if fewest < thresholds.min_steps or not measured:
        return (
            f"{fewest} complete steps were recorded and a verdict needs {thresholds.min_steps}: "
            "let the job run longer"
        )
    dropped = sum(process.dropped_count for process in run.processes)
    kept = run.reader.row_count("spans")
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


def _why_no_steps(run: Run) -> str:
    processes = [process for process in run.processes if process.role == "main"]
    if not processes and run.traces:
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


def _abstain(run: Run, obstacle: str) -> Verdict:
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
        notes=_loss_notes(run),
        step_count=sum(len(rank.steps) for rank in run.ranks),
    )


def _measured_count(run: Run) -> int:
    return sum(int(rank.steps.measured().sum()) for rank in run.ranks)


def _headline(accused: Accusation, finding: Finding) -> str:
    suspect, share = accused.suspect, accused.share
    if suspect == "healthy":
        return (
            f"Nothing to accuse: {share:.0%} of the step is the model's own work, and no other "
            "part is large enough to matter."
        )
    if finding.cause == "evaluation":
        return f"Evaluation takes {share:.0%} of the time that training and evaluation take."
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
    run: Run,
    suspect: Suspect,
    shares: Shares,
    thresholds: Thresholds,
) -> list[RuledOut]:
    owned = shares.suspects
    reasons: dict[Suspect, str] = {
        "data_pipeline": f"waiting for batches takes {owned['data_pipeline']:.0%} of the step, "
        f"an accusation needs {thresholds.data_pipeline:.0%}",
        "model": _why_not_model(run, shares),
        "communication": _why_not_communication(run, shares, thresholds),
        "framework_overhead": f"time between the phases, checkpoints and dispatch take "
        f"{owned['framework_overhead']:.0%} of the step, an accusation needs "
        f"{thresholds.framework_overhead:.0%}",
    }
    for other, limit in thresholds.of_suspects.items():
        if owned[other] >= limit:
            reasons[other] = f"it owns {owned[other]:.0%} of the step too: look at it next"
    return [
        RuledOut(suspect=other, share_ratio=owned[other], why=reasons[other])
        for other in SUSPECTS
        if other != suspect
    ]


def _why_not_model(run: Run, shares: Shares) -> str:
    compute = shares.suspects["model"]
    profile = run.compute_profile
    if profile is None:
        return f"computing takes {compute:.0%} of the step"
    return (
        f"sizeable operators take {compute:.0%} of the step; half of the operators' time is in "
        f"operators of at least {profile.median_work_ns / 1e6:.2g} ms"
    )


def _why_not_communication(run: Run, shares: Shares, thresholds: Thresholds) -> str:
    if len(run.ranks) == 1 and not shares.suspects["communication"]:
        return "one rank, no collectives"
    return (
        f"exposed communication takes {shares.suspects['communication']:.0%} of the step, an "
        f"accusation needs {thresholds.communication:.0%}"
    )


def _notes(run: Run, accused: Accusation, split: Proportions, shares: Shares) -> list[str]:
    notes = _loss_notes(run)
    if split.evaluation >= MENTIONED_EVALUATION and accused.cause != "evaluation":
        notes.append(
            f"evaluation takes {split.evaluation:.0%} of the time from the first measured step to "
            "the last"
        )
    seen = run.contention
    if (
        seen is not None
        and seen.throttled_ratio >= MENTIONED_THROTTLING
        and accused.cause != "cpu_limit"
    ):
        notes.append(
            f"the CPU quota of the job was used up {seen.throttled_ratio:.0%} of the time: all "
            "that it does on the host takes longer for it"
        )
    if shares.late_for_others >= MENTIONED_LOSS and accused.cause not in LACK_OF_CORES:
        notes.append(
            f"for {shares.late_for_others:.0%} of the step a batch lay ready, but others than the "
            f"workers had the cores, which counts for no suspect: {neighbours(run)}"
        )
    if not split.has_window and accused.suspect in NEED_A_WINDOW:
        notes.append(
            "no profiler window was recorded: overhead inside the compute phases cannot be told "
            "from the model's own work"
        )
    return notes


def _loss_notes(run: Run) -> list[str]:
    notes = list(run.reader.damage)
    for process in run.processes:
        notes.extend(f"process {process.pid}: {note}" for note in process.notes)
        if process.dropped_count:
            notes.append(
                f"process {process.pid}: {process.dropped_count} records were dropped because the "
                "spool was full"
            )
    for status in run.reader.statuses().values():
        notes.extend(status.notes)
    return notes
