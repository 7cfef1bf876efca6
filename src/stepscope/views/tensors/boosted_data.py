"""Labels, importance of features, and predictions of a model of XGBoost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from stepscope import analysis, schema

_ADDITIVE = ("weight", "total_gain", "total_cover")
"""Kinds of importance that can be added over features; the others are means."""
Values = Mapping[str, Sequence[analysis.TensorValues]]
"""Small matrices of a model by name and round."""
Number = Annotated[float | None, schema.field_label(unit="none")]
Rounds = Annotated[list[int], schema.field_label("rounds", display="identifier")]


class LabelBin(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one class, or with a label between two values."""

    label: Annotated[str | None, schema.field_label("class")]
    """Null for a range of values."""
    low: Number
    high: Number
    count: Annotated[int, schema.field_label("rows")]
    share_ratio: float | None
    """Share of the counted rows."""


class LabelDistribution(msgspec.Struct, frozen=True, kw_only=True):
    """Labels of one data set."""

    data_set: str
    row_count: int | None
    counted_count: Annotated[int, schema.field_label("counted rows")]
    """Of many rows, every k-th is counted."""
    bins: list[LabelBin]


class FeatureScore(msgspec.Struct, frozen=True, kw_only=True):
    """Importance of one feature."""

    name: str
    value: Annotated[float | None, schema.field_label("importance", unit="none")]
    share_ratio: float | None
    """Share of the sum over all features; null for a mean."""


class FeatureImportance(msgspec.Struct, frozen=True, kw_only=True):
    """Importance of the features by one measure, after the last recorded round."""

    measure: str
    """`weight`: splits that use the feature; `gain` and `cover`: means over these splits;
    `total_gain` and `total_cover`: sums over them."""
    round: Annotated[int, schema.field_label(display="identifier")]
    features: list[FeatureScore]
    """The most important first; those beyond the first 50 are one row."""


class ConfusionRow(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one class by the class that is predicted."""

    label: Annotated[str, schema.field_label("class")]
    predicted_count: Annotated[list[int], schema.field_label("rows by predicted class")]


class ClassScores(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of one class, or their average over the classes."""

    label: Annotated[str, schema.field_label("class")]
    row_count: int | None
    predicted_count: Annotated[int | None, schema.field_label("predicted rows")]
    precision_ratio: float | None
    """Share of the rows predicted as the class that are of it."""
    recall_ratio: float | None
    """Share of the rows of the class that are predicted as it."""
    f1_ratio: Annotated[float | None, schema.field_label("F1")]
    """Harmonic mean of both."""


class ClassCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy of one class by recorded round: diagonal element of the confusion matrix divided by
    the rows of the class."""

    label: Annotated[str, schema.field_label("class")]
    recall_ratio: Annotated[list[float | None], schema.field_label("accuracy", display="curve")]


class ConfusionMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """Confusion matrix after the last recorded round, its scores, and its diagonal by round."""

    matrix: list[ConfusionRow]
    """Columns are predicted classes, in the order of the rows."""
    accuracy_ratio: float | None
    """Share of all rows that are predicted right; also the precision, recall and F1 of all classes
    together (micro average)."""
    classes: list[ClassScores]
    averages: list[ClassScores]
    """Macro: mean over the classes that occur; weighted: by the rows of each. A score that is not
    defined counts as 0, as in scikit-learn."""
    rounds: Rounds
    diagonal: list[ClassCurve]


class RocCurve(msgspec.Struct, frozen=True, kw_only=True):
    """ROC curve of a classifier of two classes, after the last recorded round."""

    auc: Annotated[float | None, schema.field_label("AUC", unit="none")]
    """Area under the curve, by the trapezoidal rule."""
    false_positive_ratio: Annotated[list[float | None], schema.field_label(display="curve")]
    """Share of the rows of class 0 with at least the score of each point."""
    true_positive_ratio: Annotated[list[float | None], schema.field_label(display="curve")]
    """Share of the rows of class 1 with at least that score."""
    rounds: Rounds
    auc_by_round: Annotated[list[float | None], schema.field_label(unit="none", display="curve")]


class ResidualBin(msgspec.Struct, frozen=True, kw_only=True):
    """Rows with a residual, label minus prediction, between two values."""

    low: Number
    """Null: no limit. A bin at each end counts the outermost 0.5% of the residuals."""
    high: Number
    count: Annotated[int, schema.field_label("rows")]


class ErrorBin(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute error of the rows with a label between two values."""

    low: Number
    high: Number
    count: Annotated[int, schema.field_label("rows")]
    mean_absolute_error: Annotated[
        float | None, schema.field_label("last mean absolute error", unit="none")
    ]
    """Null for a bin without rows."""
    by_round: Annotated[
        list[float | None],
        schema.field_label("mean absolute error by round", unit="none", display="curve"),
    ]

    text_fields = ("low", "high", "count", "mean_absolute_error")


class RegressionErrors(msgspec.Struct, frozen=True, kw_only=True):
    """RegressionErrors of a regression."""

    residuals: list[ResidualBin]
    """After the last recorded round."""
    rounds: Rounds
    label_bins: list[ErrorBin]
    """Ten bins of equal width of the labels."""


class DataSetEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Predictions for one data set after recorded rounds."""

    data_set: str
    mode: str
    """TRAIN for the data that the model is trained on."""
    round: Annotated[int, schema.field_label("last recorded round", display="identifier")]
    """Rounds before it."""
    counted_count: Annotated[int, schema.field_label("counted rows")]
    """Of more than 20,000 rows, every k-th is counted."""
    confusion: ConfusionMatrix | None
    roc: Annotated[RocCurve | None, schema.field_label("ROC curve")]
    errors: RegressionErrors | None


def show_labels(values: Values, row_counts: Mapping[str, int]) -> list[LabelDistribution]:
    """Show how the labels of each data set are distributed."""
    shown = []
    for name, matrices in values.items():
        kind, _, data_set = name.partition("/")
        if kind != "labels":
            continue
        matrix = matrices[-1]
        counts = matrix.column("count")
        is_classes = "low" not in matrix.columns
        low, high = ([None] * len(counts),) * 2 if is_classes else _edges(matrix)
        total = float(counts.sum())
        bins = [
            LabelBin(
                label=row if is_classes else None,
                low=start,
                high=end,
                count=int(count),
                share_ratio=count / total if total else None,
            )
            for row, start, end, count in zip(matrix.rows, low, high, counts.tolist(), strict=True)
        ]
        shown.append(
            LabelDistribution(
                data_set=data_set,
                row_count=row_counts.get(data_set),
                counted_count=int(total),
                bins=bins,
            )
        )
    return shown


def show_importance(values: Values) -> list[FeatureImportance]:
    """Show the importance of the features by each measure."""
    shown = []
    for name, matrices in values.items():
        kind, _, measure = name.partition("/")
        if kind != "feature_importance":
            continue
        matrix = matrices[-1]
        scores = matrix.values[:, 0]
        total = float(scores.sum())
        has_shares = measure in _ADDITIVE and total > 0
        features = [
            FeatureScore(name=row, value=value, share_ratio=score / total if has_shares else None)
            for row, value, score in zip(matrix.rows, _round(scores), scores.tolist(), strict=True)
        ]
        shown.append(FeatureImportance(measure=measure, round=matrix.step, features=features))
    return shown


def evaluate_data_sets(values: Values) -> list[DataSetEvaluation]:
    """Show the predictions for each data set, the training data first."""
    kinds = ("confusion", "roc", "auc", "residuals", "absolute_error")
    by_data_set: dict[str, dict[str, Sequence[analysis.TensorValues]]] = {}
    for name, matrices in values.items():
        kind, _, data_set = name.partition("/")
        if kind in kinds:
            by_data_set.setdefault(data_set, {})[kind] = matrices
    evaluations = [_evaluate(name, matrices) for name, matrices in by_data_set.items()]
    return sorted(evaluations, key=lambda evaluation: evaluation.mode != "TRAIN")


def _evaluate(
    data_set: str, recorded: Mapping[str, Sequence[analysis.TensorValues]]
) -> DataSetEvaluation:
    last = max((matrices[-1] for matrices in recorded.values()), key=lambda matrix: matrix.step)
    confusion, errors = recorded.get("confusion"), recorded.get("absolute_error")
    counted = 0.0
    if confusion:
        counted = confusion[-1].values.sum()
    elif errors:
        counted = errors[-1].column("count").sum()
    return DataSetEvaluation(
        data_set=data_set,
        mode=last.mode,
        round=last.step,
        counted_count=int(counted),
        confusion=_show_confusion(confusion) if confusion else None,
        roc=_show_roc(recorded["roc"][-1], recorded.get("auc", ())) if "roc" in recorded else None,
        errors=_show_errors(recorded.get("residuals", ()), errors) if errors else None,
    )


def _show_confusion(matrices: Sequence[analysis.TensorValues]) -> ConfusionMatrix:
    last = matrices[-1]
    scores = analysis.score_confusion(last.values)
    recall = [analysis.score_confusion(matrix.values).classes.recall for matrix in matrices]
    return ConfusionMatrix(
        matrix=[
            ConfusionRow(label=label, predicted_count=counts)
            for label, counts in zip(last.rows, last.values.astype(int).tolist(), strict=True)
        ],
        accuracy_ratio=_known(scores.accuracy),
        classes=[
            _show_scores(label, scores.classes, row, scores.row_count, scores.predicted_count)
            for row, label in enumerate(last.rows)
        ],
        averages=[
            _show_scores(name, average, 0)
            for name, average in (("macro", scores.macro), ("weighted", scores.weighted))
        ],
        rounds=[matrix.step for matrix in matrices],
        diagonal=[
            ClassCurve(label=label, recall_ratio=_round(values))
            for label, *values in zip(last.rows, *recall, strict=True)
        ],
    )


def _show_scores(
    label: str,
    scores: analysis.Scores,
    row: int,
    row_count: analysis.Float | None = None,
    predicted_count: analysis.Float | None = None,
) -> ClassScores:
    return ClassScores(
        label=label,
        row_count=None if row_count is None else int(row_count[row]),
        predicted_count=None if predicted_count is None else int(predicted_count[row]),
        precision_ratio=_known(scores.precision[row]),
        recall_ratio=_known(scores.recall[row]),
        f1_ratio=_known(scores.f1[row]),
    )


def _show_roc(curve: analysis.TensorValues, areas: Sequence[analysis.TensorValues]) -> RocCurve:
    by_round = [_known(area.values[0, 0]) for area in areas]
    return RocCurve(
        auc=by_round[-1] if by_round else None,
        false_positive_ratio=_round(curve.column("false_positive_ratio")),
        true_positive_ratio=_round(curve.column("true_positive_ratio")),
        rounds=[area.step for area in areas],
        auc_by_round=by_round,
    )


def _show_errors(
    residuals: Sequence[analysis.TensorValues], errors: Sequence[analysis.TensorValues]
) -> RegressionErrors:
    bins = []
    if residuals:
        low, high = _edges(residuals[-1])
        counts = residuals[-1].column("count").astype(int).tolist()
        bins = [
            ResidualBin(low=start, high=end, count=count)
            for start, end, count in zip(low, high, counts, strict=True)
        ]
    last = errors[-1]
    low, high = _edges(last)
    by_round = [matrix.column("mean_absolute_error") for matrix in errors]
    return RegressionErrors(
        residuals=bins,
        rounds=[matrix.step for matrix in errors],
        label_bins=[
            ErrorBin(
                low=start, high=end, count=count, mean_absolute_error=curve[-1], by_round=curve
            )
            for start, end, count, curve in zip(
                low,
                high,
                last.column("count").astype(int).tolist(),
                [_round(values) for values in zip(*by_round, strict=True)],
                strict=True,
            )
        ],
    )


def _edges(matrix: analysis.TensorValues) -> tuple[list[float | None], list[float | None]]:
    """Return the lower and upper ends of the bins; None where there is no limit."""
    return _round(matrix.column("low")), _round(matrix.column("high"))


def _round(values: Iterable[float]) -> list[float | None]:
    """Round to six significant digits; None for a number that is not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def _known(value: float) -> float | None:
    """Return None for NaN."""
    return None if math.isnan(value) else float(value)
