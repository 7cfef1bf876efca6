"""NanOrigin: the sentence about each kind of origin, and searches without one."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.rules import describe_origin
from stepscope.rules.tensor.nan_origin import SEARCH_AGAIN, NanOrigin, explain
from stepscope.schema import Finding, NanFollower, NanOriginFact, RuleStatus, TensorValues
from tests.support.fake_rule_inputs import ORIGIN_NS, SECOND_NS, FakeRuleInputs

ONES = TensorValues(shape=[4], dtype="float32", min=1, max=2, element_count=4, zero_count=0)
ZEROS = TensorValues(shape=[4], dtype="float32", min=0, max=2, element_count=4, zero_count=2)
SIGNED = TensorValues(shape=[4], dtype="float32", min=-3, max=2, element_count=4, zero_count=0)
MASKED = TensorValues(shape=[4], dtype="float32", element_count=4, negative_infinite_count=4)
LARGE = TensorValues(shape=[4], dtype="float16", min=1, max=3e4, element_count=4, zero_count=0)
NAN = TensorValues(shape=[4], dtype="float32", element_count=4, nan_count=1)
INFINITE = TensorValues(shape=[4], dtype="float16", element_count=4, positive_infinite_count=2)
NEGATIVE = TensorValues(shape=[4], dtype="float32", element_count=4, negative_infinite_count=1)


def origin(operator: str = "div", result: TensorValues = NAN, **fields: Any) -> NanOriginFact:
    fields = {"inputs": [ONES], "phase": "forward", "reached": "loss", "reached_step": 12, **fields}
    return NanOriginFact(
        step=12, operator=operator, file="/job/loss.py", line=31, result=result, **fields
    )


@pytest.mark.parametrize(
    ("operator", "result", "inputs", "reason"),
    [
        ("log", NEGATIVE, [ZEROS], "the logarithm of 0"),
        ("log", NAN, [SIGNED], "the logarithm of a negative number"),
        ("div", NAN, [ZEROS, ZEROS], "0 divided by 0"),
        ("div", NEGATIVE, [SIGNED, ZEROS], "division by 0"),
        ("div", NEGATIVE, [SIGNED, SIGNED], "it exceeded the largest number of float32, from "
         "inputs up to 3"),
        ("sqrt", NAN, [SIGNED], "the square root of a negative number"),
        ("acos", NAN, [SIGNED], "acos is defined from -1 to 1, and its input was -3 to 2"),
        ("softmax", NAN, [MASKED], "a row consisted of -Inf only: everything in it was masked"),
        ("nll_loss_forward", NAN, [ONES], "the mean of no labels: each one is ignored, or has the "
         "weight 0"),
        ("std", NAN, [ONES], "the deviation of a single element is not defined"),
        ("addmm", INFINITE, [LARGE, LARGE], "it exceeded the largest number of float16, from "
         "inputs up to 30,000"),
        ("custom_op", NAN, [ONES], ""),
    ],
)  # fmt: skip
def test_reason(
    operator: str, result: TensorValues, inputs: list[TensorValues], reason: str
) -> None:
    cause = explain(origin(operator, result, inputs=inputs))

    assert cause.reason == reason
    assert cause.advice


def test_sentence_about_an_operator() -> None:
    follower = NanFollower(
        operator="mul", phase="loss", autograd_node=None, module="", file="/job/loss.py", line=32
    )
    fact = origin(
        "log", NEGATIVE, inputs=[ZEROS], module="head", module_class="Head", follower=follower
    )

    assert describe_origin(fact) == (
        "Step 12: `log` in loss.py:31 (forward of `head`) produced the first -Inf (25% of 4 "
        "elements): the logarithm of 0. It became NaN in `mul` in loss.py:32 (loss). It reached "
        "the loss."
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"phase": "backward", "autograd_node": "SqrtBackward0", "result": INFINITE,
             "inputs": [ONES, ZEROS], "reached": "gradients", "reached_parameter": "fc.weight"},
            "Step 12: `div` in loss.py:31 (backward pass of Sqrt) produced the first Inf (50% of 4 "
            "elements): the gradient of a square root at 0 is infinite. It reached the gradient of "
            "`fc.weight`.",
        ),
        (
            {"phase": "optimizer", "operator": "addcdiv", "inputs": [ONES, ZEROS, ZEROS],
             "reached": "parameters", "reached_parameter": "fc.weight"},
            "Step 12: `addcdiv` in loss.py:31 (optimizer step) produced the first NaN (25% of 4 "
            "elements): 0 divided by 0, where a parameter has had no gradient so far. It reached "
            "`fc.weight`.",
        ),
        (
            {"phase": "input", "operator": "", "reached_step": 13},
            "Step 12: a tensor that is used in loss.py:31 already held NaN (25% of 4 elements). It "
            "reached the loss of step 13.",
        ),
        (
            {"phase": "parameters", "operator": "", "parameter": "fc.weight"},
            "Step 12: `fc.weight`, which is used in loss.py:31, already held NaN (25% of 4 "
            "elements). It reached the loss.",
        ),
    ],
)  # fmt: skip
def test_sentence_about_a_phase(fields: dict[str, Any], sentence: str) -> None:
    assert describe_origin(origin(**fields)) == sentence


def check(*ranks: list[dict[str, Any]]) -> Finding:
    inputs = FakeRuleInputs()
    for rank, facts in enumerate(ranks):
        inputs.rank(rank, facts=facts, forward=[1.0] * 20)
    finding = NanOrigin().check(inputs)
    assert finding is not None
    return finding


def search(**fields: Any) -> dict[str, Any]:
    search = {"first_step": 0, "step_count": 0, "loss_step": None, "loss": None}
    return {"fact": "nan_search", **search, **fields}


def found(step: int, phase: str) -> dict[str, Any]:
    fields = {"operator": "div", "result": {}, "reached": "gradients", "reached_step": step}
    return {"fact": "nan_origin", "step": step, "phase": phase, **fields}


def test_the_origin_of_the_rank_that_has_seen_it_is_named() -> None:
    finding = check(
        [search(step_count=9), found(9, "exchange")], [search(step_count=9), found(9, "backward")]
    )

    assert finding.sentences[0].startswith("Step 9 of rank 1: `div` (backward pass)")
    assert (finding.ranks, finding.violations, finding.datapoints) == (["rank 1"], 2, 18)
    assert finding.first_ns == ORIGIN_NS + 9 * SECOND_NS


def test_parameters_after_a_late_search_tell_to_search_from_the_start() -> None:
    late = search(first_step=13, loss_step=12, loss="nan")
    finding = check([search(), late, found(13, "parameters")])

    assert finding.sentences[1] == "The search began after step 12, whose loss was NaN."
    assert finding.recommendation == SEARCH_AGAIN


def test_a_loss_that_does_not_recur_is_reported_without_an_origin() -> None:
    late = {"first_step": 13, "loss_step": 12, "loss": "inf"}
    finding = check([search(), search(**late), search(**late, step_count=100)])

    assert finding.fired
    assert finding.sentences == [
        "Step 12: the loss was Inf. Its origin is not known: it did not recur in 100 steps after "
        "it."
    ]


def test_a_loss_of_the_last_step_is_reported() -> None:
    finding = check([search(), search(first_step=13, loss_step=12, loss="nan")])

    assert finding.sentences == [
        "Step 12: the loss was NaN. Its origin is not known: no step after it was searched."
    ]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            [search(), search(step_count=40)],
            "No NaN or infinite number reached a loss, gradient or parameter in 40 searched steps.",
        ),
        ([search()], "No loss was seen that is NaN or infinite."),
    ],
)
def test_nothing_is_named_without_a_failure(facts: list[dict[str, Any]], sentence: str) -> None:
    finding = check(facts)

    assert finding.status is RuleStatus.NO_ISSUES_FOUND
    assert finding.sentences == [sentence]
