"""Scores of a classifier: a published example, and a count of rows one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis import ConfusionScores, Scores, score_confusion


def scores_of(labels: list[int], predictions: list[int], class_count: int) -> ConfusionScores:
    counts = np.zeros((class_count, class_count))
    np.add.at(counts, (labels, predictions), 1)
    return score_confusion(counts)


def rounded(scores: Scores) -> list[list[float]]:
    return [np.round(values, 2).tolist() for values in (scores.precision, scores.recall, scores.f1)]


@pytest.mark.seed("DBR-16")
def test_example_of_scikit_learn() -> None:
    """The first example of `sklearn.metrics.classification_report`:
    https://scikit-learn.org/stable/modules/generated/sklearn.metrics.classification_report.html"""
    scores = scores_of([0, 1, 2, 2, 2], [0, 0, 2, 2, 1], 3)
    assert rounded(scores.classes) == [[0.5, 0, 1], [1, 0, 0.67], [0.67, 0, 0.8]]
    assert rounded(scores.macro) == [[0.5], [0.56], [0.49]]
    assert rounded(scores.weighted) == [[0.7], [0.6], [0.61]]
    assert scores.accuracy == pytest.approx(0.6)
    assert scores.row_count.tolist() == [1, 1, 3]
    assert scores.predicted_count.tolist() == [2, 1, 2]


def test_a_class_that_does_not_occur_has_no_scores() -> None:
    """Class 2 is never predicted, and class 3 never occurs: it does not count for the mean."""
    scores = scores_of([0, 0, 1, 2], [0, 1, 1, 0], 4)
    assert np.isnan(scores.classes.precision).tolist() == [False, False, True, True]
    assert np.isnan(scores.classes.recall).tolist() == [False, False, False, True]
    assert scores.classes.f1[2] == 0
    assert np.isnan(scores.classes.f1[3])
    assert scores.macro.precision[0] == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)


def test_no_rows() -> None:
    scores = score_confusion(np.zeros((2, 2)))
    assert np.isnan(scores.accuracy)
    assert np.isnan(scores.macro.f1).all()


PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60)


@given(pairs=PAIRS)
def test_scores_are_those_of_a_count_of_rows(pairs: list[tuple[int, int]]) -> None:
    scores = scores_of([label for label, _ in pairs], [predicted for _, predicted in pairs], 5)
    right = sum(label == predicted for label, predicted in pairs)
    assert scores.accuracy == pytest.approx(right / len(pairs))
    f1_sum, weighted_f1, occurring = 0.0, 0.0, 0
    for number in range(5):
        of_class = [pair for pair in pairs if pair[0] == number]
        predicted = [pair for pair in pairs if pair[1] == number]
        hits = sum(pair == (number, number) for pair in pairs)
        for share, base in (
            (scores.classes.precision, predicted),
            (scores.classes.recall, of_class),
        ):
            expected = hits / len(base) if base else np.nan
            assert share[number] == pytest.approx(expected, nan_ok=True)
        if of_class or predicted:
            precision = hits / len(predicted) if predicted else 0
            recall = hits / len(of_class) if of_class else 0
            f1 = 2 * precision * recall / (precision + recall) if hits else 0
            assert scores.classes.f1[number] == pytest.approx(f1)
            f1_sum, occurring = f1_sum + f1, occurring + 1
            weighted_f1 += f1 * len(of_class)
    assert scores.macro.f1[0] == pytest.approx(f1_sum / occurring)
    assert scores.weighted.f1[0] == pytest.approx(weighted_f1 / len(pairs))
