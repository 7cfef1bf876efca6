"""Rules on models of XGBoost, with numbers from their formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest

from stepscope.analysis import TensorValues
from stepscope.capture.frameworks.xgboost.tensors.figures import OTHER_FEATURES as RECORDED_NAME
from stepscope.rules.base import NotApplicable, NotRecorded, read_details
from stepscope.rules.tensor.boosted_models import (
    OTHER_FEATURES,
    FeatureImportanceOverweight,
    ModelRuleDetails,
    TreeDepth,
    estimate_depth,
)
from stepscope.schema import Finding
from tests.support.drawn_figures import matrix
from tests.support.fake_rule_inputs import FakeRuleInputs, check_rule

WEIGHT = "feature_importance/weight"


def importance(step: int, name: str = WEIGHT, /, **scores: float) -> TensorValues:
    values = {"value": list(scores.values())}
    return matrix(name, "feature_importance", values, rows=tuple(scores), step=step)


def judge(*matrices: TensorValues, columns: int | None = None, **parameters: Any) -> Finding:
    inputs = FakeRuleInputs()
    if columns is not None:
        fact = {"fact": "xgboost_model", "number": 1, "objective": "", "column_count": columns}
        inputs.rank(0, facts=[fact], optimizer=[0.1])
    for one in matrices:
        inputs.matrix(one)
    return check_rule(FeatureImportanceOverweight(**parameters), inputs)


@pytest.mark.parametrize(("rest", "is_found"), [(1.9, True), (2.1, False)])
def test_importance_of_three_features(rest: float, is_found: bool) -> None:
    """80 of 80 + 10 rest are above 0.8 if rest is below 2."""
    finding = judge(importance(5, a=40, b=5 * rest, c=30, d=10, e=5 * rest))
    assert finding.fired is is_found
    assert finding.violations == is_found
    assert finding.datapoints == 1
    if is_found:
        assert finding.sentences == [
            "model 1: 3 features have 81% of the importance (weight) after round 5: a 40%, c 30%, "
            "d 10%; in 1 of 1 recorded round."
        ]


def test_rounds_with_few_splits_are_not_judged() -> None:
    """Three features need thirty splits."""
    early, late = importance(0, a=29), importance(5, a=10, b=10, c=10, d=10)
    assert judge(early, late).datapoints == 1
    assert not judge(early, late).fired
    assert judge(importance(0, a=30)).fired
    finding = judge(early, late, importance(10, a=100, b=10, c=10, d=10))
    assert finding.fired
    details = read_details(finding, ModelRuleDetails)
    assert details.models[0].first_round == 10
    assert details.models[0].last_value == pytest.approx(12 / 13)
    with pytest.raises(NotApplicable, match="the models have too few splits so far"):
        judge(early)


def test_parameters_of_feature_importance() -> None:
    even = importance(0, a=20, b=10, c=10, d=10)
    assert judge(even, nfeatures=1, threshold=0.3).fired
    assert not judge(even, nfeatures=1, threshold=0.4).fired  # exactly 2 / 5
    gain = importance(0, "feature_importance/total_gain", a=9)
    assert judge(even, gain, tensor_regex="total_gain").datapoints == 1
    assert judge(even, gain, tensor_regex="total_gain").fired


def test_features_without_a_row_of_their_own_are_no_feature() -> None:
    assert OTHER_FEATURES == RECORDED_NAME
    assert not judge(importance(0, a=10, b=10, c=10, **{OTHER_FEATURES: 300})).fired


def test_data_with_few_features_cannot_depend_on_few() -> None:
    assert judge(importance(0, a=50), columns=4).fired
    with pytest.raises(NotApplicable, match="the data of the models have at most 3 features"):
        judge(importance(0, a=50), columns=3)
    with pytest.raises(NotRecorded, match="no importance of features was recorded"):
        judge()


@pytest.mark.parametrize("name", ["trees/depth", "model 3/trees/depth"])
def test_depth_of_trees(name: str) -> None:
    finding = check_rule(TreeDepth(), FakeRuleInputs().scalar(name, [3, 4, 5, 6, 2]))
    assert finding.fired
    assert (finding.violations, finding.datapoints) == (2, 5)
    model = "model 3" if name.startswith("model") else "model 1"
    assert finding.sentences == [
        f"{model}: a tree of round 2 has 5 levels of splits, more than 4; in 2 of 5 recorded "
        "rounds."
    ]
    assert not check_rule(TreeDepth(), FakeRuleInputs().scalar(name, [3, 4])).fired
    assert not check_rule(TreeDepth(depth=6), FakeRuleInputs().scalar(name, [6])).fired


@pytest.mark.parametrize("depth", range(9))
def test_debuggers_estimate_is_right_for_complete_trees(depth: int) -> None:
    """A complete tree of depth d has the nodes 0 to 2^(d+1) - 2."""
    assert estimate_depth(2 ** (depth + 1) - 2) == depth


@pytest.mark.parametrize("largest", [1, 20, 31, 32, 40])
def test_depth_by_the_largest_node(largest: int) -> None:
    inputs = FakeRuleInputs().scalar("trees/largest_node_id", [largest]).scalar("trees/depth", [9])
    finding = check_rule(TreeDepth(by_node_id=True), inputs)
    assert finding.fired is (math.floor(math.log2(largest)) > 4)
    assert finding.datapoints == 1


def test_no_trees() -> None:
    with pytest.raises(NotRecorded, match="no trees of XGBoost were recorded"):
        check_rule(TreeDepth(), FakeRuleInputs().scalar("loss", [1.0]))
