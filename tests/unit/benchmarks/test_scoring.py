"""Scores of verdicts, computed from literal answers."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from benchmarks.diagnosis.catalogue import Label
from benchmarks.diagnosis.outcomes import Answer, Metered, NamedStage, SuggestedFix
from benchmarks.diagnosis.plot import plot_reliability
from benchmarks.diagnosis.scoring import (
    PredictionCheck,
    Rate,
    check_prediction,
    compute_accuracy,
    compute_calibration,
    compute_saving,
    count_grades,
    find_best_fix,
    grade,
    names_stage,
)

DECODE = Label(
    suspect="data_pipeline",
    cause="slow_decode",
    stage="decode",
    fix="decode once and cache the result",
    accept=["data_pipeline/slow_dataset"],
)
BOTH = Label(
    suspect="data_pipeline",
    cause=["slow_decode", "logging"],
    fix=["decode once and cache the result", "log every N steps"],
)
HEALTHY = Label(healthy=True)

CACHE = SuggestedFix(
    title="decode once and cache the result", description="write decoded samples", step_ms=20
)
LOG_LESS = SuggestedFix(title="log every N steps", description="from a background thread")
WORKERS = SuggestedFix(title="use 2 DataLoader workers instead of 1", description="", step_ms=60)


def make_answer(suspect: str | None, cause: str | None = None, **more: object) -> Answer:
    return Answer(suspect=suspect, cause=cause, **more)


class TestGrades:
    @pytest.mark.parametrize(
        ("answer", "suspect_right", "cause_right"),
        [
            (("data_pipeline", "slow_decode"), True, True),
            (("data_pipeline", "slow_dataset"), True, True),  # an accepted alternative
            (("data_pipeline", "slow_collate"), True, False),
            (("model", "slow_decode"), False, False),
            ((None,), False, False),
            (("data_pipeline",), True, None),  # a tool without causes is not blamed for them
        ],
    )
    def test_suspect_and_cause(
        self, answer: tuple[str, ...], suspect_right: bool, cause_right: bool | None
    ) -> None:
        graded = grade(DECODE, make_answer(*answer, confidence_ratio=0.9))
        assert (graded.suspect_right, graded.cause_right) == (suspect_right, cause_right)
        assert graded.abstained == (answer == (None,))
        assert graded.confidence_ratio == (None if graded.abstained else 0.9)

    def test_an_unknown_cause_is_not_named_and_never_right(self) -> None:
        answer = make_answer("data_pipeline", "unknown")
        labelled_unknown = Label(suspect="data_pipeline", cause="unknown", fix="")
        for label in (DECODE, labelled_unknown):
            graded = grade(label, answer)
            assert (graded.suspect_right, graded.cause_right) == (True, False)
            assert graded.cause_unnamed
        assert not grade(DECODE, make_answer("model", "unknown")).cause_unnamed

    def test_a_false_alarm_is_a_suspect_where_nothing_is_planted(self) -> None:
        assert grade(HEALTHY, make_answer("data_pipeline", "slow_reads")).false_alarm
        assert not grade(HEALTHY, make_answer("healthy", "none")).false_alarm
        assert not grade(HEALTHY, make_answer(None)).false_alarm
        assert not grade(DECODE, make_answer("model", "compute")).false_alarm

    def test_a_remark_is_right_where_it_is_true_and_no_alarm_elsewhere(self) -> None:
        large = Label(suspect="model", cause="compute", fix="smaller")
        remark = make_answer("model", remark=True)
        assert grade(large, remark).suspect_right
        assert not grade(HEALTHY, remark).false_alarm
        assert not grade(DECODE, remark).suspect_right

    def test_of_two_causes_one_is_named_and_the_other_gets_a_fix(self) -> None:
        first = make_answer("data_pipeline", "slow_decode", fixes=[CACHE])
        both = make_answer("data_pipeline", "slow_decode", fixes=[CACHE, LOG_LESS])
        turned = make_answer("framework_overhead", "logging", fixes=[LOG_LESS, CACHE])
        assert not grade(BOTH, first).all_found
        assert grade(BOTH, both).all_found
        assert not grade(BOTH, turned).all_found
        assert grade(DECODE, first).all_found is None

    def test_the_largest_stage_counts_whatever_its_form(self) -> None:
        decoding = NamedStage(name="decoding unpack 90%", share_ratio=0.4)
        reading = NamedStage(name="reading", share_ratio=0.2)
        answer = make_answer("data_pipeline", stages=[reading, decoding])
        assert names_stage("decode", answer)
        assert not names_stage("read", answer)
        assert not names_stage("decode", make_answer("data_pipeline"))


def test_rates_count_abstentions_against_the_tool() -> None:
    scores = count_grades(
        [
            grade(DECODE, make_answer("data_pipeline", "slow_decode")),
            grade(DECODE, make_answer("data_pipeline", "slow_collate")),
            grade(DECODE, make_answer(None)),
            grade(HEALTHY, make_answer("model", "compute")),
            grade(HEALTHY, make_answer("healthy", "none")),
        ]
    )
    assert scores.suspect == Rate(count=2, total=3)
    assert scores.cause == Rate(count=1, total=3)
    assert scores.false_alarms == Rate(count=1, total=2)
    assert scores.abstentions == Rate(count=1, total=5)
    assert scores.all_found.ratio is None


def test_causes_that_are_not_named_are_counted_apart() -> None:
    answers = [("data_pipeline", cause) for cause in ("slow_decode", "slow_collate", "unknown")]
    scores = count_grades([grade(DECODE, make_answer(*answer)) for answer in answers])
    assert scores.cause == Rate(count=1, total=3)
    assert scores.unnamed == Rate(count=1, total=3)
    assert scores.named_cause == Rate(count=1, total=2)


def test_a_tool_that_never_names_a_cause_has_no_rate_of_them() -> None:
    scores = count_grades(
        [grade(DECODE, make_answer("data_pipeline")), grade(DECODE, make_answer(None))]
    )
    assert scores.suspect == Rate(count=1, total=2)
    assert scores.cause.ratio is None


def test_an_interval_holds_the_rate_and_narrows() -> None:
    small, large = Rate(count=8, total=10).interval, Rate(count=800, total=1000).interval
    assert small == pytest.approx((0.490, 0.943), abs=0.001)  # a textbook value
    assert small[0] < large[0] < 0.8 < large[1] < small[1]
    assert Rate(count=0, total=0).interval is None


class TestCalibration:
    def test_stated_confidence_equals_the_share_of_correct_answers(self) -> None:
        calibration = compute_calibration([(0.75, True)] * 3 + [(0.75, False)])
        assert [(b.count, b.right_ratio) for b in calibration.bins] == [(4, 0.75)]
        assert calibration.expected_error == 0
        assert calibration.brier == pytest.approx((3 * 0.25**2 + 0.75**2) / 4)

    def test_every_answer_is_in_one_bin(self) -> None:
        stated = [0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0]
        calibration = compute_calibration([(confidence, True) for confidence in stated])
        assert sum(b.count for b in calibration.bins) == len(stated)
        assert calibration.bins[0].count == 2
        assert compute_calibration([(1.0, False), (1.0, True)]).expected_error == 0.5
        assert compute_calibration([]) is None


class TestPredictions:
    BEFORE = Metered(step_ms=100, samples_per_step=32)

    def test_a_fix_that_changes_the_batch_is_compared_by_the_sample(self) -> None:
        after = Metered(step_ms=200, samples_per_step=128)
        assert compute_saving(self.BEFORE, after) == 0.5

    def check(self, step_ms: float, after_ms: float) -> PredictionCheck:
        """Check the prediction of a fix with the step of the tool and the measured one after it."""
        after = Metered(step_ms=after_ms, samples_per_step=32)
        answer = make_answer("data_pipeline", step_ms=step_ms)
        return check_prediction(CACHE, answer, self.BEFORE, after)

    def test_relative_error_and_sign(self) -> None:
        check = self.check(100, 25)
        assert check.relative_error == pytest.approx(-0.2)
        assert check.saving_error == pytest.approx(0.05)
        assert check.sign_right
        check = self.check(80, 25)  # both times are based on the step of the tool
        assert check.achieved_ms == pytest.approx(20)
        assert check.relative_error == pytest.approx(0)
        check = self.check(100, 100)  # a saving that is not achieved
        assert check.sign_right is False
        assert replace(check, predicted_ms=99.5).sign_right is True
        check = check_prediction(LOG_LESS, make_answer("model"), self.BEFORE, self.BEFORE)
        assert (check.relative_error, check.sign_right) == (None, None)

    def test_accuracy_counts_missing_predictions(self) -> None:
        def check(predicted: float | None) -> PredictionCheck:
            return PredictionCheck(
                title="", predicted_ms=predicted, achieved_ms=50, measured_ms=100
            )

        accuracy = compute_accuracy([check(50), check(60), check(100), check(None), None])
        assert accuracy.predicted == Rate(count=3, total=5)
        assert accuracy.sign_right == Rate(count=2, total=3)
        assert accuracy.median_error == pytest.approx(0.2)
        assert accuracy.median_saving_error == pytest.approx(0.1)
        assert accuracy.within_quarter == Rate(count=2, total=3)


class TestMatchingFixes:
    def test_the_closest_words_win(self) -> None:
        assert (
            find_best_fix("decode once and cache the result", [WORKERS, LOG_LESS, CACHE]) == CACHE
        )
        assert find_best_fix("use 2 DataLoader workers instead of 0", [CACHE, WORKERS]) == WORKERS

    def test_one_word_in_common_is_not_enough(self) -> None:
        assert find_best_fix("evaluate less often on fewer steps", [LOG_LESS]) is None
        assert find_best_fix("anything", []) is None

    def test_the_first_of_equal_fixes_wins(self) -> None:
        twin = SuggestedFix(title=CACHE.title, description=CACHE.description, step_ms=1)
        assert find_best_fix("decode once", [CACHE, twin]) == CACHE


class TestPlot:
    def test_positions_of_dots(self) -> None:
        calibration = compute_calibration([(0.75, True), (0.75, False), (1.0, True)])
        assert calibration is not None
        root = ElementTree.fromstring(plot_reliability({"cause": calibration}))  # noqa: S314 - our own
        dots = [e for e in root.iter() if e.tag.endswith("circle")]
        centers = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in dots]
        (half, full) = sorted(centers)
        # The axes have the same scale: x grows by as much as y falls.
        assert full[0] - half[0] == pytest.approx((half[1] - full[1]) / 2, abs=0.2)
        assert [dot.find("{*}title").text for dot in dots] == [
            "2 answers: stated 75%, right 50%",
            "1 answers: stated 100%, right 100%",
        ]
