"""Rules on restarted jobs, other runs and unknown times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from stepscope.analysis import explain_unknown_time
from stepscope.diagnosis import diagnose
from stepscope.rule_feed import check_rules, choose_rules
from stepscope.rules import Evaluation
from stepscope.rules.profiler.rank_straggler import RankStraggler
from stepscope.rules.profiler.step_time_regression import StepTimeRegression
from stepscope.rules.tensor.values import NO_COMMON_STEPS, SimilarAcrossRuns
from stepscope.schema import Finding, RuleStatus
from stepscope.testing import RunBuilder
from tests.support.fake_rule_inputs import FakeRuleInputs

STEPS = 100


def start_of(incarnation: int, *, forward_s: tuple[float, float]) -> FakeRuleInputs:
    """Steps of two ranks in one incarnation, with the own work of each."""
    inputs = FakeRuleInputs()
    for rank, seconds in enumerate(forward_s):
        inputs.rank(rank, forward=[seconds] * STEPS, from_s=1000.0 * incarnation)
    for index, steps in enumerate(inputs.steps):
        process = replace(steps.process, incarnation=incarnation)
        name = f"rank {process.rank} (incarnation {incarnation})"
        inputs.steps[index] = replace(steps, process=process, rank=name)
    return inputs


@pytest.mark.parametrize(
    ("first_s", "second_s", "fired"),
    [((1.0, 1.0), (1.0, 2.0), {"rank 1 (incarnation 2)"}), ((1.0, 2.0), (1.0, 1.0), set())],
)
def test_a_straggler_is_one_of_the_latest_start(
    first_s: tuple[float, float], second_s: tuple[float, float], fired: set[str]
) -> None:
    evaluation = Evaluation([RankStraggler()])
    evaluation.feed(start_of(1, forward_s=first_s))
    evaluation.feed(start_of(2, forward_s=second_s))
    (finding,) = evaluation.findings("ended")
    assert finding.status is (RuleStatus.ISSUES_FOUND if fired else RuleStatus.NO_ISSUES_FOUND)
    assert set(finding.ranks) == fired
    assert set(finding.details["ranks"]) == {"rank 0 (incarnation 2)", "rank 1 (incarnation 2)"}


NORM = np.linspace(3, 2, 20)


def draw(name: str = "fc.weight", *, changed_from: int = 20) -> FakeRuleInputs:
    norm = NORM.copy()
    norm[changed_from:] += 1e-9
    return FakeRuleInputs().tensor(name, l2=norm)


def compare(inputs: FakeRuleInputs, partner: FakeRuleInputs) -> Finding:
    inputs.other_runs["other"] = partner.tensors
    evaluation = Evaluation([SimilarAcrossRuns(other_trials="other")])
    evaluation.feed(inputs)
    (finding,) = evaluation.findings()
    return finding


@pytest.mark.parametrize(
    ("step_s", "fires"),
    [
        ([0.007] * 180 + [0.021] * 40 + [0.007] * 180, False),  # 0.84 s
        ([0.007] * 180 + [0.021] * 100 + [0.007] * 180, True),  # 2.1 s
        # The first steps of each epoch only start work, which a later one has to wait for.
        ([0.0002] * 40 + [0.08] * 80 + [0.0002] * 40 + [0.08] * 80, False),
        ([0.005] * 40 + [0.08] * 80, True),
    ],
)
def test_a_change_of_the_step_time_lasts(step_s: list[float], fires: bool) -> None:
    evaluation = Evaluation([StepTimeRegression()])
    evaluation.feed(FakeRuleInputs().rank(forward=step_s))
    (finding,) = evaluation.findings("ended")
    assert (finding.status is RuleStatus.ISSUES_FOUND) == fires


def test_equal_runs_are_similar() -> None:
    finding = compare(draw(), draw())
    assert not finding.fired
    assert finding.error is None
    assert (finding.datapoints, finding.violations) == (20, 0)


def test_the_first_difference_is_named() -> None:
    finding = compare(draw(changed_from=13), draw())
    assert finding.fired
    assert finding.violations == 7
    assert finding.sentences == ["fc.weight: differs from step 13 on, in 7 of 20 records."]


def test_runs_without_a_common_tensor_are_not_compared() -> None:
    assert compare(draw("a"), draw("b")).missing == NO_COMMON_STEPS


def test_it_needs_another_run() -> None:
    evaluation = Evaluation([SimilarAcrossRuns()])
    evaluation.feed(draw())
    (finding,) = evaluation.findings()
    assert finding.missing is not None
    assert "--set SimilarAcrossRuns.other_trials=RUN" in finding.missing


NO_CONTENTS = "steps were recorded, but no phases and no stack samples inside them"


@pytest.mark.parametrize(
    ("step", "fires"),
    [
        ("step ( do 10 )", False),  # marked by the script; nothing inside is known
        ("step ( do:log 10 )", True),  # stack samples show the script's own code
        ("step ( forward 1 | do 9 )", True),
    ],
)
def test_the_rule_applies_where_the_verdict_does(tmp_path: Path, step: str, fires: bool) -> None:
    drawn = RunBuilder(tmp_path / "run", code={"log": "main > train > log # print(step)"})
    drawn.rank().draw(step, 60)
    run = drawn.open()
    verdict = diagnose(run)
    (finding,) = check_rules(run.reader, choose_rules(["FrameworkOverhead"])).findings
    assert finding.fired is fires
    assert (verdict.suspect == "framework_overhead") is fires
    if not fires:
        assert finding.status is RuleStatus.NOT_APPLICABLE
        assert finding.missing == NO_CONTENTS
        assert verdict.headline == f"No verdict: {NO_CONTENTS}."


@pytest.mark.parametrize(
    ("phase_ns", "is_imported", "is_known"),
    [
        ({"data_wait": 49, "other": 51}, True, False),
        ({"data_wait": 50, "other": 50}, True, True),
        ({"data_wait": 49, "other": 51}, False, True),
        ({"forward": 1, "other": 99}, True, True),
        ({"other": 100}, False, False),
        ({}, False, False),
    ],
)
def test_unknown_time(phase_ns: dict[str, int], is_imported: bool, is_known: bool) -> None:
    reason = explain_unknown_time(phase_ns, has_samples=False, is_imported=is_imported)
    assert (reason is None) is is_known
