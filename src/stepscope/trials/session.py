"""Pairs of trials, without and with a change, and their result."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from stepscope import analysis, errors, monitor, schema
from stepscope.capture.trial import CHANGES
from stepscope.quantities import count_of
from stepscope.run import Run
from stepscope.trials.candidates import Candidate
from stepscope.trials.processes import TrialReport, run_trial
from stepscope.trials.schedule import MIN_PAIRS, JobSource, Schedule, plan_schedule

DEFAULT_PREFETCH = 2
"""Batches that torch prefetches per worker."""


class _Pair(NamedTuple):
    """Two trials next to each other in time."""

    base: TrialReport
    changed: TrialReport
    batch_factor: float
    """Samples per step with the change, relative to those without."""

    @property
    def times(self) -> schema.TrialPair:
        return schema.TrialPair(
            base_step_ns=self.base.step_ns, changed_step_ns=self.changed.step_ns / self.batch_factor
        )


class TrialSession(msgspec.Struct, frozen=True, kw_only=True):
    """Trials of the changes of one job."""

    run: Run
    source: JobSource
    pair_count: int
    steps: int | None = None
    """Measured steps per trial; None to choose."""
    is_isolated: bool = True
    should_stop: Callable[[], bool] = lambda: False
    on_progress: Callable[[str], None] = lambda text: None

    def try_candidate(self, candidate: Candidate, cause: str) -> schema.TriedChange:
        """Run pairs of trials and compare them.

        One trial with the change goes first and is not measured: it shows that the change is
        possible, and brings files into the page cache. The order within pairs alternates, so that
        a steady drift of the machine cancels. Pairs that finished before a trial that took too long
        are the result, if they are enough for one.

        Raises:
            TrialError: a trial has no result, or the change has no effect on the job.
            UsageError: the job has too few steps.
        """
        schedule = self.plan(candidate)
        self.on_progress("first trial with the change, not counted")
        rehearsal = self._run(schedule, candidate, changed=True)
        _check_effect(candidate, rehearsal)
        factor = _measure_batch_factor(rehearsal)
        pairs: list[_Pair] = []
        try:
            while len(pairs) < self.pair_count:
                pairs.append(self._run_pair(candidate, schedule, factor, len(pairs)))
        except errors.TrialTimeoutError as error:
            if len(pairs) < MIN_PAIRS:
                finished = count_of(len(pairs), "pair")
                raise errors.TrialTimeoutError(
                    f"{error} {finished} had finished; a result needs {MIN_PAIRS}."
                ) from None
            self.on_progress(f"{error} The result is that of the {len(pairs)} finished pairs.")
        return self._conclude(candidate, cause, schedule, pairs)

    def plan(self, candidate: Candidate) -> Schedule:
        """Choose the steps of the trials of a candidate."""
        ranks = self.run.ranks
        loader = ranks[0].loader if ranks else None
        values = candidate.by_name
        workers = [loader.num_workers if loader is not None else 0]
        prefetch = [(loader.prefetch_factor if loader is not None else None) or DEFAULT_PREFETCH]
        workers.append(int(values.get("num_workers", workers[0])))
        prefetch.append(int(values.get("prefetch_factor", prefetch[0])))
        ahead = [count * factor for count, factor in zip(workers, prefetch, strict=True)]
        return plan_schedule(
            self.run, prefetched_count=max(ahead), steps=self.steps, compiles="compile" in values
        )

    def _run_pair(
        self, candidate: Candidate, schedule: Schedule, factor: float, number: int
    ) -> _Pair:
        self.on_progress(f"pair {number + 1} of {self.pair_count}")
        reports = {}
        for is_changed in (False, True) if number % 2 == 0 else (True, False):
            trial_schedule = _scale(schedule, factor) if is_changed else schedule
            reports[is_changed] = self._run(trial_schedule, candidate, changed=is_changed)
        pair = _Pair(base=reports[False], changed=reports[True], batch_factor=factor)
        _check_end(pair)
        return pair

    def _run(self, schedule: Schedule, candidate: Candidate, *, changed: bool) -> TrialReport:
        loader = self.run.ranks[0].loader if self.run.ranks else None
        size = loader.batch_size if loader is not None else None
        return run_trial(
            self.source,
            schedule,
            changes=candidate.by_name if changed else {},
            batch_size=size if isinstance(size, int) else None,
            is_isolated=self.is_isolated,
            should_stop=self.should_stop,
        )

    def _conclude(
        self, candidate: Candidate, cause: str, schedule: Schedule, pairs: list[_Pair]
    ) -> schema.TriedChange:
        times = [pair.times for pair in pairs]
        estimate = analysis.estimate_median([1 - t.changed_step_ns / t.base_step_ns for t in times])
        first = pairs[0].base
        prediction = candidate.prediction
        return schema.TriedChange(
            created_ns=time.time_ns(),
            changes=candidate.changes,
            fix_title=None if candidate.fix is None else candidate.fix.title,
            cause=cause,
            predicted_saving_ratio=None if prediction is None else prediction.saving_ratio,
            is_predicted_bound=prediction is not None and prediction.is_bound,
            pairs=times,
            saving_ratio=estimate.median,
            min_saving_ratio=estimate.low,
            max_saving_ratio=estimate.high,
            confidence_ratio=estimate.confidence_ratio,
            warmup_step_count=schedule.warmup_step_count,
            step_count=first.step_count,
            losses=_compare_losses(pairs),
            is_isolated=self.is_isolated,
            node=monitor.node_name(),
            cores_available=self.run.cores_available,
            versions={"python": first.python, "torch": first.torch},
        )


def _check_effect(candidate: Candidate, report: TrialReport) -> None:
    """Check that each change took effect.

    Raises:
        TrialError: one did not, or the job has that value already.
    """
    for change in candidate.changes:
        applied = report.applied.get(change.name)
        title = CHANGES[change.name].describe(change.value)
        if applied is None:
            raise errors.TrialError(f"“{title}” had no effect: {CHANGES[change.name].scope}.")
    if all(change.before == change.after for change in report.applied.values()):
        raise errors.TrialError(f"The job has {candidate.title} already.")


def _check_end(pair: _Pair) -> None:
    """Check that a job with a change does not end before the job without it does.

    Raises:
        TrialError: it does, and not because its batches have another size.
    """
    if pair.changed.early_end and not pair.base.early_end and pair.batch_factor == 1:
        raise errors.TrialError(f"With the change: {pair.changed.early_end}")


def _measure_batch_factor(report: TrialReport) -> float:
    """Return the ratio of samples per step with and without the change."""
    applied = report.applied.get("batch_size")
    return 1.0 if applied is None else float(applied.after) / float(applied.before)


def _scale(schedule: Schedule, factor: float) -> Schedule:
    """Return the schedule for as many samples in batches of another size."""
    return replace(schedule, step_count=max(5, round(schedule.step_count / factor)))


def _compare_losses(pairs: list[_Pair]) -> schema.LossComparison | None:
    """Compare the first losses; None where there are none, or those of other batches."""
    bases = [pair.base.losses for pair in pairs]
    changed = [pair.changed.losses for pair in pairs]
    count = min(map(len, bases + changed))
    if not count or pairs[0].batch_factor != 1:
        return None
    return schema.LossComparison(
        loss_count=count,
        max_relative_difference=max(map(analysis.compare_losses, bases, changed)),
        own_relative_difference=max(analysis.compare_losses(a, b) for a, b in pairwise(bases)),
    )
