"""Cost report of a run: cost per step, epoch and hour, and potential savings."""

from __future__ import annotations

import msgspec

from stepscope import diagnosis, errors, quantities, rule_feed
from stepscope.cost import pricing
from stepscope.cost.prices import HOUR_NS, JobCost
from stepscope.cost.right_sizing import RightSizing, measure_node_usage, recommend_size
from stepscope.run import Epochs, Run, explain_rounding, find_epochs, job_statistics, machine_count

MAX_PROJECTED = 1e9
"""Maximum number of epochs or hours to project."""
NO_STEPS = "no monitored steps, whose DataLoader gives the number of samples"
NO_BATCH_SIZE = "batch size not known; no torch DataLoader recorded one"
NO_BOTTLENECK = "no bottleneck found that could be removed to save cost"


class EpochCost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of an epoch, the mean over complete passes of the training data."""

    count: int
    """Number of complete passes."""
    mean_ns: float
    step_count: float
    """Steps per epoch."""
    usd: float | None


class SuspectCost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of the bottleneck."""

    suspect: diagnosis.Suspect
    name: str
    share_ratio: float
    share_of: str
    """Denominator of the share: steps, or steps and evaluation together."""
    step_usd: float
    """Cost per step, with its part of the evaluation where evaluation is the bottleneck."""
    hour_usd: float
    """Cost per hour of training, evaluation included."""
    training_usd: float | None
    """Cost for the training of this run, at the same share throughout."""


class FixSaving(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted saving of one fix alone; savings do not add up."""

    title: str
    saving_ratio: float
    share_of: str
    """Denominator of the ratio: steps, or steps and evaluation together."""
    condition: str
    """Assumption of the prediction, worded to follow "if"."""
    is_bound: bool
    """True where the fix saves at most this; see `Prediction.is_bound`."""
    step_usd: float
    """Saving per step, with its part of the evaluation where the fix concerns evaluation."""
    hour_usd: float
    """Saving per hour of training at the old pace, evaluation included."""
    training_usd: float | None
    """Saving for the training of this run."""


class ClassCost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of the time that the job spent on one class of work; the classes sum to the job."""

    key: str
    title: str
    time_ns: float
    """Mean over ranks."""
    share_ratio: float
    """Share of the job."""
    usd: float | None


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """Projected cost of a longer run at the same pace."""

    name: str = msgspec.field(name="what")
    duration_ns: float
    machine_hours: float
    usd: float | None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost report of a run. Dollars are null without a price; `price_missing` gives the reason."""

    run_id: str
    price: pricing.PriceUsed | None
    price_missing: str | None
    instance_count: int
    duration_ns: int
    machine_hours: float
    job_usd: float | None
    """Cost so far, rounded to the cent."""
    hour_usd: float | None
    """Cost per hour of all machines."""
    step_ns: float | None
    step_usd: float | None
    """Cost of the mean measured step on all machines."""
    evaluation_ratio: float
    """Evaluation over evaluation and steps together; no step contains it, an hour does."""
    evaluated_step_ns: float | None
    """Mean step with its part of the evaluation; null where nothing was evaluated."""
    evaluated_step_usd: float | None
    epoch: EpochCost | None
    epoch_missing: str | None
    million_samples_usd: float | None
    samples_missing: str | None
    samples_per_step: float | None
    """Samples on all ranks, assuming that each rank reads different batches."""
    classes: list[ClassCost]
    """The whole job by class of work, as the view `job-time` divides it; empty where that is not
    known."""
    suspect: SuspectCost | None
    fixes: list[FixSaving]
    """Fixes of the verdict that have a prediction, in its order."""
    suspect_missing: str | None
    projections: list[Projection]
    right_sizing: RightSizing | None
    damage: list[str]
    """Parts of the run that could not be read and are missing in these figures."""
    rounding: str | None
    """Which records were rounded to limit the size of the run; null for none."""


def report_cost(
    run: Run,
    request: pricing.PriceRequest = pricing.RECORDED_PRICE,
    *,
    epochs: float | None = None,
    hours: float | None = None,
) -> Cost:
    """Report the cost of a run and its potential savings.

    Args:
        request: price options of the command.
        epochs, hours: amounts to project the cost to.

    Raises:
        UsageError: not a valid price, machine type, or number of epochs or hours.
    """
    for amount in (epochs, hours):
        if amount is not None and not 0 < amount <= MAX_PROJECTED:  # NaN is neither
            raise errors.UsageError(f"{amount!r} is not a positive number of epochs or hours.")
    job = job_statistics(run)
    count = machine_count(run.reader)
    priced = pricing.price_job(
        run.reader.info,
        run.nodes.values(),
        instance_count=count,
        duration_ns=job.duration_ns,
        request=request,
    )
    verdict = run.derive(rule_feed.make_verdict)
    passes = find_epochs(run)
    cost = None if isinstance(priced, str) else priced.cost
    evaluation = diagnosis.compute_evaluation_ratio(run.ranks)
    evaluated_ns = _add_evaluation(verdict.mean_step_ns, evaluation)
    judged_ns = next((s.duration_ns for s in verdict.job_stages if s.is_main), job.training_ns)
    savings = None if cost is None else _Savings.measure(cost, verdict, judged_ns, evaluation)
    suspect = None if savings is None else savings.price_suspect(verdict)
    step_usd = None if savings is None else savings.verdict_cost.step_usd
    samples = _count_samples_per_step(run)
    return Cost(
        run_id=run.reader.info.run_id,
        price=None if isinstance(priced, str) else priced.price.used,
        price_missing=priced if isinstance(priced, str) else None,
        instance_count=count,
        duration_ns=job.duration_ns,
        machine_hours=count * job.duration_ns / HOUR_NS,
        job_usd=None if isinstance(priced, str) else priced.job_usd,
        hour_usd=_compute_usd(cost, HOUR_NS),
        step_ns=verdict.mean_step_ns,
        step_usd=step_usd,
        evaluation_ratio=evaluation,
        evaluated_step_ns=evaluated_ns,
        evaluated_step_usd=_compute_usd(cost, evaluated_ns),
        epoch=_price_epoch(passes, cost) if isinstance(passes, Epochs) else None,
        epoch_missing=passes if isinstance(passes, str) else None,
        million_samples_usd=step_usd / samples * 1e6 if step_usd is not None and samples else None,
        samples_missing=None if samples else NO_BATCH_SIZE if run.ranks else NO_STEPS,
        samples_per_step=samples,
        classes=_price_classes(verdict.job, cost),
        suspect=suspect,
        fixes=[] if savings is None else savings.price_fixes(verdict),
        suspect_missing=NO_BOTTLENECK if cost is not None and suspect is None else None,
        projections=_project(count, cost, passes, epochs, hours),
        right_sizing=None
        if isinstance(priced, str)
        else recommend_size(measure_node_usage(run), verdict, priced.cost, priced.price),
        damage=list(run.reader.damage),  # complete only after all tables were read
        rounding=explain_rounding(run),
    )


def _compute_usd(cost: JobCost | None, duration_ns: float | None) -> float | None:
    return None if cost is None else cost.compute_usd(duration_ns)


def _price_classes(job: diagnosis.JobAccount | None, cost: JobCost | None) -> list[ClassCost]:
    return [
        ClassCost(
            key=part.key,
            title=part.title,
            time_ns=part.time_ns,
            share_ratio=part.share_ratio,
            usd=_compute_usd(cost, part.time_ns),
        )
        for part in ([] if job is None else job.parts)
    ]


def _price_epoch(passes: Epochs, cost: JobCost | None) -> EpochCost:
    return EpochCost(
        count=passes.count,
        mean_ns=passes.mean_ns,
        step_count=passes.steps,
        usd=_compute_usd(cost, passes.mean_ns),
    )


def _count_samples_per_step(run: Run) -> float | None:
    """Count the samples that all ranks read for the mean measured step; None where a batch size is
    not known."""
    total = 0.0
    for rank in run.ranks:
        batch_size = rank.loader.batch_size if rank.loader is not None else None
        fetches = rank.steps.fetches[rank.steps.measured()]
        if not isinstance(batch_size, int) or not len(fetches):
            return None
        total += batch_size * float(fetches.mean())
    return total or None


def _add_evaluation(step_ns: float | None, evaluation: float) -> float | None:
    return step_ns / (1 - evaluation) if step_ns is not None and evaluation else None


class _Savings(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of the steps, of an hour and of the training, and shares of each."""

    step_ns: float
    """Mean step without evaluation."""
    verdict_cost: pricing.VerdictCost
    hour_usd: float
    training_usd: float | None
    """Cost of the training; of several in one process that of the one that the verdict is of."""
    evaluation_ratio: float

    @classmethod
    def measure(
        cls, cost: JobCost, verdict: diagnosis.Verdict, training_ns: int | None, evaluation: float
    ) -> _Savings | None:
        """Measure the costs; None without steps."""
        verdict_cost, hour_usd = pricing.price_verdict(verdict, cost), cost.compute_usd(HOUR_NS)
        if verdict.mean_step_ns is None or verdict_cost is None or hour_usd is None:
            return None
        return cls(
            step_ns=verdict.mean_step_ns,
            verdict_cost=verdict_cost,
            hour_usd=hour_usd,
            training_usd=cost.compute_usd(training_ns),
            evaluation_ratio=evaluation,
        )

    def price_suspect(self, verdict: diagnosis.Verdict) -> SuspectCost | None:
        """Price the bottleneck; None where there is none."""
        if not verdict.has_bottleneck:
            return None
        hour_share = self._scale_to_hour(verdict.suspect_step_ns or 0.0)
        return SuspectCost(
            suspect=verdict.suspect,
            name=diagnosis.SUSPECT_NAMES[verdict.suspect],
            share_ratio=verdict.share_ratio,
            share_of=verdict.share_of,
            step_usd=self.verdict_cost.suspect_usd,
            hour_usd=hour_share * self.hour_usd,
            training_usd=self._scale_training(hour_share),
        )

    def price_fixes(self, verdict: diagnosis.Verdict) -> list[FixSaving]:
        """Price the predicted savings."""
        fixes = zip(verdict.fixes, self.verdict_cost.fix_savings_usd, strict=True)
        savings = (self._price_fix(fix, step_usd) for fix, step_usd in fixes)
        return [saving for saving in savings if saving is not None]

    def _price_fix(self, fix: diagnosis.Fix, step_usd: float | None) -> FixSaving | None:
        prediction = fix.prediction
        if prediction is None or step_usd is None:
            return None
        hour_share = self._scale_to_hour(prediction.saved_ns)
        return FixSaving(
            title=fix.title,
            saving_ratio=prediction.saving_ratio,
            share_of=prediction.share_of,
            condition=prediction.condition,
            is_bound=prediction.is_bound,
            step_usd=step_usd,
            hour_usd=hour_share * self.hour_usd,
            training_usd=self._scale_training(hour_share),
        )

    def _scale_to_hour(self, saved_ns: float) -> float:
        """Compute the share of an hour of training, evaluation included, of a time per step."""
        return saved_ns / self.step_ns * (1 - self.evaluation_ratio)

    def _scale_training(self, share: float) -> float | None:
        return None if self.training_usd is None else share * self.training_usd


def _project(
    count: int,
    cost: JobCost | None,
    passes: Epochs | str,
    epochs: float | None,
    hours: float | None,
) -> list[Projection]:
    durations = []
    if epochs is not None and isinstance(passes, Epochs):
        durations.append((f"{quantities.number(epochs)} epochs", epochs * passes.mean_ns))
    if hours is not None:
        durations.append((f"{quantities.number(hours)} hours", hours * HOUR_NS))
    return [
        Projection(
            name=name,
            duration_ns=duration_ns,
            machine_hours=count * duration_ns / HOUR_NS,
            usd=_compute_usd(cost, duration_ns),
        )
        for name, duration_ns in durations
    ]
