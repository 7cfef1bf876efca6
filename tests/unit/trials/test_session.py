"""Pairs of trials."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stepscope.errors import TrialError, TrialTimeoutError, UsageError
from stepscope.schema import Change
from stepscope.testing import RunBuilder
from stepscope.trials import MIN_PAIRS, JobSource, plan_schedule, session
from stepscope.trials.processes import Applied, TrialReport

WHOLE = TrialReport(step_count=400, total_ns=400)
EARLY = TrialReport(step_count=40, total_ns=40, early_end="The job ended after 40 measured steps")


def test_a_job_that_ends_early_with_the_change_only_is_refused() -> None:
    with pytest.raises(TrialError, match=r"With the change: The job ended after 40 measured"):
        session._check_end(session._Pair(base=WHOLE, changed=EARLY, batch_factor=1))


@pytest.mark.parametrize(("base", "batch_factor"), [(EARLY, 1), (WHOLE, 2)])
def test_a_short_job_and_larger_batches_may_end_early(
    base: TrialReport, batch_factor: float
) -> None:
    session._check_end(session._Pair(base=base, changed=EARLY, batch_factor=batch_factor))


@pytest.mark.parametrize(
    ("applied", "sentence"),
    [
        ({}, "“2 DataLoader workers” had no effect: no torch DataLoader"),
        ({"num_workers": Applied(before="2", after="2")}, "The job has .+ already"),
    ],
)
def test_a_change_without_effect_is_no_measurement(
    applied: dict[str, Applied], sentence: str
) -> None:
    candidate = session.Candidate(changes=[Change(name="num_workers", value="2")])
    report = msgspec.structs.replace(WHOLE, applied=applied)
    with pytest.raises(TrialError, match=sentence):
        session._check_effect(candidate, report)


@pytest.mark.parametrize(("pair_count", "finished_count"), [(5, 4), (4, 3), (5, 2), (5, 0)])
def test_pairs_that_finished_before_a_slow_trial_are_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair_count: int, finished_count: int
) -> None:
    """Steps take 10 ns without the change and 8 with it."""
    applied = {"num_workers": Applied(before="0", after="2")}
    counts = iter(range(100))

    def run_trial(*_: object, changes: dict[str, str], **__: object) -> TrialReport:
        if next(counts) == 1 + 2 * finished_count:  # after the rehearsal
            raise TrialTimeoutError("The job did not reach 400 steps in 180 s.")
        return TrialReport(
            step_count=400, total_ns=3200 if changes else 4000, applied=applied if changes else {}
        )

    monkeypatch.setattr(session, "run_trial", run_trial)
    builder = RunBuilder(tmp_path / "run")
    builder.rank().draw("wait 60 | forward 12 | backward 20 | optimizer 8", 100)
    run, notes = builder.open(), list[str]()
    trial = session.TrialSession(
        run=run,
        source=JobSource(command=["python"], directory="/", environment={}, notes=[]),
        pair_count=pair_count,
        on_progress=notes.append,
    )
    candidate = session.Candidate(changes=[Change(name="num_workers", value="2")])
    if finished_count < MIN_PAIRS:
        with pytest.raises(
            TrialTimeoutError, match=f"{finished_count} pairs had finished; a result needs 3"
        ):
            trial.try_candidate(candidate, "slow_reads")
        return
    outcome = trial.try_candidate(candidate, "slow_reads")
    assert len(outcome.pairs) == finished_count
    assert outcome.saving_ratio == pytest.approx(0.2)
    assert notes[-1].endswith(f"The result is that of the {finished_count} finished pairs.")


def test_a_job_with_few_steps_is_not_tried(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    builder.rank().draw("wait 60 | forward 12 | backward 20 | optimizer 8", 12)
    with pytest.raises(UsageError, match="a trial needs at least"):
        plan_schedule(builder.open())
