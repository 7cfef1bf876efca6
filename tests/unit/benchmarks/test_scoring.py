"""Scores of verdicts against labels, from answers that are written out here."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from benchmarks.diagnosis.catalogue import Label
from benchmarks.diagnosis.outcomes import Answer, FixSaid, Metered, StageSaid
from benchmarks.diagnosis.plot import reliability
from benchmarks.diagnosis.scoring import (
    PredictionCheck,
    Rate,
    accuracy,
    best_fix,
    calibration,
    check_prediction,
    grade,
    saving,
    stage_is,
    tally,
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

CACHE = FixSaid(title="decode once and cache the result", how="write decoded samples", step_ms=20)
LOG_LESS = FixSaid(title="log every N steps", how="from a background thread")
WORKERS = FixSaid(title="use 2 DataLoader workers instead of 1", how="", step_ms=60)


def said(suspect: str | None, cause: str | None = None, **more: object) -> Answer:
    return Answer(suspect=suspect, cause=cause, **more)  # type: ignore[arg-type]


class TestGrades:
    def test_right(self) -> None:
        found = grade(DECODE, said("data_pipeline", "slow_decode", confidence_ratio=0.9))
        assert (found.suspect_right, found.cause_right, found.abstained) == (True, True, False)
        assert found.confidence_ratio == 0.9

    def test_another_name_that_is_as_right(self) -> None:
        assert grade(DECODE, said("data_pipeline", "slow_dataset")).cause_right

    def test_the_right_suspect_for_the_wrong_reason(self) -> None:
        found = grade(DECODE, said("data_pipeline", "slow_collate"))
        assert (found.suspect_right, found.cause_right) == (True, False)

    def test_a_right_cause_of_the_wrong_suspect_is_wrong(self) -> None:
        found = grade(DECODE, said("model", "slow_decode"))
        assert (found.suspect_right, found.cause_right) == (False, False)

    def test_an_abstention_is_not_right_and_has_no_confidence(self) -> None:
        found = grade(DECODE, said(None, confidence_ratio=0.0))
        assert found.abstained
        assert (found.suspect_right, found.cause_right) == (False, False)
        assert found.confidence_ratio is None

    def test_a_tool_without_causes_is_not_blamed_for_them(self) -> None:
        found = grade(DECODE, said("data_pipeline"))
        assert (found.suspect_right, found.cause_right) == (True, None)

    def test_a_false_alarm_is_a_suspect_where_nothing_is_planted(self) -> None:
        assert grade(HEALTHY, said("data_pipeline", "slow_reads")).false_alarm
        assert not grade(HEALTHY, said("healthy", "none")).false_alarm
        assert not grade(HEALTHY, said(None)).false_alarm
        assert not grade(DECODE, said("model", "compute")).false_alarm

    def test_a_remark_is_right_where_it_is_true_and_no_alarm_elsewhere(self) -> None:
        large = Label(suspect="model", cause="compute", fix="smaller")
        remark = said("model", remark=True)
        assert grade(large, remark).suspect_right
        assert not grade(HEALTHY, remark).false_alarm
        assert not grade(DECODE, remark).suspect_right

    def test_of_two_causes_the_larger_is_named_and_the_other_gets_a_fix(self) -> None:
        first = said("data_pipeline", "slow_decode", fixes=[CACHE])
        both = said("data_pipeline", "slow_decode", fixes=[CACHE, LOG_LESS])
        turned = said("framework_overhead", "logging", fixes=[LOG_LESS, CACHE])
        assert [grade(BOTH, each).all_found for each in (first, both, turned)] == [
            False,
            True,
            False,
        ]
        assert grade(DECODE, first).all_found is None

    def test_the_largest_stage_counts_whatever_its_form(self) -> None:
        decoding = StageSaid(name="decoding unpack 90%", share_ratio=0.4)
        reading = StageSaid(name="reading", share_ratio=0.2)
        answer = said("data_pipeline", stages=[reading, decoding])
        assert stage_is("decode", answer)
        assert not stage_is("read", answer)
        assert not stage_is("decode", said("data_pipeline"))


def test_rates_count_abstentions_against_the_tool() -> None:
    scores = tally(
        [
            grade(DECODE, said("data_pipeline", "slow_decode")),
            grade(DECODE, said("data_pipeline", "slow_collate")),
            grade(DECODE, said(None)),
            grade(HEALTHY, said("model", "compute")),
            grade(HEALTHY, said("healthy", "none")),
        ]
    )
    assert scores.suspect == Rate(count=2, of=3)
    assert scores.cause == Rate(count=1, of=3)
    assert scores.false_alarms == Rate(count=1, of=2)
    assert scores.abstentions == Rate(count=1, of=5)
    assert scores.all_found.ratio is None


def test_a_tool_that_never_names_a_cause_has_no_rate_of_them() -> None:
    scores = tally([grade(DECODE, said("data_pipeline")), grade(DECODE, said(None))])
    assert scores.suspect == Rate(count=1, of=2)
    assert scores.cause.ratio is None


def test_an_interval_holds_the_rate_and_narrows() -> None:
    few, many = Rate(count=8, of=10).interval, Rate(count=800, of=1000).interval
    assert few is not None
    assert many is not None
    assert few == pytest.approx((0.490, 0.943), abs=0.001)  # a textbook value
    assert few[0] < many[0] < 0.8 < many[1] < few[1]
    assert Rate(count=0, of=0).interval is None


class TestCalibration:
    def test_what_is_stated_is_what_happens(self) -> None:
        found = calibration([(0.75, True)] * 3 + [(0.75, False)])
        assert found is not None
        assert [(each.count, each.right_ratio) for each in found.bins] == [(4, 0.75)]
        assert found.expected_error == 0
        assert found.brier == pytest.approx((3 * 0.25**2 + 0.75**2) / 4)

    def test_too_sure(self) -> None:
        found = calibration([(1.0, False), (1.0, True)])
        assert found is not None
        assert found.expected_error == 0.5

    def test_bins_share_no_answer_and_lose_none(self) -> None:
        stated = [0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0]
        found = calibration([(each, True) for each in stated])
        assert found is not None
        assert sum(each.count for each in found.bins) == len(stated)
        assert found.bins[0].count == 2

    def test_none_of_none(self) -> None:
        assert calibration([]) is None


class TestPredictions:
    BEFORE = Metered(step_ms=100, samples_per_step=32)

    def test_a_fix_that_changes_the_batch_is_compared_by_the_sample(self) -> None:
        after = Metered(step_ms=200, samples_per_step=128)
        assert saving(self.BEFORE, after) == 0.5

    def test_relative_error_and_sign(self) -> None:
        answer = said("data_pipeline", step_ms=100)
        after = Metered(step_ms=25, samples_per_step=32)
        found = check_prediction(CACHE, answer, self.BEFORE, after)
        assert found.relative_error == pytest.approx(-0.2)
        assert found.saving_error == pytest.approx(0.05)
        assert found.sign_right

    def test_the_tools_own_step_is_the_base_of_both(self) -> None:
        answer = said("data_pipeline", step_ms=80)
        found = check_prediction(
            CACHE, answer, self.BEFORE, Metered(step_ms=25, samples_per_step=32)
        )
        assert found.achieved_ms == pytest.approx(20)
        assert found.relative_error == pytest.approx(0)

    def test_a_saving_that_does_not_come(self) -> None:
        answer = said("data_pipeline", step_ms=100)
        found = check_prediction(CACHE, answer, self.BEFORE, self.BEFORE)
        assert found.sign_right is False
        none = replace(found, predicted_ms=99.5)
        assert none.sign_right is True

    def test_no_prediction_is_no_error(self) -> None:
        found = check_prediction(LOG_LESS, said("model"), self.BEFORE, self.BEFORE)
        assert (found.relative_error, found.sign_right) == (None, None)

    def test_accuracy_counts_what_was_not_predicted(self) -> None:
        def check(predicted: float | None) -> PredictionCheck:
            return PredictionCheck(
                title="", predicted_ms=predicted, achieved_ms=50, measured_ms=100
            )

        found = accuracy([check(50), check(60), check(100), check(None), None])
        assert found.predicted == Rate(count=3, of=5)
        assert found.sign_right == Rate(count=2, of=3)
        assert found.median_error == pytest.approx(0.2)
        assert found.median_saving_error == pytest.approx(0.1)
        assert found.within_quarter == Rate(count=2, of=3)


class TestMatchingFixes:
    def test_the_closest_in_words(self) -> None:
        assert best_fix("decode once and cache the result", [WORKERS, LOG_LESS, CACHE]) == CACHE
        assert best_fix("use 2 DataLoader workers instead of 0", [CACHE, WORKERS]) == WORKERS

    def test_one_word_in_common_is_not_enough(self) -> None:
        assert best_fix("evaluate less often on fewer steps", [LOG_LESS]) is None
        assert best_fix("anything", []) is None

    def test_of_equals_the_first(self) -> None:
        twin = FixSaid(title=CACHE.title, how=CACHE.how, step_ms=1)
        assert best_fix("decode once", [CACHE, twin]) == CACHE


class TestPlot:
    def test_dots_lie_where_the_confidence_and_the_rate_are(self) -> None:
        found = calibration([(0.75, True), (0.75, False), (1.0, True)])
        assert found is not None
        root = ElementTree.fromstring(reliability({"cause": found}))  # noqa: S314 - our own
        dots = [e for e in root.iter() if e.tag.endswith("circle")]
        places = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in dots]
        (half, whole) = sorted(places)
        # The axes are alike: x grows by as much as y falls.
        assert whole[0] - half[0] == pytest.approx((half[1] - whole[1]) / 2, abs=0.2)
        assert [dot.find("{*}title").text for dot in dots] == [  # type: ignore[union-attr]
            "2 answers: stated 75%, right 50%",
            "1 answers: stated 100%, right 100%",
        ]
