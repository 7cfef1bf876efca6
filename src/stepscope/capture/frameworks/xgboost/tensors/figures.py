"""Figures of labels, predictions and features: small matrices that stand for all rows.

A figure has named rows and columns. Histograms and errors per bin have a row per bin, with the
columns `low`, `high` and `count`; a bin contains its lower end, the last one its upper end too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

MAX_ROWS = 20_000
"""Rows of a data set from which figures are computed; of more rows every k-th is used."""
MAX_CLASSES = 50
"""A confusion matrix of more classes is not recorded."""
MAX_FEATURES = 50
"""Features that are named; the others are one row."""
OTHER_FEATURES = "(other features)"
BINS = 40
LABEL_BINS = 10
CURVE_POINTS = 101
TAIL = 0.005
"""Share of the residuals at each end that is counted outside of the bins."""


class Figure(NamedTuple):
    """Matrix with names."""

    name: str
    collection: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Any
    """(row, column) -> number."""


def thin(values: Float) -> Float:
    """Return every k-th row, so that at most `MAX_ROWS` remain.

    >>> len(thin(np.zeros(50_000)))
    16667
    """
    return values[:: -(-len(values) // MAX_ROWS) or 1]


def rank_features(kind: str, scores: Mapping[str, float]) -> Figure:
    """List the most important features with their scores.

    Args:
        kind: weight, gain, cover, total_gain or total_cover.
        scores: scores of the features that the trees use.
    """
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    rows = ranked[:MAX_FEATURES]
    if len(ranked) > MAX_FEATURES:
        rows.append((OTHER_FEATURES, sum(score for _, score in ranked[MAX_FEATURES:])))
    return Figure(
        f"feature_importance/{kind}",
        "feature_importance",
        [feature for feature, _ in rows],
        ["value"],
        [[score] for _, score in rows],
    )


def count_labels(data: str, labels: Float, class_count: int) -> Figure:
    """Count labels by class, or in bins of equal width if there are no classes."""
    if class_count:
        counts = np.bincount(labels.astype(np.int64), minlength=class_count)
        rows = list(map(str, range(len(counts))))
        return Figure(f"labels/{data}", "labels", rows, ["count"], counts[:, None])
    low, high = labels.min(), labels.max()
    counts, edges = np.histogram(labels, BINS, (low, high))
    return _bins(f"labels/{data}", "labels", edges, {"count": counts})


def count_confusion(data: str, labels: Float, predicted: Float, class_count: int) -> Figure:
    """Count rows by true class (row) and predicted class (column)."""
    pairs = labels.astype(np.int64) * class_count + predicted.astype(np.int64)
    counts = np.bincount(pairs, minlength=class_count**2).reshape(class_count, class_count)
    names = list(map(str, range(class_count)))
    return Figure(f"confusion/{data}", "predictions", names, names, counts)


def trace_roc(data: str, labels: Float, scores: Float) -> list[Figure]:
    """Trace the ROC curve of a binary classifier, and the area under it by the trapezoidal rule:
    Fawcett, https://doi.org/10.1016/j.patrec.2005.10.010. Empty if there is one class only."""
    order = np.argsort(-scores, kind="stable")
    scores, positive = scores[order], labels[order] > 0
    is_last = np.append(np.diff(scores) != 0, True)  # of equal scores
    true_count = np.append(0, np.cumsum(positive)[is_last])
    false_count = np.append(0, np.cumsum(~positive)[is_last])
    if not true_count[-1] or not false_count[-1]:
        return []
    true_ratio, false_ratio = true_count / true_count[-1], false_count / false_count[-1]
    area = np.sum(np.diff(false_ratio) * (true_ratio[1:] + true_ratio[:-1]) / 2)
    threshold = np.append(np.inf, scores[is_last])
    shown = np.unique(np.linspace(0, len(threshold) - 1, CURVE_POINTS).astype(np.int64))
    columns = {
        "threshold": threshold,
        "false_positive_ratio": false_ratio,
        "true_positive_ratio": true_ratio,
    }
    values = np.stack([column[shown] for column in columns.values()], axis=1)
    names = list(map(str, range(len(shown))))
    return [
        Figure(f"roc/{data}", "predictions", names, list(columns), values),
        Figure(f"auc/{data}", "predictions", ["0"], ["value"], [[area]]),
    ]


def count_residuals(data: str, labels: Float, predictions: Float) -> Figure:
    """Count residuals, label minus prediction, in bins of equal width and on both sides of them."""
    residuals = labels - predictions
    low, high = np.quantile(residuals, [TAIL, 1 - TAIL])
    counts, edges = np.histogram(residuals, BINS, (low, high))
    ends = np.array([np.sum(residuals < edges[0]), np.sum(residuals > edges[-1])])
    edges = np.concatenate([[-np.inf], edges, [np.inf]])
    counts = np.concatenate([ends[:1], counts, ends[1:]])
    return _bins(f"residuals/{data}", "predictions", edges, {"count": counts})


def measure_errors(data: str, labels: Float, predictions: Float) -> Figure:
    """Measure the mean absolute error in bins of equal width of the labels."""
    errors = np.abs(labels - predictions)
    counts, edges = np.histogram(labels, LABEL_BINS, (labels.min(), labels.max()))
    sums, _ = np.histogram(labels, edges, weights=errors)
    with np.errstate(invalid="ignore"):
        means = sums / counts
    columns = {"count": counts, "mean_absolute_error": means}
    return _bins(f"absolute_error/{data}", "predictions", edges, columns)


def _bins(name: str, collection: str, edges: Any, columns: Mapping[str, Any]) -> Figure:
    columns = {"low": edges[:-1], "high": edges[1:], **columns}
    rows = list(map(str, range(len(edges) - 1)))
    values = np.stack([np.asarray(c, np.float64) for c in columns.values()], axis=1)
    return Figure(name, collection, rows, list(columns), values)
