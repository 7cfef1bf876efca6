"""Scores of a classifier from its confusion matrix.

Definitions are those of Sokolova and Lapalme, https://doi.org/10.1016/j.ipm.2009.03.002, as
scikit-learn uses them: https://scikit-learn.org/stable/modules/model_evaluation.html
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis.histograms import Float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Precision, recall and F1: one number per class, or per average."""

    precision: Float
    """Share of the rows predicted as a class that are of it; NaN if none is predicted so."""
    recall: Float
    """Share of the rows of a class that are predicted as it; NaN if none is of it."""
    f1: Float
    """Harmonic mean of both, 2 TP / (2 TP + FP + FN); NaN if no row is of the class or predicted
    so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfusionScores:
    """Scores of a confusion matrix."""

    row_count: Float
    """Rows of each class."""
    predicted_count: Float
    """Rows predicted as each class."""
    classes: Scores
    macro: Scores
    """Means over the classes."""
    weighted: Scores
    """Means over the classes, weighted by their rows."""
    accuracy: float
    """Share of all rows that are predicted right; NaN without rows. For one class per row, the
    precision, recall and F1 of all classes together (the micro average) are the same number."""


def score_confusion(counts: Float) -> ConfusionScores:
    """Score a classifier.

    Averages are over the classes that occur, as labels or predictions; a score of theirs that is
    not defined counts as 0, as in scikit-learn by default.

    Args:
        counts: (true class, predicted class) -> number of rows.
    """
    right, row_count, predicted_count = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    with np.errstate(invalid="ignore"):
        classes = Scores(
            precision=right / predicted_count,
            recall=right / row_count,
            f1=2 * right / (row_count + predicted_count),
        )
        accuracy = float(right.sum() / counts.sum())
    occurs = row_count + predicted_count > 0
    return ConfusionScores(
        row_count=row_count,
        predicted_count=predicted_count,
        classes=classes,
        macro=_average(classes, occurs.astype(np.float64)),
        weighted=_average(classes, row_count),
        accuracy=accuracy,
    )


def _average(classes: Scores, weight: Float) -> Scores:
    def mean(scores: Float) -> Float:
        with np.errstate(invalid="ignore"):
            average: Float = np.dot(np.nan_to_num(scores), weight) / np.asarray([weight.sum()])
        return average

    return Scores(
        precision=mean(classes.precision), recall=mean(classes.recall), f1=mean(classes.f1)
    )
