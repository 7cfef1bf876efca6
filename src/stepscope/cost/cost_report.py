"""`stepscope cost`: what a run costs per step, epoch and hour, and what could be saved."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from stepscope.cost.job_cost import JobCost
from stepscope.cost.pricing import NOTHING_ASKED, Asked, Priced, PriceUsed, price_of
from stepscope.cost.right_sizing import RightSizing, right_sizing
from stepscope.cost.usage import node_usage
from stepscope.diagnosis import (
    LOOP_SHARE,
    STEP_SHARE,
    SUSPECT_NAMES,
    SUSPECTS,
    Prediction,
    Suspect,
    Verdict,
    compute_evaluation_ratio,
    diagnose,
)
from stepscope.errors import UsageError
from stepscope.run import Epochs, Run, find_epochs, job_borders, job_statistics, machine_count

HOUR_NS = 3600 * 10**9
MOST_PROJECTED = 1e9
"""Epochs or hours."""
NO_MACHINES = "on how many machines the job ran is not known: none was watched or imported"
NO_STEPS = "no watched step, and samples are what the DataLoader of those reads"
NO_BATCH_SIZE = "the batch size is not known: no torch DataLoader says one"
NOT_ACCUSED = "the verdict accuses nothing that could be saved"


class EpochCost(msgspec.Struct, frozen=True, kw_only=True):
    """A pass over the training data, on average of the complete ones."""

    count: int
    """Complete passes."""
    mean_ns: float
    step_count: float
    """Steps in one."""
    usd: float | None


class SuspectCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the accused part of the step costs."""

    suspect: Suspect
    name: str
    share_ratio: float
    share_of: str
    """What that is a share of: the steps, or steps and evaluation together."""
    step_usd: float
    """For every step, with its part of the evaluation where that is accused."""
    hour_usd: float
    """Of an hour of training, evaluation included."""
    training_usd: float | None
    """Of the training of this run, if it owned the same share of all of it."""


class FixSaving(msgspec.Struct, frozen=True, kw_only=True):
    """What one change alone is predicted to save; fixes do not add up."""

    title: str
    saving_ratio: float
    share_of: str
    """What that is a share of: the steps, or steps and evaluation together."""
    condition: str
    """What the prediction takes for granted, to be read after "if"."""
    step_usd: float
    """For every step, with its part of the evaluation where the fix is for that."""
    hour_usd: float
    """Of an hour of training as it was, evaluation included."""
    training_usd: float | None
    """Of the training of this run."""


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """What more of the same would cost."""

    what: str
    duration_ns: float
    machine_hours: float
    usd: float | None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The payload. Dollars are null where there is no price, and `price_missing` says why."""

    run_id: str
    price: PriceUsed | None
    price_missing: str | None
    instance_count: int
    duration_ns: int
    machine_hours: float
    job_usd: float | None
    """So far, rounded to the cent."""
    hour_usd: float | None
    """Of all machines."""
    step_ns: float | None
    step_usd: float | None
    """Of the mean measured step, on all machines."""
    evaluation_ratio: float
    """Evaluation over evaluation and steps together: no step holds it, an hour does."""
    evaluated_step_ns: float | None
    """The mean step with its part of the evaluation; null where nothing was evaluated."""
    evaluated_step_usd: float | None
    epoch: EpochCost | None
    epoch_missing: str | None
    million_samples_usd: float | None
    samples_missing: str | None
    samples_per_step: float | None
    """On all ranks, if each reads batches of its own."""
    suspect: SuspectCost | None
    fixes: list[FixSaving]
    """Those of the verdict with a prediction, in its order."""
    suspect_missing: str | None
    projections: list[Projection]
    right_sizing: RightSizing | None
    damage: list[str]
    """What of the run could not be read, and is not in these figures."""


def cost_of_run(
    run: Run,
    asked: Asked = NOTHING_ASKED,
    *,
    epochs: float | None = None,
    hours: float | None = None,
) -> Cost:
    """What a run costs, and what could be saved.

    Args:
        signals: the run.
        asked: what the user says of the machines now.
        epochs, hours: project the cost to so many of them.

    Raises:
        UsageError: no such price, machine, or number of epochs or hours.
    """
    for wanted in (epochs, hours):
        if wanted is not None and not 0 < wanted <= MOST_PROJECTED:  # NaN is neither
            raise UsageError(f"{wanted!r} is no number of epochs or hours above 0.")
    info = run.reader.info
    count = machine_count(run)
    found = price_of(info, run.nodes.values(), asked) if count else NO_MACHINES
    priced = found if isinstance(found, Priced) else None
    verdict = diagnose(run)
    job = job_statistics(run.ranks, *job_borders(run))
    paid = None
    if priced is not None:
        paid = JobCost(
            instance_count=count,
            usd_per_hour=priced.usd_per_hour,
            duration_ns=job.duration_ns,
        )
    passes = find_epochs(run)
    samples = _samples_per_step(run)
    step_usd = _usd(paid, verdict.mean_step_ns)
    evaluation = compute_evaluation_ratio(run.ranks)
    evaluated_ns = _evaluated_ns(verdict.mean_step_ns, evaluation)
    worth = _worth(paid, verdict, job.training_ns, evaluation)
    suspect = None if worth is None else _suspect(verdict, worth)
    sizes = None
    if priced is not None and paid is not None:
        sizes = right_sizing(node_usage(run), verdict, paid, priced)
    return Cost(
        run_id=info.run_id,
        price=None if priced is None else priced.used,
        price_missing=found if isinstance(found, str) else None,
        instance_count=count,
        duration_ns=job.duration_ns,
        machine_hours=count * job.duration_ns / HOUR_NS,
        job_usd=None if paid is None else float(paid.usd),
        hour_usd=_usd(paid, HOUR_NS),
        step_ns=verdict.mean_step_ns,
        step_usd=step_usd,
        evaluation_ratio=evaluation,
        evaluated_step_ns=evaluated_ns,
        evaluated_step_usd=_usd(paid, evaluated_ns),
        epoch=_epoch(passes, paid) if isinstance(passes, Epochs) else None,
        epoch_missing=passes if isinstance(passes, str) else None,
        million_samples_usd=step_usd / samples * 1e6 if step_usd is not None and samples else None,
        samples_missing=None if samples else NO_BATCH_SIZE if run.ranks else NO_STEPS,
        samples_per_step=samples,
        suspect=suspect,
        fixes=[] if worth is None else _fixes(verdict, worth),
        suspect_missing=NOT_ACCUSED if paid is not None and suspect is None else None,
        projections=_projections(count, paid, passes, epochs, hours),
        right_sizing=sizes,
        damage=list(run.reader.damage),  # shows when it is read
    )


def _usd(paid: JobCost | None, duration_ns: float | None) -> float | None:
    """Dollars, not rounded, that all machines cost for a time."""
    if paid is None or duration_ns is None:
        return None
    return float(replace(paid, duration_ns=round(duration_ns)).exact_usd)


def _epoch(passes: Epochs, paid: JobCost | None) -> EpochCost:
    return EpochCost(
        count=passes.count,
        mean_ns=passes.mean_ns,
        step_count=passes.steps,
        usd=_usd(paid, passes.mean_ns),
    )


def _samples_per_step(run: Run) -> float | None:
    """Samples that all ranks read for the mean measured step; None where a batch size is not
    known."""
    total = 0.0
    for rank in run.ranks:
        size = rank.loader.batch_size if rank.loader is not None else None
        fetched = rank.steps.fetches[rank.steps.measured()]
        if not isinstance(size, int) or not len(fetched):
            return None
        total += size * float(fetched.mean())
    return total or None


def _evaluated_ns(step_ns: float | None, evaluation: float) -> float | None:
    return step_ns / (1 - evaluation) if step_ns is not None and evaluation else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worth:
    """Dollars that shares are taken of."""

    step_ns: float
    """The mean step, without evaluation."""
    step_usd: float
    hour_usd: float
    training_usd: float | None
    evaluation_ratio: float

    def of_hour(self, share: float, share_of: str) -> float:
        """The share of an hour of training that a share is: some of the hour is evaluation, of
        which a share of the steps has no part."""
        return share if share_of == LOOP_SHARE else share * (1 - self.evaluation_ratio)

    def of_training(self, ratio: float) -> float | None:
        """Dollars for a share of the training of this run."""
        return None if self.training_usd is None else ratio * self.training_usd


def _worth(
    paid: JobCost | None, verdict: Verdict, training_ns: int | None, evaluation: float
) -> _Worth | None:
    step, hour = _usd(paid, verdict.mean_step_ns), _usd(paid, HOUR_NS)
    if verdict.mean_step_ns is None or step is None or hour is None:
        return None
    return _Worth(
        step_ns=verdict.mean_step_ns,
        step_usd=step,
        hour_usd=hour,
        training_usd=_usd(paid, training_ns),
        evaluation_ratio=evaluation,
    )


def _suspect(verdict: Verdict, worth: _Worth) -> SuspectCost | None:
    if verdict.suspect not in SUSPECTS:
        return None
    of_hour = worth.of_hour(verdict.share_ratio, verdict.share_of)
    return SuspectCost(
        suspect=verdict.suspect,
        name=SUSPECT_NAMES[verdict.suspect],
        share_ratio=verdict.share_ratio,
        share_of=verdict.share_of,
        step_usd=verdict.owned_step_ratio * worth.step_usd,
        hour_usd=of_hour * worth.hour_usd,
        training_usd=worth.of_training(of_hour),
    )


def _fixes(verdict: Verdict, worth: _Worth) -> list[FixSaving]:
    return [
        _saving(fix.title, fix.prediction, worth)
        for fix in verdict.fixes
        if fix.prediction is not None
    ]


def _saving(title: str, prediction: Prediction, worth: _Worth) -> FixSaving:
    # Where evaluation is what changes, the prediction is set against more than the step.
    share_of = LOOP_SHARE if prediction.measured_ns != worth.step_ns else STEP_SHARE
    of_hour = worth.of_hour(prediction.saving_ratio, share_of)
    return FixSaving(
        title=title,
        saving_ratio=prediction.saving_ratio,
        share_of=share_of,
        condition=prediction.condition,
        step_usd=prediction.saved_ns / worth.step_ns * worth.step_usd,
        hour_usd=of_hour * worth.hour_usd,
        training_usd=worth.of_training(of_hour),
    )


def _projections(
    count: int,
    paid: JobCost | None,
    passes: Epochs | str,
    epochs: float | None,
    hours: float | None,
) -> list[Projection]:
    wanted = []
    if epochs is not None and isinstance(passes, Epochs):
        wanted.append((f"{epochs:g} epochs", epochs * passes.mean_ns))
    if hours is not None:
        wanted.append((f"{hours:g} hours", hours * HOUR_NS))
    return [
        Projection(
            what=what,
            duration_ns=duration_ns,
            machine_hours=count * duration_ns / HOUR_NS,
            usd=_usd(paid, duration_ns),
        )
        for what, duration_ns in wanted
    ]
