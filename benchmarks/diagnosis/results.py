"""Outcomes of a benchmark put together: each run with its label, its fixed twin and its grades.

Pure, as scoring is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.diagnosis.catalogue import Scenario
from benchmarks.diagnosis.outcomes import Answer, Outcome, Tool
from benchmarks.diagnosis.scoring import (
    CLEARLY_FASTER,
    Accuracy,
    Calibration,
    Grade,
    PredictionCheck,
    Scores,
    accuracy,
    best_fix,
    calibration,
    check_prediction,
    grade,
    saving,
    tally,
)

Split = Literal["seen", "held out", "all"]
SPLITS: tuple[Split, ...] = ("seen", "held out", "all")
DISTURBED_CORES = 0.25
"""Runs beside which others kept more cores busy than this say little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run that ended, and everything that is known about it."""

    scenario: Scenario
    outcome: Outcome
    answer: Answer
    grade: Grade
    saving_ratio: float | None
    """Share of the time per sample that the true fix saves; None without a twin."""
    lingers: bool | None
    """Whether the planted cause is named for the fixed twin as well."""
    matching: PredictionCheck | None
    """For the suggestion that comes closest to the true fix."""
    first: PredictionCheck | None
    """For the first suggestion."""

    @property
    def doubtful(self) -> bool:
        """The fix brings too little for the label to be right."""
        return self.saving_ratio is not None and self.saving_ratio < CLEARLY_FASTER

    @property
    def prediction_checked(self) -> bool:
        """A prediction is for one fix alone; the twin of two causes has both applied."""
        return self.saving_ratio is not None and len(self.scenario.label.causes) == 1

    @property
    def disturbed(self) -> bool:
        """Others used the machine meanwhile."""
        return self.outcome.outside_cores > DISTURBED_CORES


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Scores of one tool on one part of the scenarios."""

    tool: Tool
    split: Split
    runs: int
    scores: Scores
    suspect_calibration: Calibration | None
    cause_calibration: Calibration | None
    matching: Accuracy
    first: Accuracy


def put_together(scenarios: Sequence[Scenario], outcomes: Iterable[Outcome]) -> list[Row]:
    """Rows of all runs that ended, fixed twins in the row of what they fix."""
    by_name = {scenario.name: scenario for scenario in scenarios}
    ended = [each for each in outcomes if each.status == "done" and each.answer is not None]
    twins = {_key(each): each for each in ended if each.job.fixed}
    return [
        _row(by_name[each.job.scenario], each, twins)
        for each in ended
        if not each.job.fixed and each.job.scenario in by_name
    ]


def summarise(rows: Iterable[Row], tool: Tool, split: Split) -> Summary:
    """Scores of some rows."""
    chosen = [row for row in rows if row.outcome.job.tool == tool and in_split(row, split)]
    planted = [row for row in chosen if row.grade.planted]
    checked = [row for row in planted if row.prediction_checked]
    return Summary(
        tool=tool,
        split=split,
        runs=len(chosen),
        scores=tally(row.grade for row in chosen),
        suspect_calibration=calibration(
            (stated, row.grade.suspect_right)
            for row in chosen
            if (stated := row.grade.confidence_ratio) is not None
        ),
        cause_calibration=calibration(
            (stated, bool(row.grade.cause_right))
            for row in planted
            if (stated := row.grade.confidence_ratio) is not None
        ),
        matching=accuracy(row.matching for row in checked),
        first=accuracy(row.first for row in checked),
    )


def in_split(row: Row, split: Split) -> bool:
    """Whether a row belongs to a part of the scenarios."""
    return split == "all" or row.scenario.label.held_out == (split == "held out")


def _key(outcome: Outcome) -> tuple[str, str, float, int]:
    job = outcome.job
    return (job.tool, job.scenario, job.severity, job.seed)


def _row(
    scenario: Scenario,
    outcome: Outcome,
    twins: Mapping[tuple[str, str, float, int], Outcome],
) -> Row:
    answer = outcome.answer
    assert answer is not None
    # The script's own meter tells what a fix brought, whichever tool watched.
    twin = twins.get(_key(outcome))
    before, after = outcome.metered, twin.metered if twin is not None else None
    saved, matching, first = None, None, None
    if before is not None and after is not None:
        saved = saving(before, after)
        if len(scenario.label.causes) == 1:
            found = best_fix(scenario.label.fixes[0], answer.fixes)
            if found is not None:
                matching = check_prediction(found, answer, before, after)
            if answer.fixes:
                first = check_prediction(answer.fixes[0], answer, before, after)
    return Row(
        scenario=scenario,
        outcome=outcome,
        answer=answer,
        grade=grade(scenario.label, answer),
        saving_ratio=saved,
        lingers=_lingers(scenario, twin.answer) if twin is not None else None,
        matching=matching,
        first=first,
    )


def _lingers(scenario: Scenario, answer: Answer | None) -> bool | None:
    if answer is None:
        return None
    return (answer.suspect, answer.cause) in scenario.label.right
