from __future__ import annotations

import msgspec
import pytest

from benchmarks.foreign import MeasuredFix, Program, count_verdicts, grade, render
from stepscope.diagnosis.measured import Counts


def make_program(suspect: str, cause: str, *savings: float, **verdict: object) -> Program:
    """Make a program whose fixes of slow_decode and evaluation, in turn, have these savings."""
    kinds = [("data_pipeline", "slow_decode"), ("framework_overhead", "evaluation")]
    fixes = [
        {
            "change": "one",
            "suspect": fix_suspect,
            "cause": fix_cause,
            "saving_ratio": saving,
            "pair_count": 3,
        }
        for (fix_suspect, fix_cause), saving in zip(kinds, savings, strict=False)
    ]
    fields_of_verdict = {
        "suspect": suspect,
        "cause": cause,
        "share_ratio": 0.4,
        "confidence_ratio": 0.8,
        "evidence_kind": "sampled",
        **verdict,
    }
    fields = {
        "id": "x",
        "title": "X trains",
        "repository": "a/b",
        "version": "0" * 40,
        "command": ["python", "train.py"],
        "kind": "vision",
        "framework": "plain",
        "half": "held out",
        "why": "",
        "fixes": fixes,
        "verdict": fields_of_verdict,
    }
    return msgspec.convert(fields, Program)


@pytest.mark.parametrize(
    ("verdict", "savings", "grades"),
    [
        (("data_pipeline", "slow_decode"), [0.15], (True, True, False)),
        (("data_pipeline", "slow_decode"), [0.149], (False, False, True)),
        (("data_pipeline", "slow_reads"), [0.3], (True, False, False)),
        (("framework_overhead", "evaluation"), [0.3, 0.2], (True, True, False)),
        (("framework_overhead", "evaluation"), [0.3, 0.1], (False, False, False)),
        (("healthy", "none"), [0.19], (True, True, False)),
        (("healthy", "none"), [0.2], (False, False, False)),
        (("model", "compute"), [0.19], (True, True, False)),
        (("model", "compute"), [0.2], (False, False, False)),
        (("model", "optimizer"), [], (False, False, True)),
    ],
)
def test_grades_follow_the_measured_savings(
    verdict: tuple[str, str], savings: list[float], grades: tuple[bool, bool, bool]
) -> None:
    graded = grade(make_program(*verdict, *savings))
    assert (graded.suspect_right, graded.cause_right, graded.false_alarm) == grades


def test_the_sign_is_that_of_the_tried_fix() -> None:
    for predicted, achieved, right in (
        (0.3, 0.1, True), (0.3, -0.2, False), (0.01, 0.0, True), (0.01, 0.2, False),
        (0.3, None, None),
    ):  # fmt: skip
        ratios = {"predicted_saving_ratio": predicted, "achieved_saving_ratio": achieved}
        program = make_program("data_pipeline", "slow_decode", **ratios)
        assert grade(program).sign_right is right


def test_counts_are_by_cause_and_by_kind_of_evidence() -> None:
    programs = [
        make_program("data_pipeline", "slow_decode", 0.5),
        make_program("data_pipeline", "slow_decode", 0.0),
        make_program("healthy", "none", 0.0, evidence_kind="profiled"),
        make_program("insufficient_evidence", "insufficient_evidence", 0.5),
    ]
    counts = count_verdicts(programs)
    assert counts.causes == {
        "none": Counts(verdict_count=1, right_count=1),
        "slow_decode": Counts(verdict_count=2, right_count=1),
    }
    assert counts.evidence_kinds == {
        "profiled": Counts(verdict_count=1, right_count=1),
        "sampled": Counts(verdict_count=2, right_count=1),
    }


def test_the_page_has_a_row_for_each_program() -> None:
    page = render([make_program("data_pipeline", "slow_decode", 0.5)])
    assert "| X trains | data_pipeline: slow_decode | 50% (one) |" in page
    assert "held out | 1 | 1/1 = 100%" in page


def test_fixes_are_sorted_by_saving() -> None:
    fixes = make_program("healthy", "none", 0.2, 0.6).select_proven()
    assert [fix.saving_ratio for fix in fixes] == [0.6, 0.2]
    assert isinstance(fixes[0], MeasuredFix)
