"""Rows of results: each run with its label, its fixed twin and its grades. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.diagnosis.catalogue import Scenario
from benchmarks.diagnosis.outcomes import Answer, Outcome, Tool
from benchmarks.diagnosis.scoring import (
    MIN_PLANTED_SAVING,
    Accuracy,
    Calibration,
    Grade,
    PredictionCheck,
    Scores,
    check_prediction,
    compute_accuracy,
    compute_calibration,
    compute_saving,
    count_grades,
    find_best_fix,
    grade,
)

Split = Literal["seen", "held out", "all"]
SPLITS: tuple[Split, ...] = ("seen", "held out", "all")
DISTURBED_CORES = 0.25
"""Limit of cores used by other processes, above which a run counts as disturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Completed run with its scores."""

    scenario: Scenario
    outcome: Outcome
    answer: Answer
    grade: Grade
    saving_ratio: float | None
    """Share of the time per sample that the true fix saves; None without a fixed twin."""
    lingers: bool | None
    """True if the verdict on the fixed twin names the planted cause as well."""
    matching: PredictionCheck | None
    """Check of the suggestion that is closest to the true fix."""
    first: PredictionCheck | None
    """Check of the first suggestion."""

    @property
    def doubtful(self) -> bool:
        """True if the fix saves too little for the label to be correct."""
        return self.saving_ratio is not None and self.saving_ratio < MIN_PLANTED_SAVING

    @property
    def prediction_checked(self) -> bool:
        """True if the twin has a single fix, which is what predictions are for."""
        return self.saving_ratio is not None and len(self.scenario.label.causes) == 1

    @property
    def disturbed(self) -> bool:
        """True if other processes used the machine during the run."""
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


def build_rows(scenarios: Sequence[Scenario], outcomes: Iterable[Outcome]) -> list[Row]:
    """Build the rows of all completed runs; a fixed twin is part of its run's row."""
    by_name = {scenario.name: scenario for scenario in scenarios}
    completed = [
        outcome for outcome in outcomes if outcome.status == "done" and outcome.answer is not None
    ]
    twins = {_key(outcome): outcome for outcome in completed if outcome.job.fixed}
    return [
        _row(by_name[outcome.job.scenario], outcome, twins)
        for outcome in completed
        if not outcome.job.fixed and outcome.job.scenario in by_name
    ]


def summarize(rows: Iterable[Row], tool: Tool, split: Split) -> Summary:
    """Compute the scores of a tool on a split."""
    selected = [row for row in rows if row.outcome.job.tool == tool and is_in_split(row, split)]
    planted = [row for row in selected if row.grade.planted]
    checked = [row for row in planted if row.prediction_checked]
    return Summary(
        tool=tool,
        split=split,
        runs=len(selected),
        scores=count_grades(row.grade for row in selected),
        suspect_calibration=compute_calibration(
            (stated, row.grade.suspect_right)
            for row in selected
            if (stated := row.grade.confidence_ratio) is not None
        ),
        cause_calibration=compute_calibration(
            (stated, bool(row.grade.cause_right))
            for row in planted
            if (stated := row.grade.confidence_ratio) is not None
        ),
        matching=compute_accuracy(row.matching for row in checked),
        first=compute_accuracy(row.first for row in checked),
    )


def is_in_split(row: Row, split: Split) -> bool:
    """Return True if a row belongs to a split."""
    return split == "all" or row.scenario.label.held_out == (split == "held out")


def _key(outcome: Outcome) -> tuple[str, str, float, int]:
    job = outcome.job
    return (job.tool, job.scenario, job.severity, job.seed)


def _row(
    scenario: Scenario, outcome: Outcome, twins: Mapping[tuple[str, str, float, int], Outcome]
) -> Row:
    answer = outcome.answer
    assert answer is not None
    # The effect of a fix is measured by the script itself, for every tool.
    twin = twins.get(_key(outcome))
    before, after = outcome.metered, twin.metered if twin is not None else None
    saved, matching, first = None, None, None
    if before is not None and after is not None:
        saved = compute_saving(before, after)
        if len(scenario.label.causes) == 1:
            fix = find_best_fix(scenario.label.fixes[0], answer.fixes)
            if fix is not None:
                matching = check_prediction(fix, answer, before, after)
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
