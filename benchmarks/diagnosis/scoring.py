"""Labels against outcomes. Pure: no clock, no files; the same input twice gives the same scores.

An outcome is graded on its own (`grade`), grades are counted (`tally`). A verdict abstains when it
names no suspect; that is neither right nor wrong, and it counts against the scores, which are
shares of all runs that ended. A false alarm is a suspect that is named where nothing is planted.
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
from benchmarks.diagnosis.outcomes import Answer, FixSaid, Metered

ACCUSED = frozenset({"data_pipeline", "model", "communication", "framework_overhead"})
CLEARLY_FASTER = 0.15
"""A planted cause whose fix saves less than this share of the step is no cause."""
NO_SAVING = 0.02
"""Savings below this are none, predicted or achieved."""
EDGES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Of the bins of stated confidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """How right one answer is."""

    planted: bool
    """Whether there was anything to find."""
    abstained: bool
    suspect_right: bool
    cause_right: bool | None
    """None where the tool names no causes."""
    stage_right: bool | None
    """None where the label names none."""
    all_found: bool | None
    """Of two causes: both, the larger first. None where there is one."""
    false_alarm: bool
    confidence_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many of so many."""

    count: int
    of: int

    @property
    def ratio(self) -> float | None:
        """None of none is no rate."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % by Wilson's formula, as if runs were independent: of one scenario they are not."""
        if not self.of:
            return None
        z, n, p = 1.96, self.of, self.count / self.of
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        reach = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, middle - reach), min(1.0, middle + reach)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How often a tool is right."""

    suspect: Rate
    """Runs with something planted in which the suspect is right."""
    cause: Rate
    """And the cause; of runs for which the tool names one or abstains, if it ever names any."""
    stage: Rate
    all_found: Rate
    false_alarms: Rate
    """Of healthy runs."""
    abstentions: Rate
    """Of all runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Answers of about one confidence."""

    above: float
    upto: float
    count: int
    stated_ratio: float
    """Mean confidence."""
    right_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Whether a stated confidence is how often it is right."""

    bins: list[Bin]
    expected_error: float
    """Mean distance of stated and observed over bins, weighted by their answers."""
    brier: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionCheck:
    """One predicted step time against the one that the fix achieved."""

    title: str
    predicted_ms: float | None
    """None: the fix carries no prediction."""
    achieved_ms: float
    measured_ms: float
    """The step before, by the tool that predicts."""

    @property
    def relative_error(self) -> float | None:
        """Above 0: the fixed job is faster than predicted."""
        if self.predicted_ms is None:
            return None
        return self.predicted_ms / self.achieved_ms - 1

    @property
    def saving_error(self) -> float | None:
        """Predicted less achieved saving, as shares of the step before."""
        if self.predicted_ms is None:
            return None
        return (self.achieved_ms - self.predicted_ms) / self.measured_ms

    @property
    def saving_ratio_error(self) -> float | None:
        """Error of the saving relative to the achieved one; None where nothing was achieved."""
        achieved = 1 - self.achieved_ms / self.measured_ms
        if self.saving_error is None or achieved < NO_SAVING:
            return None
        return self.saving_error / achieved

    @property
    def sign_right(self) -> bool | None:
        """Whether it says rightly that there is something to save, or that there is not."""
        if self.predicted_ms is None:
            return None
        says = 1 - self.predicted_ms / self.measured_ms >= NO_SAVING
        does = 1 - self.achieved_ms / self.measured_ms >= NO_SAVING
        return says == does


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Of many predictions."""

    predicted: Rate
    """Of checks: there was a fix, and it carries a prediction."""
    sign_right: Rate
    median_error: float | None
    """Of absolute relative errors."""
    median_saving_error: float | None
    """Of absolute errors of the saving, as shares of the step before: what is left of a step that
    nearly vanishes is a small number, whose relative error is large."""
    median_saving_ratio_error: float | None
    """Of absolute errors of the saving relative to the achieved one."""
    within_quarter: Rate
    """Absolute relative error at most 0.25."""


def grade(label: Label, answer: Answer) -> Grade:
    """One answer against its label."""
    abstained = answer.suspect is None
    answer = _taken_at_its_word(label, answer)
    return Grade(
        planted=not label.healthy,
        abstained=abstained,
        suspect_right=answer.suspect in {suspect for suspect, _ in label.right},
        cause_right=_cause_right(label, answer),
        stage_right=None if label.stage is None else stage_is(label.stage, answer),
        all_found=None if len(label.causes) == 1 else _all_found(label, answer),
        false_alarm=label.healthy and answer.suspect in ACCUSED,
        confidence_ratio=None if abstained else answer.confidence_ratio,
    )


def tally(grades: Iterable[Grade]) -> Scores:
    """Grades, counted."""
    every = list(grades)
    planted = [each for each in every if each.planted]
    healthy = [each for each in every if not each.planted]
    names_causes = any(each.cause_right is not None for each in planted if not each.abstained)
    return Scores(
        suspect=_rate(each.suspect_right for each in planted),
        cause=_rate(
            each.cause_right for each in planted if names_causes and each.cause_right is not None
        ),
        stage=_rate(each.stage_right for each in planted if each.stage_right is not None),
        all_found=_rate(each.all_found for each in planted if each.all_found is not None),
        false_alarms=_rate(each.false_alarm for each in healthy),
        abstentions=_rate(each.abstained for each in every),
    )


def calibration(
    answers: Iterable[tuple[float, bool]], edges: Sequence[float] = EDGES
) -> Calibration | None:
    """Stated confidences and whether each was right; None without any.

    A bin holds its upper edge, the first one its lower edge as well.
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


def stage_is(stage: str, answer: Answer) -> bool:
    """Whether the largest stage of an answer is about something."""
    if not answer.stages:
        return False
    largest = max(answer.stages, key=lambda said: said.share_ratio)
    return _stem(stage) in " ".join(map(_stem, _words(largest.name))) or (
        stage.lower() in largest.name.lower()
    )


def saving(before: Metered, after: Metered) -> float:
    """Share of the time per sample that a fix saves, whatever a step is; below 0 it costs."""
    return 1 - after.sample_ms / before.sample_ms


def best_fix(sought: str, fixes: Sequence[FixSaid]) -> FixSaid | None:
    """The suggestion that comes closest to a fix in words; None where none is about it.

    Words of the title count twice those of the explanation; two words have to agree, or all of a
    title. Of equals the first.
    """
    wanted = set(map(_stem, _words(sought)))
    best, best_score = None, 0.0
    for fix in fixes:
        title = set(map(_stem, _words(fix.title)))
        how = set(map(_stem, _words(fix.how))) - title
        agree = len(wanted & title) + len(wanted & how)
        if agree < 2 and not (title and title <= wanted):
            continue
        score = 2 * len(wanted & title) + len(wanted & how)
        if score > best_score:
            best, best_score = fix, score
    return best


def check_prediction(
    fix: FixSaid, answer: Answer, before: Metered, after: Metered
) -> PredictionCheck:
    """A fix's prediction against what was achieved.

    The tool's own mean step is the base of what it predicts, the script's meter that of what was
    achieved. Where they differ (the tool leaves something out of its steps) the achieved step
    is scaled alike.
    """
    measured = answer.step_ms if answer.step_ms is not None else before.step_ms
    achieved = measured * (1 - saving(before, after))
    return PredictionCheck(
        title=fix.title, predicted_ms=fix.step_ms, achieved_ms=achieved, measured_ms=measured
    )


def accuracy(checks: Iterable[PredictionCheck | None]) -> Accuracy:
    """Of predictions; None stands for a fix that was not even suggested."""
    every = list(checks)
    made = [check for check in every if check is not None and check.predicted_ms is not None]
    errors = [abs(error) for check in made if (error := check.relative_error) is not None]
    savings = [abs(error) for check in made if (error := check.saving_error) is not None]
    ratios = [abs(error) for check in made if (error := check.saving_ratio_error) is not None]
    return Accuracy(
        predicted=Rate(count=len(made), of=len(every)),
        sign_right=_rate(check.sign_right for check in made),
        median_error=median(errors) if errors else None,
        median_saving_error=median(savings) if savings else None,
        median_saving_ratio_error=median(ratios) if ratios else None,
        within_quarter=_rate(error <= 0.25 for error in errors),
    )


def _taken_at_its_word(label: Label, answer: Answer) -> Answer:
    """A remark that is true is an answer; elsewhere it says that nothing is wrong."""
    if not answer.remark or answer.suspect in {suspect for suspect, _ in label.right}:
        return answer
    return msgspec.structs.replace(answer, suspect="healthy")


def _cause_right(label: Label, answer: Answer) -> bool | None:
    if answer.suspect is None:
        return False
    if answer.cause is None:
        return None
    return (answer.suspect, answer.cause) in label.right


def _all_found(label: Label, answer: Answer) -> bool:
    """The larger cause is named first, and every other one is given a fix."""
    first, *others = label.fixes
    del first
    named = _cause_right(label, answer) is True
    return named and all(best_fix(fix, answer.fixes) is not None for fix in others)


def _rate(values: Iterable[bool | None]) -> Rate:
    every = list(values)
    return Rate(count=sum(map(bool, every)), of=len(every))


_FILLERS = """
a an and as at be by every for from in into instead is it its job more n of on or that the them
this to use when which with
"""


def _words(text: str) -> list[str]:
    return [
        word for word in re.findall(r"[a-z0-9_]+", text.lower()) if word not in _FILLERS.split()
    ]


def _stem(word: str) -> str:
    """Enough of a word to know it by: decode, decoding and decoded are one."""
    word = word.lower()
    for ending in ("ation", "ing", "ed", "es", "er", "e", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word
