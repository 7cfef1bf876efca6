"""Comparison of the tensors of two runs."""

from __future__ import annotations

import numpy as np

from stepscope.rules import Evaluation
from stepscope.rules.tensor.similar_across_runs import NO_COMMON_STEPS, SimilarAcrossRuns
from stepscope.schema import Finding
from tests.support.fake_rule_inputs import FakeRuleInputs

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
