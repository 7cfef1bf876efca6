"""Rules on labels, predictions and inputs, against their conditions by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from stepscope.analysis import TensorValues
from stepscope.errors import UsageError
from stepscope.rules import Rule
from stepscope.rules.base import NotApplicable, NotRecorded
from stepscope.rules.tensor.batches import CheckInputImages, ClassImbalance, NLPSequenceRatio
from stepscope.rules.tensor.matrices import Confusion
from stepscope.schema import Finding
from tests.support.drawn_figures import matrix
from tests.support.fake_rule_inputs import FakeRuleInputs, check_rule


def batch(
    labels: Sequence[int], predicted: Sequence[int] | None = None, *, step: int = 0
) -> list[TensorValues]:
    """Return what `stepscope.record` records of a batch."""
    label = np.asarray(labels)
    classes = sorted(set(labels))
    columns: dict[str, Any] = {"count": [np.sum(label == c) for c in classes]}
    if predicted is None:
        return [matrix("labels/train", "labels", columns, step=step, rows=list(map(str, classes)))]
    guess = np.asarray(predicted)
    columns["mispredicted"] = [np.sum((label == c) & (guess != c)) for c in classes]
    counts = matrix("labels/train", "labels", columns, step=step, rows=list(map(str, classes)))
    names = sorted({*labels, *predicted})
    confusion = {str(b): [np.sum((label == a) & (guess == b)) for a in names] for b in names}
    pairs = matrix("batch_confusion/train", "predictions", confusion, step=step,
                   rows=list(map(str, names)))  # fmt: skip
    return [counts, pairs]


def inputs_of(*matrices: TensorValues) -> FakeRuleInputs:
    inputs = FakeRuleInputs()
    for one in matrices:
        inputs.matrix(one)
    return inputs


def check(rule: Rule[Any], *matrices: TensorValues) -> Finding:
    return check_rule(rule, inputs_of(*matrices))


# --- ClassImbalance --------------------------------------------------------------------------


def test_more_labels_of_one_class_than_the_limit() -> None:
    even = batch([0] * 1000 + [1] * 100)
    assert not check(ClassImbalance(), *even).fired
    uneven = batch([0] * 1001 + [1] * 100 + [2] * 500)
    finding = check(ClassImbalance(), *uneven)
    assert finding.fired
    assert finding.sentences == [
        "labels/train: class 0 has 1,001 labels, 10 times as many as class 1 with 100 (limit 10) "
        "at step 0; in 1 of 1 record."
    ]
    assert not check(ClassImbalance(threshold_imbalance=10.1), *uneven).fired
    # Later batches with the other class make up for it.
    later = batch([1] * 900, step=1)
    finding = check(ClassImbalance(), *uneven, *later)
    assert (finding.fired, finding.violations, finding.datapoints) == (False, 1, 2)


def test_nothing_is_judged_before_enough_labels() -> None:
    with pytest.raises(NotApplicable, match="only 499 labels so far; the rule requires 500"):
        check(ClassImbalance(), *batch([0] * 498 + [1]))
    assert check(ClassImbalance(), *batch([0] * 499 + [1])).fired
    assert check(ClassImbalance(samples=20), *batch([0] * 19 + [1])).fired
    with pytest.raises(NotRecorded) as error:
        check(ClassImbalance())
    assert "stepscope.record(labels=…, predictions=…)" in error.value.advice


def test_wrong_predictions_of_the_newest_labels() -> None:
    """An untrained model is wrong; the rule judges what it does now."""
    labels = [0, 1] * 250
    untrained = batch(labels, [0] * 500, step=0)
    assert check(ClassImbalance(), *untrained).sentences == [
        "labels/train: 100% of the 250 newest labels of class 1 are predicted wrong (limit 70%) "
        "at step 0; in 1 of 1 record."
    ]
    assert not check(ClassImbalance(threshold_misprediction=1.0), *untrained).fired
    trained = batch(labels, labels, step=1)
    finding = check(ClassImbalance(), *untrained, *trained)
    assert (finding.fired, finding.violations) == (False, 1)
    forgotten = [*batch(labels, labels, step=0), *batch(labels, [0] * 500, step=1)]
    assert check(ClassImbalance(), *forgotten).fired


def test_imbalance_of_xgboosts_data_sets() -> None:
    confusion = {"0": [200, 90], "1": [0, 10]}
    data_set = matrix("model 2/confusion/train", "predictions", confusion)
    finding = check(ClassImbalance(samples=300), data_set)
    assert "90% of the 100 newest labels of class 1" in finding.sentences[0]
    bins = {"low": [0, 1], "high": [1, 2], "count": [1000, 1]}
    with pytest.raises(NotRecorded):  # labels of regression have no classes
        check(ClassImbalance(), matrix("labels/train", "labels", bins))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60), st.data()
)
def test_class_imbalance_is_that_of_brute_force(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, 12))
    samples = data.draw(st.integers(1, 40))
    batches = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    matrices = [
        part
        for step, rows in enumerate(batches)
        for part in batch([a for a, _ in rows], [b for _, b in rows], step=step)
    ]
    rule = ClassImbalance(samples=samples, threshold_imbalance=2, threshold_misprediction=0.5)
    if len(pairs) < samples:
        with pytest.raises(NotApplicable):
            check(rule, *matrices)
        return
    finding = check(rule, *matrices)
    violations = [
        _is_imbalanced(batches[:end], samples)
        for end in range(1, len(batches) + 1)
        if sum(map(len, batches[:end])) >= samples
    ]
    assert finding.fired == violations[-1]
    assert (finding.violations, finding.datapoints) == (sum(violations), len(violations))


def _is_imbalanced(batches: list[list[tuple[int, int]]], samples: int) -> bool:
    counts = np.bincount([label for rows in batches for label, _ in rows])
    counts = counts[counts > 0]
    newest: list[tuple[int, int]] = []
    for rows in reversed(batches):
        if len(newest) >= samples:
            break
        newest += rows
    shares = [
        np.mean([guess != label for label, guess in newest if label == c])
        for c in {label for label, _ in newest}
    ]
    return bool(counts.max() / counts.min() > 2 or max(shares) > 0.5)


# --- Confusion -------------------------------------------------------------------------------


def cells(values: NDArray[np.int64], name: str = "confusion/train") -> TensorValues:
    """Return the confusion matrix of a data set: true classes are rows."""
    columns = {str(number): column for number, column in enumerate(values.T)}
    return matrix(name, "predictions", columns)


GOOD = np.array([[90, 5, 5], [4, 95, 1], [0, 8, 192]])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ((0, 0, 89), None),  # 89 of 99 labels: below 90%
        ((2, 1, 18), "class 1 have the label 2"),  # 18 of 118 predictions, and 192 of 210 labels
        ((0, 1, 5), ""),
    ],
)
def test_a_cell_of_the_confusion_matrix(change: tuple[int, int, int], sentence: str | None) -> None:
    values = GOOD.copy()
    values[change[0], change[1]] = change[2]
    finding = check(Confusion(), cells(values))
    recall = np.diag(values) / values.sum(1)
    confused = values / values.sum(0)
    np.fill_diagonal(confused, 0)
    assert finding.fired == bool((recall < 0.9).any() or (confused > 0.1).any()) == (sentence != "")
    if sentence:
        assert sentence in finding.sentences[0]


def test_the_literal_condition_of_debugger() -> None:
    diagonal = np.diag([95, 5, 0])
    assert check(Confusion(legacy=True), cells(diagonal)).fired  # 5 of 100 are below 90%
    assert not check(Confusion(legacy=True, min_diag=0.05, category_no=2), cells(diagonal)).fired
    assert not check(Confusion(), cells(diagonal)).fired


def test_only_the_first_classes_and_only_some_matrices() -> None:
    values = GOOD.copy()
    values[2] = [80, 0, 20]
    assert check(Confusion(), cells(values)).fired
    assert not check(Confusion(category_no=2), cells(values)).fired
    assert not check(
        Confusion(tensor_regex="eval"), cells(values), cells(GOOD, "confusion/eval")
    ).fired


def test_batches_are_judged_together_and_the_newest_count() -> None:
    labels = [0, 1] * 50
    wrong = [part for step in range(5) for part in batch(labels, [0] * 100, step=step)]
    right = [part for step in range(5, 10) for part in batch(labels, labels, step=step)]
    with pytest.raises(NotApplicable, match="only 400 labels with predictions so far"):
        check(Confusion(), *wrong[:8])
    assert check(Confusion(), *wrong).fired
    finding = check(Confusion(), *wrong, *right)
    assert (finding.fired, finding.datapoints) == (False, 6)
    assert check(Confusion(), *wrong, *right[:-2]).fired  # 100 of the newest 500 are wrong
    with pytest.raises(NotRecorded) as error:
        check(Confusion())
    assert "--tensors labels,predictions" in error.value.advice


# --- CheckInputImages ------------------------------------------------------------------------


def images(count: int, *means: float, step: int = 0) -> TensorValues:
    columns = {"image_count": [count] * len(means), "mean": means, "std": [1.0] * len(means)}
    return matrix("channels/model_input/0", "inputs", columns, step=step)


def test_means_of_channels() -> None:
    assert not check(CheckInputImages(), images(500, 0.1, -0.2, 0.0)).fired
    finding = check(CheckInputImages(), images(500, 0.1, -0.21, 0.0))
    assert finding.sentences == [
        "channels/model_input/0: channel 1 of 500 images has the mean -0.21, farther than 0.2 "
        "from 0 at step 0; in 1 of 1 record."
    ]
    # The mean is that of all images so far: 0.3 of 300 and 0.1 of 300 are 0.2 of 600.
    assert not check(CheckInputImages(), images(300, 0.3), images(300, 0.0999, step=1)).fired
    assert check(CheckInputImages(), images(300, 0.3), images(300, 0.1001, step=1)).fired
    assert not check(CheckInputImages(threshold_mean="0.3"), images(500, 0.29)).fired
    assert not check(CheckInputImages(), images(500, np.nan)).fired


def test_images_before_enough_of_them() -> None:
    with pytest.raises(NotApplicable, match="only 499 images so far; the rule requires 500"):
        check(CheckInputImages(), images(499, 9.0))
    assert check(CheckInputImages(threshold_samples=499), images(499, 9.0)).fired
    with pytest.raises(NotRecorded) as error:
        check(CheckInputImages(regex="model_input/1"), images(500, 9.0))
    assert "--tensors inputs" in error.value.advice


# --- NLPSequenceRatio ------------------------------------------------------------------------


def tokens(name: str = "tokens/train", **counts: int) -> TensorValues:
    rows = [key.removeprefix("t") for key in counts]
    return matrix(name, "inputs", {"count": list(counts.values())}, rows=rows)


def ratio_rule(values: str = "0", limits: str = "50") -> NLPSequenceRatio:
    return NLPSequenceRatio(token_values=values, token_thresholds_percent=limits)


def test_share_of_tokens() -> None:
    assert not check(NLPSequenceRatio(), tokens(t0=50, t7=50)).fired
    finding = check(NLPSequenceRatio(), tokens(t0=51, t7=49))
    assert finding.sentences == [
        "tokens/train: 51% of the tokens are 0, above 50% at step 0; in 1 of 1 record."
    ]
    several = check(ratio_rule("0, 7", "60,40"), tokens(t0=51, t7=49))
    assert "49% of the tokens are 7" in several.sentences[0]
    assert not check(ratio_rule("3"), tokens(t0=51, t7=49)).fired
    partial = matrix("tokens/train", "inputs", {"count": [40, 60]}, rows=["0", "(other tokens)"])
    assert not check(NLPSequenceRatio(), partial).fired
    assert check(ratio_rule(limits="39"), partial).fired


def test_tokens_by_name() -> None:
    for name in ("model_input/0", "model_input/input_ids", "model_input/Net.0", "eval"):
        is_read = not name.endswith("Net.0")
        if is_read:
            assert check(NLPSequenceRatio(), tokens(f"tokens/{name}", t0=9)).fired
    for name in ("model_input/attention_mask", "model_input/token_type_ids", "model_input/1"):
        with pytest.raises(NotRecorded):
            check(NLPSequenceRatio(), tokens(f"tokens/{name}", t0=9))
        rule = NLPSequenceRatio(tensor_regex="model_input/")
        assert check(rule, tokens(f"tokens/{name}", t0=9)).fired


def test_lists_of_different_length() -> None:
    with pytest.raises(UsageError, match="requires as many token_thresholds_percent as token_val"):
        ratio_rule("0,1")
    with pytest.raises(UsageError, match="token_values are whole numbers separated by commas"):
        ratio_rule("pad")
