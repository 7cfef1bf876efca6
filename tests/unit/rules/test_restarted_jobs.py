"""Rules that compare ranks, on a job that was restarted: ranks of two starts do not mix."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from stepscope.rules import Evaluation
from stepscope.rules.profiler.rank_straggler import RankStraggler
from stepscope.schema import RuleStatus
from tests.support.fake_rule_inputs import FakeRuleInputs

STEPS = 100


def start_of(incarnation: int, *, forward_s: tuple[float, float]) -> FakeRuleInputs:
    """Steps of two ranks in one incarnation, with the own work of each."""
    inputs = FakeRuleInputs()
    for rank, seconds in enumerate(forward_s):
        inputs.rank(rank, forward=[seconds] * STEPS, from_s=1000.0 * incarnation)
    for index, steps in enumerate(inputs.steps):
        process = msgspec.structs.replace(steps.process, incarnation=incarnation)
        inputs.steps[index] = replace(steps, process=process, rank=process.title)
    return inputs


@pytest.mark.parametrize(
    ("first_s", "second_s", "fired"),
    [
        ((1.0, 1.0), (1.0, 2.0), {"rank 1 (incarnation 2)"}),
        ((1.0, 2.0), (1.0, 1.0), set()),
    ],
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
