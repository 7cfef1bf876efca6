"""Rules on statistics of tensors, with numbers from formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stepscope.analysis import TensorValues
from stepscope.errors import UsageError
from stepscope.rule_feed import choose_rules
from stepscope.rules import Evaluation, IncrementalRule, Rule
from stepscope.rules.base import NotRecorded, read_details
from stepscope.rules.tensor import RULES
from stepscope.rules.tensor.base import TensorRuleDetails
from stepscope.rules.tensor.units import DeadRelu, SaturatedActivation
from stepscope.rules.tensor.updates import UnchangedTensor, WeightUpdateRatio
from stepscope.rules.tensor.values import (
    AllZero,
    ExplodingTensor,
    TensorVariance,
    VanishingGradient,
)
from stepscope.schema import Finding, RuleStatus
from tests.support.drawn_figures import matrix
from tests.support.fake_rule_inputs import ORIGIN_NS, SECOND_NS, FakeRuleInputs, check_rule

STEPS = np.arange(20)


def one(rule: Rule[Any], **statistics: Any) -> Finding:
    """Evaluate a rule on one gradient, which is a weight for rules on weights."""
    name = "fc.weight" if "update_l2" in statistics else "gradient/fc.weight"
    return check_rule(rule, FakeRuleInputs().tensor(name, **statistics))


def violations(finding: Finding) -> list[tuple[str, int | None, int]]:
    details = read_details(finding, TensorRuleDetails)
    assert details is not None
    return [(t.tensor, t.first_step, t.violation_count) for t in details.tensors]


@pytest.mark.parametrize(("zeros", "is_found"), [(100, True), (99, False)])
def test_all_zero(zeros: int, is_found: bool) -> None:
    finding = one(AllZero(), zero_count=np.where(STEPS == 7, zeros, 3))
    assert finding.fired is is_found
    assert violations(finding) == ([("gradient/fc.weight", 7, 1)] if is_found else [])
    assert one(AllZero(threshold="99"), zero_count=99).violations == 1


def test_exploding_tensor() -> None:
    infinite = np.where(STEPS >= 15, 2, 0)
    finding = one(ExplodingTensor(), infinite_count=infinite)
    assert finding.fired
    assert violations(finding) == [("gradient/fc.weight", 15, 5)]
    assert finding.sentences == [
        "gradient/fc.weight: 2 elements are NaN or infinite at step 15; in 5 of 20 records."
    ]
    assert not one(ExplodingTensor(only_nan=True), infinite_count=infinite).fired
    assert one(ExplodingTensor(only_nan=True), nan_count=1).fired


@pytest.mark.parametrize(
    ("rule", "collection"), [(DeadRelu, "dead_units"), (SaturatedActivation, "saturated_units")]
)
def test_stopped_units(rule: type[Rule[Any]], collection: str) -> None:
    """More than half of the units: half of them are not enough."""

    def find(share: Any, **parameters: Any) -> Finding:
        inputs = FakeRuleInputs().tensor("activation/act", mean=1.0)
        inputs.tensor(f"{collection}/act", collection=collection, mean=share)
        return check_rule(rule(**parameters), inputs)

    finding = find(np.where(STEPS >= 18, 0.51, 0.5))
    assert violations(finding) == [(f"{collection}/act", 18, 2)]
    adjective = collection.partition("_")[0]
    assert finding.sentences == [
        f"{collection}/act: 51% of the units are {adjective} at step 18; in 2 of 20 records."
    ]
    assert find(0.31, threshold_layer="30").fired
    with pytest.raises(NotRecorded) as error:
        check_rule(rule(), FakeRuleInputs().tensor("fc.weight", mean=1.0))
    assert "--tensors activations" in error.value.advice


@pytest.mark.parametrize(("factor", "is_found"), [(0.99, True), (1.01, False)])
def test_vanishing_gradient(factor: float, is_found: bool) -> None:
    # Of 100 elements 80 are finite: the sum of their absolute values is 80 times the mean.
    l1 = np.where(STEPS == 4, 1e-7 * 80 * factor, 1.0)
    finding = one(VanishingGradient(), l1=l1, nan_count=15, infinite_count=5)
    assert finding.fired is is_found
    weights = FakeRuleInputs().tensor("fc.weight", l1=0.0).tensor("gradient/fc.weight", l1=1.0)
    assert not check_rule(VanishingGradient(), weights).fired


def test_tensor_variance() -> None:
    std = np.array([1.0, 2.0, 3.0])
    assert not one(TensorVariance(), std=std).fired
    assert one(TensorVariance(max_threshold="8.9"), std=std).violations == 1
    assert one(TensorVariance(max_threshold=9.1), std=std).violations == 0
    assert one(TensorVariance(min_threshold=1.1), std=std).violations == 1


@pytest.mark.parametrize(
    ("ratio", "is_found"), [(10.1, True), (9.9, False), (9e-9, True), (2e-8, False)]
)
def test_weight_update_ratio(ratio: float, is_found: bool) -> None:
    assert one(WeightUpdateRatio(), l2=2.0, update_l2=2 * ratio).fired is is_found
    assert not one(WeightUpdateRatio(), l2=2.0, update_l2=np.nan).fired


def test_unchanged_tensor() -> None:
    values = np.array([1.0, 1.0, 2.0, 3.0, 3.0, 3.0 + 2e-5, 3.0, 4.0])
    statistics = dict.fromkeys(("min", "max", "mean", "std", "l1", "l2"), values)
    finding = one(UnchangedTensor(), **statistics)
    assert violations(finding) == [("gradient/fc.weight", 5, 2)]
    assert not one(UnchangedTensor(num_steps=5), **statistics).fired
    assert not one(UnchangedTensor(rtol=1e-7), **statistics).fired
    assert not one(UnchangedTensor(), **(statistics | {"max": np.arange(8.0)})).fired
    assert not one(UnchangedTensor(), l2=np.full(8, np.nan)).fired
    assert one(UnchangedTensor(equal_nan=True), l2=np.full(8, np.nan)).fired


def test_tensors_are_chosen_by_collection_or_name() -> None:
    inputs = FakeRuleInputs()
    for name in ("a.weight", "gradient/a.weight", "gradient/b.weight"):
        inputs.tensor(name, nan_count=1)

    def judged(**choice: str) -> list[str]:
        return [name for name, _, _ in violations(check_rule(ExplodingTensor(**choice), inputs))]

    assert len(judged()) == 3
    assert judged(collection_names="weights") == ["a.weight"]
    assert judged(tensor_regex="b.w") == ["gradient/b.weight"]
    assert judged(collection_names="weights, losses", tensor_regex="^gradient/a") == [
        "a.weight",
        "gradient/a.weight",
    ]


def test_the_first_tensors_are_described_first() -> None:
    inputs = FakeRuleInputs()
    for number in range(7):
        inputs.tensor(
            f"layer{number}", nan_count=np.where(10 - number <= STEPS, 1, 0), process="p1"
        )
    finding = check_rule(ExplodingTensor(), inputs)
    assert finding.sentences[0].startswith("layer6, rank 1: 1 element is NaN or infinite at step 4")
    assert finding.sentences[-1] == "And 2 more tensors."
    assert finding.ranks == ["rank 1"]


def test_rules_without_data_are_listed_only_where_they_were_requested() -> None:
    def names(inputs: FakeRuleInputs, *requested: str) -> set[str]:
        evaluation = Evaluation(choose_rules(requested))
        evaluation.feed(inputs)
        return {finding.rule for finding in evaluation.findings()}

    without = FakeRuleInputs().sample("cpu_busy_ratio", [0.1, 0.2])
    tensor_rules = {rule.__name__ for rule in RULES}
    assert not names(without) & tensor_rules
    assert names(without, "AllZero") == {"AllZero"}
    stop_on = Evaluation(choose_rules(also=["AllZero"], without=["ExplodingTensor"]))
    stop_on.feed(without)
    listed = [finding.rule for finding in stop_on.findings()]
    assert set(listed) & tensor_rules == {"AllZero"}
    assert "AllZero" in names(FakeRuleInputs().tensor("fc.weight", zero_count=0))


def test_an_invalid_expression_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Invalid value '\('.*regular expression or None"):
        AllZero(tensor_regex="(")
    with pytest.raises(UsageError, match="true or false"):
        ExplodingTensor(only_nan="perhaps")


INCREMENTAL_RULES = [rule for rule in RULES if issubclass(rule, IncrementalRule)]
"""The others are evaluated on the whole run."""


def batch_matrices(process: str, step: int, random: np.random.Generator) -> list[TensorValues]:
    """Draw the matrices of a batch: labels, a confusion, channels of images, tokens; and the
    importance of features."""
    drawn = {
        ("labels/train", "labels"): ("01", ("count", "mispredicted"), [[90, 80], [9, 1]]),
        ("batch_confusion/train", "predictions"): ("01", ("0", "1"), [[90, 9], [30, 60]]),
        ("channels/train", "inputs"): ("0", ("image_count", "mean", "std"), [[600, 0.5, 1]]),
        ("tokens/train", "inputs"): ("07", ("count",), [[60], [40]]),
    }
    tables = [
        (
            name,
            collection,
            rows,
            columns,
            np.array(values) * random.integers(0, 9, np.shape(values)),
        )
        for (name, collection), (rows, columns, values) in drawn.items()
    ]
    scores = 100 * random.exponential(size=(6, 1)) ** 3
    tables.append(("feature_importance/weight", "feature_importance", "abcdef", ("value",), scores))
    return [
        matrix(
            name,
            collection,
            dict(zip(columns, values.T, strict=True)),
            rows=rows,
            step=step,
            process=process,
            t_ns=ORIGIN_NS + step * 4 * SECOND_NS,
        )
        for name, collection, rows, columns, values in tables
    ]


def random_inputs(seed: int) -> FakeRuleInputs:
    """Draw tensors and losses with faults at random steps."""
    random = np.random.default_rng(seed)
    inputs = FakeRuleInputs()
    for process in ("p0", "p1"):
        for name in ("a.weight", "gradient/a.weight"):
            values = np.repeat(random.choice([0.0, 1e-9, 1.0, 50.0], 40), 5)
            bad = (random.random(200) < 0.02) * random.integers(0, 100, 200)
            inputs.tensor(
                name,
                process=process,
                every_s=4,
                nan_count=bad,
                zero_count=np.where(values == 0, 100, 1),
                update_l2=random.choice([1e-12, 1e-3, 30.0], 200),
                **dict.fromkeys(("min", "max", "mean", "std", "l1", "l2"), values),
            )
        for units in ("dead_units", "saturated_units"):
            share = random.choice([0.0, 0.4, 0.9], 200)
            inputs.tensor(f"{units}/act", collection=units, process=process, every_s=4, mean=share)
        for layer in ("act", "act2"):
            inputs.tensor(f"input/{layer}", process=process, every_s=4, std=random.random(200))
        inputs.tensor("dead_units/act2", process=process, every_s=4, mean=[0.0] * 200)
        scale = 2.0 ** np.cumsum(random.choice([-1, 0, 1], 200))
        inputs.scalar("grad_scaler/scale", scale, process=process, every_s=4)
        clipped = np.where(random.random(200) < 0.04, 0.5, 2.0)
        inputs.scalar("gradient_clipping/norm_ratio", clipped, process=process, every_s=4)
        loss = random.lognormal(size=200) * np.where(random.random(200) < 0.03, 40, 1)
        inputs.scalar("loss/NllLoss", loss, process=process, every_s=4)
        inputs.scalar("val_loss", loss[:40] * 2, process=process, every_s=20, from_s=1.5)
        inputs.scalar("trees/depth", random.integers(1, 8, 40), process=process, every_s=20)
        for step in range(0, 200, 10):
            for drawn in batch_matrices(process, step, random):
                inputs.matrix(drawn)
    return inputs


@pytest.mark.parametrize("rule", INCREMENTAL_RULES, ids=lambda rule: rule.__name__)
@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), scans=st.lists(st.integers(1, 13), max_size=8))
def test_findings_do_not_depend_on_the_ranges(
    rule: type[Rule[Any]], seed: int, scans: list[int]
) -> None:
    inputs = random_inputs(seed)
    by_range, at_once = Evaluation([rule()]), Evaluation([rule()])
    for range_inputs in inputs.ranges(scans):
        by_range.feed(range_inputs)
    at_once.feed(inputs)
    (finding,) = at_once.findings()
    assert by_range.findings() == [finding]
    assert finding.error is None
    assert finding.status is not RuleStatus.NOT_APPLICABLE
