"""Scores: comparison of labels and outcomes. Pure: no clock, no files.

`grade` grades one answer, `count_grades` counts grades. A verdict abstains if it names no suspect;
that is neither right nor wrong, and it lowers the scores, which are shares of all completed runs. A
false alarm is a suspect that is named in a healthy scenario.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import msgspec

from benchmarks.diagnosis.catalogue import Label
from benchmarks.diagnosis.outcomes import Answer, Metered, SuggestedFix
from stepscope.diagnosis.verdict import UNKNOWN

BOTTLENECK_SUSPECTS = frozenset({"data_pipeline", "model", "communication", "framework_overhead"})
MIN_PLANTED_SAVING = 0.15
"""Share of the step that the fix of a planted cause must save to confirm the label."""
MIN_SAVING = 0.02
"""Share of the step below which a predicted or achieved saving counts as zero."""
BIN_EDGES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Edges of the bins of stated confidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """Grade of one answer."""

    planted: bool
    """True if the scenario has a planted cause."""
    abstained: bool
    suspect_right: bool
    cause_right: bool | None
    """None if the tool names no causes."""
    stage_right: bool | None
    """None if the label names no stage."""
    cause_unnamed: bool
    """True if the suspect is right and its cause is stated as unknown, which is never right."""
    all_found: bool | None
    """True if both of two causes are identified, the larger one first; None for a single cause."""
    false_alarm: bool
    confidence_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Count out of a total, with its ratio and confidence interval."""

    count: int
    total: int

    @property
    def ratio(self) -> float | None:
        """Count over total; None if the total is 0."""
        return self.count / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson score interval (95 %) for independent runs, which those of a scenario are not.

        https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval
        """
        if not self.total:
            return None
        z, n, p = 1.96, self.total, self.count / self.total
        center = (p + z * z / (2 * n)) / (1 + z * z / n)
        margin = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, center - margin), min(1.0, center + margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of a tool."""

    suspect: Rate
    """Runs with a planted cause in which the suspect is right."""
    cause: Rate
    """Runs with a planted cause in which the cause is right; counts runs in which the tool names a
    cause or abstains, if it names any causes at all."""
    unnamed: Rate
    """Runs with a planted cause in which the suspect is right and the cause stated as unknown."""
    stage: Rate
    all_found: Rate
    false_alarms: Rate
    """Healthy runs in which the tool names a suspect."""
    abstentions: Rate
    """Runs in which the tool abstains."""

    @property
    def named_cause(self) -> Rate:
        """Right causes among the runs in which the cause is not stated as unknown."""
        return Rate(count=self.cause.count, total=self.cause.total - self.unnamed.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Answers with similar confidence."""

    above: float
    upto: float
    count: int
    stated_ratio: float
    """Mean confidence."""
    right_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Agreement of stated confidence and share of correct answers."""

    bins: list[Bin]
    expected_error: float
    """Expected calibration error: mean distance of stated and observed, weighted by answers."""
    brier: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionCheck:
    """Predicted step time, compared with the one that the fix achieved."""

    title: str
    predicted_ms: float | None
    """None if the fix has no prediction."""
    achieved_ms: float
    measured_ms: float
    """Step time before the fix, measured by the tool that predicts."""

    @property
    def relative_error(self) -> float | None:
        """Relative error; above 0 if the fixed job is faster than predicted."""
        if self.predicted_ms is None:
            return None
        return self.predicted_ms / self.achieved_ms - 1

    @property
    def saving_error(self) -> float | None:
        """Predicted minus achieved saving, as shares of the step before."""
        if self.predicted_ms is None:
            return None
        return (self.achieved_ms - self.predicted_ms) / self.measured_ms

    @property
    def saving_ratio_error(self) -> float | None:
        """Error of the saving relative to the achieved one; None if nothing was achieved."""
        achieved = 1 - self.achieved_ms / self.measured_ms
        if self.saving_error is None or achieved < MIN_SAVING:
            return None
        return self.saving_error / achieved

    @property
    def sign_right(self) -> bool | None:
        """True if it predicts correctly if there is a saving."""
        if self.predicted_ms is None:
            return None
        predicts_saving = 1 - self.predicted_ms / self.measured_ms >= MIN_SAVING
        has_saving = 1 - self.achieved_ms / self.measured_ms >= MIN_SAVING
        return predicts_saving == has_saving


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Accuracy of predictions."""

    predicted: Rate
    """Checks in which a fix was suggested with a prediction."""
    sign_right: Rate
    median_error: float | None
    """Median of absolute relative errors."""
    median_saving_error: float | None
    """Median of absolute errors of the saving, as shares of the step before. If a step nearly
    vanishes, its relative error is large, since it divides by a small number."""
    median_saving_ratio_error: float | None
    """Median of absolute errors of the saving relative to the achieved one."""
    within_quarter: Rate
    """Predictions with an absolute relative error of at most 0.25."""


def grade(label: Label, answer: Answer) -> Grade:
    """Grade an answer by its label."""
    abstained = answer.suspect is None
    answer = _resolve_remark(label, answer)
    return Grade(
        planted=not label.healthy,
        abstained=abstained,
        suspect_right=_suspect_right(label, answer),
        cause_right=_cause_right(label, answer),
        cause_unnamed=answer.cause == UNKNOWN and _suspect_right(label, answer),
        stage_right=None if label.stage is None else names_stage(label.stage, answer),
        all_found=None if len(label.causes) == 1 else _all_found(label, answer),
        false_alarm=label.healthy and answer.suspect in BOTTLENECK_SUSPECTS,
        confidence_ratio=None if abstained else answer.confidence_ratio,
    )


def count_grades(grades: Iterable[Grade]) -> Scores:
    """Count grades."""
    all_grades = list(grades)
    planted = [g for g in all_grades if g.planted]
    healthy = [g for g in all_grades if not g.planted]
    names_causes = any(g.cause_right is not None for g in planted if not g.abstained)
    return Scores(
        suspect=_rate(g.suspect_right for g in planted),
        cause=_rate(g.cause_right for g in planted if names_causes and g.cause_right is not None),
        unnamed=_rate(g.cause_unnamed for g in planted),
        stage=_rate(g.stage_right for g in planted if g.stage_right is not None),
        all_found=_rate(g.all_found for g in planted if g.all_found is not None),
        false_alarms=_rate(g.false_alarm for g in healthy),
        abstentions=_rate(g.abstained for g in all_grades),
    )


def compute_calibration(
    answers: Iterable[tuple[float, bool]], edges: Sequence[float] = BIN_EDGES
) -> Calibration | None:
    """Compute the calibration of answers, pairs of stated confidence and correctness.

    A bin includes its upper edge; the first one includes its lower edge as well.

    Returns:
        None without answers.
    """
    pairs = list(answers)
    if not pairs:
        return None
    bins = []
    for above, upto in pairwise(edges):
        inside = [pair for pair in pairs if above < pair[0] <= upto or pair[0] == above == edges[0]]
        if inside:
            bins.append(
                Bin(
                    above=above,
                    upto=upto,
                    count=len(inside),
                    stated_ratio=sum(stated for stated, _ in inside) / len(inside),
                    right_ratio=sum(right for _, right in inside) / len(inside),
                )
            )
    return Calibration(
        bins=bins,
        expected_error=sum(b.count * abs(b.stated_ratio - b.right_ratio) for b in bins)
        / len(pairs),
        brier=sum((stated - right) ** 2 for stated, right in pairs) / len(pairs),
    )


def names_stage(stage: str, answer: Answer) -> bool:
    """Return True if the largest stage of an answer contains the word `stage`."""
    if not answer.stages:
        return False
    largest = max(answer.stages, key=lambda candidate: candidate.share_ratio)
    return _stem(stage) in " ".join(map(_stem, _words(largest.name))) or (
        stage.lower() in largest.name.lower()
    )


def compute_saving(before: Metered, after: Metered) -> float:
    """Compute the share of time per sample that a fix saves; negative if it costs time."""
    return 1 - after.sample_ms / before.sample_ms


def find_best_fix(sought: str, fixes: Sequence[SuggestedFix]) -> SuggestedFix | None:
    """Find the suggestion whose words are closest to a fix; None if no suggestion matches.

    Words of the title count twice as much as those of the description. A suggestion matches if two
    words agree, or all words of its title. The first of equal ones wins.
    """
    sought_words = set(map(_stem, _words(sought)))
    best, best_score = None, 0.0
    for fix in fixes:
        title = set(map(_stem, _words(fix.title)))
        description = set(map(_stem, _words(fix.description))) - title
        agree = len(sought_words & title) + len(sought_words & description)
        if agree < 2 and not (title and title <= sought_words):
            continue
        score = 2 * len(sought_words & title) + len(sought_words & description)
        if score > best_score:
            best, best_score = fix, score
    return best


def check_prediction(
    fix: SuggestedFix, answer: Answer, before: Metered, after: Metered
) -> PredictionCheck:
    """Compare a fix's prediction with the achieved step time.

    The prediction is based on the tool's mean step, the achieved time on the script's measurement.
    If these differ (the tool excludes something from its steps), the achieved time is scaled.
    """
    measured = answer.step_ms if answer.step_ms is not None else before.step_ms
    achieved = measured * (1 - compute_saving(before, after))
    return PredictionCheck(
        title=fix.title, predicted_ms=fix.step_ms, achieved_ms=achieved, measured_ms=measured
    )


def compute_accuracy(checks: Iterable[PredictionCheck | None]) -> Accuracy:
    """Compute the accuracy of predictions; None stands for a fix that was not suggested."""
    all_checks = list(checks)
    predictions = [
        check for check in all_checks if check is not None and check.predicted_ms is not None
    ]
    errors = [abs(error) for check in predictions if (error := check.relative_error) is not None]
    savings = [abs(error) for check in predictions if (error := check.saving_error) is not None]
    ratios = [
        abs(error) for check in predictions if (error := check.saving_ratio_error) is not None
    ]
    return Accuracy(
        predicted=Rate(count=len(predictions), total=len(all_checks)),
        sign_right=_rate(check.sign_right for check in predictions),
        median_error=median(errors) if errors else None,
        median_saving_error=median(savings) if savings else None,
        median_saving_ratio_error=median(ratios) if ratios else None,
        within_quarter=_rate(error <= 0.25 for error in errors),
    )


def _resolve_remark(label: Label, answer: Answer) -> Answer:
    """Count a remark as an answer if it is correct, otherwise as `healthy`."""
    if not answer.remark or _suspect_right(label, answer):
        return answer
    return msgspec.structs.replace(answer, suspect="healthy")


def _suspect_right(label: Label, answer: Answer) -> bool:
    return answer.suspect in {suspect for suspect, _ in label.right}


def _cause_right(label: Label, answer: Answer) -> bool | None:
    if answer.suspect is None:
        return False
    if answer.cause is None:
        return None
    return answer.cause != UNKNOWN and (answer.suspect, answer.cause) in label.right


def _all_found(label: Label, answer: Answer) -> bool:
    """Return True if the larger cause is named first and the other ones get a fix."""
    first, *smaller_fixes = label.fixes
    del first
    largest_named = _cause_right(label, answer) is True
    return largest_named and all(
        find_best_fix(fix, answer.fixes) is not None for fix in smaller_fixes
    )


def _rate(values: Iterable[bool | None]) -> Rate:
    all_values = list(values)
    return Rate(count=sum(map(bool, all_values)), total=len(all_values))


_FILLERS = """
a an and as at be by every for from in into instead is it its job more n of on or that the them
this to use when which with
"""


def _words(text: str) -> list[str]:
    return [
        word for word in re.findall(r"[a-z0-9_]+", text.lower()) if word not in _FILLERS.split()
    ]


def _stem(word: str) -> str:
    """Strip a suffix: decode, decoding and decoded have the same stem."""
    word = word.lower()
    for ending in ("ation", "ing", "ed", "es", "er", "e", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word
