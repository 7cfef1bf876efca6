"""Verdict on the operations of a job with pipeline and data parallelism.

Its steps are replayed without launch delays (`analysis.stage_slowdown`). The job has a straggler if
they take at least 1.1 times as long as ideal ones. The cause is the change that gains most of what
there is to gain, if it is at least half: making the slowest workers as fast as the average, or the
slowest stage, the inputs or the communication.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, quantities
from stepscope.diagnosis import verdict
from stepscope.diagnosis.measured import estimate_accuracy
from stepscope.diagnosis.sentences import list_bars
from stepscope.quantities import count_of, duration, figure, percent
from stepscope.run import Run, read_stage_operations

MIN_SLOWDOWN = 1.1
"""S of a job with stragglers, https://arxiv.org/abs/2505.05713, section 4."""
MIN_GAIN = 0.5
"""Share of what there is to gain from which a change names the cause, section 5."""
MIN_CORRELATION = 0.9
"""Inputs of different sizes, and not noise, vary forward and backward times alike, section 5.3."""
LISTED_WORKERS = 3
RESAMPLES = 200
UNEVEN = "uneven_ranks"
"""Cause where no single change gains half."""


class _Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change that would make the steps shorter."""

    cause: str
    suspect: verdict.Suspect
    changed_ns: NDArray[np.float64]
    """Replayed steps with the change."""
    subject: str
    """What is slow, for the headline; empty where the cause says it."""
    condition: str
    """The change, worded to follow "if"."""
    title: str
    instructions: str


def diagnose_stages(run: Run, notes: Sequence[str] = ()) -> verdict.Verdict:
    """Diagnose a job with pipeline stages. Abstains, with the reason, where its trace does not
    tell.

    Args:
        run: a run with operations of pipeline stages.
        notes: notes on the run, for the verdict.
    """
    try:
        operations = analysis.align_operations(read_stage_operations(run))
        slowdown = analysis.measure_slowdown(operations)
    except analysis.StageOperationsError as error:
        obstacle = f"the trace of pipeline stages cannot be replayed: {error}"
        return verdict.make_abstention(obstacle, notes, evidence_kind="traced")
    changes = _list_changes(operations, slowdown)
    is_slow = slowdown.slowdown >= MIN_SLOWDOWN
    main_change = _choose(slowdown, changes) if is_slow else None
    cause = main_change.cause if main_change else UNEVEN if is_slow else "none"
    suspect: verdict.Suspect = (
        main_change.suspect if main_change else "model" if is_slow else "healthy"
    )
    parts = _divide_step(slowdown)
    excess = parts["stragglers"]
    gains = {change.cause: _gain(slowdown, change) for change in changes}
    share = excess if is_slow else parts["ideal_step"]
    if main_change is not None:
        share = min(1.0, gains[main_change.cause]) * excess
    step_count = len(operations.steps)
    accuracy = estimate_accuracy(cause, "traced")
    stability = _estimate_stability(slowdown, changes, cause) * step_count / (step_count + 1)
    ruled_out = _rule_out(slowdown, suspect, excess, changes)
    return verdict.Verdict(
        suspect=suspect,
        cause=cause,
        share_ratio=share,
        confidence_ratio=round(stability * accuracy, 3),
        evidence_kind="traced",
        headline=_write_headline(slowdown, main_change, share),
        share_basis="An ideal step gives every operation the average time of its kind.",
        stages=[
            verdict.Stage(
                name=verdict.name_cause(c.cause),
                detail=c.subject,
                share_ratio=min(1.0, gains[c.cause]) * excess,
            )
            for c in sorted(changes, key=lambda change: -gains[change.cause])
            if is_slow and gains[c.cause] * excess >= 0.01
        ],
        evidence=[verdict.describe_step_time(parts, "part"), *_list_evidence(operations, slowdown)],
        ruled_out=ruled_out,
        suspects=[verdict.SuspectShare(suspect=suspect, share_ratio=share), *ruled_out],
        fixes=[_make_fix(main_change, slowdown)] if main_change else [],
        also=[
            verdict.ContributingCause(
                suspect=change.suspect,
                cause=change.cause,
                share_ratio=gains[change.cause] * excess,
                text=f"it would gain {percent(gains[change.cause])} of that if {change.condition}.",
            )
            for change in changes
            if is_slow and change is not main_change and gains[change.cause] >= MIN_GAIN
        ],
        notes=[*notes, *_list_notes(operations, slowdown)],
        step_count=step_count,
        mean_step_ns=float(slowdown.step_ns.mean()),
        phases=parts,
        bars=list_bars(parts),
    )


def _divide_step(slowdown: analysis.StageSlowdown) -> dict[str, float]:
    """Divide the mean step into the ideal step, stragglers and launch delays."""
    replayed_ns = float(slowdown.replayed_ns.mean())
    total_ns = max(float(slowdown.step_ns.mean()), replayed_ns)
    return {
        "ideal_step": min(slowdown.ideal_ns, replayed_ns) / total_ns,
        "stragglers": max(0.0, replayed_ns - slowdown.ideal_ns) / total_ns,
        "launch_delays": 1 - replayed_ns / total_ns,
    }


# --- changes -------------------------------------------------------------------------------------


def _list_changes(
    operations: analysis.AlignedOperations, slowdown: analysis.StageSlowdown
) -> list[_Change]:
    """List the changes whose gains the trace tells."""
    changes = []
    slowest = slowdown.workers[: slowdown.slowest_count]
    stage, last = slowdown.even_stage, operations.stage_count - 1
    if len(operations.data_ranks) > 1:
        names = ", ".join(map(_name_worker, slowest[:LISTED_WORKERS]))
        changes.append(
            _Change(
                cause="slow_worker",
                suspect="model",
                changed_ns=slowdown.without_workers_ns,
                subject=names,
                condition=f"{names} were as fast as the average",
                title="Make the slow worker as fast as the others",
                instructions="check its GPU for throttling and errors, its node for other "
                "processes, and its network link; move the job off it if that does not help",
            )
        )
    if last:
        name = "the last stage" if stage == last else f"stage {stage}"
        changes.append(
            _Change(
                cause="last_stage" if stage == last else "slow_stage",
                suspect="model",
                changed_ns=slowdown.even_stage_ns,
                subject="" if stage == last else name,
                condition=f"{name} computed as long as the mean of all stages",
                title=f"Give {name} fewer layers",
                instructions="move layers to the other stages until all take the same time; the "
                "loss and the embedding count as well",
            )
        )
    if (slowdown.correlation or 0.0) >= MIN_CORRELATION:
        changes.append(
            _Change(
                cause="uneven_inputs",
                suspect="model",
                changed_ns=slowdown.even_inputs_ns,
                subject="",
                condition="all microbatches took the same time",
                title="Balance the microbatches",
                instructions="form microbatches of equal cost instead of equal numbers of tokens: "
                "attention grows with the square of the length of a sequence",
            )
        )
    changes.append(
        _Change(
            cause="collectives",
            suspect="communication",
            changed_ns=slowdown.without_communication_ns,
            subject="",
            condition="every transfer took the median of its kind",
            title="Find the slow link",
            instructions="compare the transfers of the workers, and check links and switches on "
            "their way for errors and other traffic",
        )
    )
    return changes


def _gain(
    slowdown: analysis.StageSlowdown, change: _Change, steps: intervals.Int | None = None
) -> float:
    return slowdown.gain(change.changed_ns, steps) or 0.0


def _choose(
    slowdown: analysis.StageSlowdown, changes: Sequence[_Change], steps: intervals.Int | None = None
) -> _Change | None:
    """Choose the change that gains most; None if none gains half."""
    best = max(changes, key=lambda change: _gain(slowdown, change, steps))
    return best if _gain(slowdown, best, steps) >= MIN_GAIN else None


def _estimate_stability(
    slowdown: analysis.StageSlowdown, changes: Sequence[_Change], cause: str
) -> float:
    """Estimate the share of resamples of the steps with the same cause."""
    count = len(slowdown.replayed_ns)
    random = np.random.default_rng(0)
    same = 0
    for steps in random.integers(0, count, size=(RESAMPLES, count)):
        mean = float(slowdown.replayed_ns[steps].mean())
        change = _choose(slowdown, changes, steps)
        resampled = change.cause if change else UNEVEN
        is_slow = mean >= MIN_SLOWDOWN * slowdown.ideal_ns
        same += (resampled if is_slow else "none") == cause
    return same / RESAMPLES


# --- words ---------------------------------------------------------------------------------------


def _name_worker(worker: analysis.Worker) -> str:
    coordinates = f"data rank {worker.data_rank}, stage {worker.stage}"
    if worker.rank < 0:
        return f"the worker of {coordinates}"
    return f"rank {worker.rank} ({coordinates})"


def _write_headline(
    slowdown: analysis.StageSlowdown, main_change: _Change | None, share: float
) -> str:
    times = quantities.multiple(slowdown.slowdown)
    if slowdown.slowdown < MIN_SLOWDOWN:
        return (
            f"No straggler found: steps take {times} as long as with every operation at the "
            "average of its kind."
        )
    if main_change is None:
        return (
            f"Bottleneck: uneven ranks, {percent(share)} of step time. No single worker, stage or "
            "kind of operation explains half of it."
        )
    suspect = "communication" if main_change.suspect == "communication" else "model"
    subject = f", {main_change.subject}" if main_change.subject else ""
    cause = verdict.name_cause(main_change.cause)
    return f"Bottleneck: {suspect}, {percent(share)} of step time. Cause: {cause}{subject}."


def _list_evidence(
    operations: analysis.AlignedOperations, slowdown: analysis.StageSlowdown
) -> list[verdict.Evidence]:
    replayed_ns = float(slowdown.replayed_ns.mean())
    kind = max(slowdown.by_kind, key=lambda name: slowdown.by_kind[name])
    worker_count, gain = slowdown.slowest_count, slowdown.worker_gain
    names = ", ".join(map(_name_worker, slowdown.workers[: min(worker_count, LISTED_WORKERS)]))
    evidence = [
        verdict.Evidence(
            text=f"Steps without launch delays take {duration(replayed_ns)}, ideal ones "
            f"{duration(slowdown.ideal_ns)}: a slowdown S of {figure(slowdown.slowdown, 3)}.",
            value=slowdown.slowdown,
            unit="ratio",
        ),
        _describe_gain(
            f"the slowest {worker_count} of {count_of(len(slowdown.workers), 'worker')} ({names})",
            "M_W",
            gain,
        ),
        _describe_gain("the last stage", "M_S", slowdown.stage_gain),
        verdict.Evidence(
            text=f"Of the kinds of operations, {kind} alone makes the ideal step "
            f"{figure(slowdown.by_kind[kind], 3)} times as long.",
            value=slowdown.by_kind[kind],
            unit="ratio",
        ),
    ]
    if operations.stage_count > 1:
        stages = [f"stage {n} {figure(s, 3)}" for n, s in enumerate(slowdown.by_stage)]
        evidence.append(verdict.Evidence(text=f"The same of the stages: {', '.join(stages)}."))
    if slowdown.correlation is not None:
        evidence.append(
            verdict.Evidence(
                text="Forward and backward times of a microbatch have a correlation of "
                f"{figure(slowdown.correlation, 2)} on their worker.",
                value=slowdown.correlation,
                unit="ratio",
            )
        )
    return evidence


def _describe_gain(subject: str, name: str, gain: float | None) -> verdict.Evidence:
    if gain is None:
        return verdict.Evidence(text=f"{name}: there is nothing to gain.")
    return verdict.Evidence(
        text=f"With ideal times of {subject}, {percent(gain)} of that is gained "
        f"({name} {figure(gain, 3)}).",
        value=gain,
        unit="ratio",
    )


def _make_fix(change: _Change, slowdown: analysis.StageSlowdown) -> verdict.Fix:
    gain = min(1.0, _gain(slowdown, change))
    step_ns = float(slowdown.step_ns.mean())
    saved_ns = gain * (float(slowdown.replayed_ns.mean()) - slowdown.ideal_ns)
    return verdict.Fix(
        title=change.title,
        instructions=change.instructions,
        why=f"It gains {percent(gain)} of what stragglers cost.",
        prediction=verdict.Prediction.from_step(step_ns - saved_ns, step_ns, change.condition),
    )


def _rule_out(
    slowdown: analysis.StageSlowdown,
    suspect: verdict.Suspect,
    excess: float,
    changes: Sequence[_Change],
) -> list[verdict.RuledOut]:
    network = next(change for change in changes if change.suspect == "communication")
    share = max(0.0, _gain(slowdown, network)) * excess
    reasons: list[verdict.RuledOut] = []
    if suspect != "communication":
        why = f"slow transfers account for {percent(share)} of step time."
        reasons.append(verdict.RuledOut(suspect="communication", share_ratio=share, why=why))
    if suspect != "model":
        why = f"stragglers account for {percent(excess)} of step time."
        reasons.append(verdict.RuledOut(suspect="model", share_ratio=excess, why=why))
    return reasons


def _list_notes(
    operations: analysis.AlignedOperations, slowdown: analysis.StageSlowdown
) -> list[str]:
    notes = []
    if len(operations.data_ranks) == 1 and operations.stage_count > 1:
        notes.append(
            "The trace has one data rank, so a slow worker and a stage with more work look alike."
        )
    if operations.left_out_steps:
        notes.append(
            f"{count_of(operations.left_out_steps, 'step')} with less than nine tenths of the "
            "operations of the others left out."
        )
    if operations.left_out_operations:
        notes.append(
            f"{count_of(operations.left_out_operations, 'operation')} that most steps do not have "
            "left out."
        )
    if slowdown.filled_ratio > 0:
        notes.append(
            f"{percent(slowdown.filled_ratio, 1)} of the times of operations are missing; the "
            "average of the worker's other operations of the kind stands for them."
        )
    if slowdown.unpaired_count:
        notes.append(
            f"{count_of(slowdown.unpaired_count, 'transfer')} of a step without a counterpart in "
            "the trace; the computation before it stands for the start of that."
        )
    return notes
