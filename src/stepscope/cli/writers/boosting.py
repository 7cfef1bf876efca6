"""The text of `xgboost`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape

from stepscope import quantities, views
from stepscope.cli.text import table
from stepscope.cli.writers.generic import MAX_CURVE_CELLS, curve
from stepscope.quantities import count, number, percent

DIGITS = 4
MAX_MODELS = 20
MAX_CLASSES = 12
"""Classes of a matrix that is written in full."""
MAX_FEATURES = 20


def write_xgboost(out: Console, payload: views.XgboostView) -> None:
    """Write one model: metrics, labels, importance of features, and predictions."""
    if payload.missing:
        out.print(payload.missing)
        return
    _write_models(out, payload)
    for note in payload.notes:
        out.print(escape(f"{note[0].upper()}{note[1:]}"))
    if payload.metrics:
        _write_metrics(out, payload)
    if payload.trees is not None:
        trees = payload.trees
        deepest = max((depth for depth in trees.depth if depth is not None), default=None)
        out.print(
            f"\n[bold]Trees[/bold]  {count(trees.tree_count)} after recorded round "
            f"{trees.round[-1]}, at most {count(deepest)} levels of splits"
        )
    for labels in payload.labels:
        _write_labels(out, labels)
    if payload.importance:
        _write_importance(out, payload.importance)
    for data_set in payload.data_sets:
        _write_data_set(out, data_set)


def _write_models(out: Console, payload: views.XgboostView) -> None:
    rows = table("model", "rank", "objective", "booster", "training data", "rows", "features")
    for model in payload.models[:MAX_MODELS]:
        rows.add_row(
            escape(model.name),
            str(model.rank),
            "of the script" if model.has_own_objective else escape(model.objective),
            escape(model.booster),
            escape(model.data),
            count(model.row_count),
            count(model.column_count),
        )
    out.print(rows)
    omitted = len(payload.models) - MAX_MODELS
    if omitted > 0:
        out.print(f"[dim]and {quantities.count_of(omitted, 'more model')}[/dim]")
    if len(payload.models) > 1:
        out.print(
            f"Below: {payload.name} of rank {payload.rank}. Another one: "
            f"--name '{payload.models[-1].name}'."
        )


def _write_metrics(out: Console, payload: views.XgboostView) -> None:
    out.print("\n[bold]Metrics by round[/bold]")
    rows = table("metric", "last", "minimum", "in round", "maximum", "in round", "")
    for metric in payload.metrics:
        rows.add_row(
            escape(metric.name),
            number(metric.last_value, DIGITS),
            number(metric.min, DIGITS),
            _round(metric.min_round),
            number(metric.max, DIGITS),
            _round(metric.max_round),
            curve(metric.value, 20),
        )
    out.print(rows)
    if payload.left_out_metric_count:
        out.print(
            f"[dim]and {quantities.count_of(payload.left_out_metric_count, 'more metric')}[/dim]"
        )


def _write_labels(out: Console, labels: views.LabelDistribution) -> None:
    counted = (
        ""
        if labels.row_count == labels.counted_count
        else (f", of which {count(labels.counted_count)} are counted")
    )
    out.print(
        f"\n[bold]Labels of {escape(labels.data_set)}[/bold]  {count(labels.row_count)} rows"
        f"{counted}"
    )
    if any(one.label is None for one in labels.bins):
        shares = [one.share_ratio for one in labels.bins]
        low, high = labels.bins[0].low, labels.bins[-1].high
        out.print(
            f"{number(low, DIGITS)}  {curve(shares, MAX_CURVE_CELLS)}  {number(high, DIGITS)}"
            f"  at most {percent(max(filter(None, shares), default=None), 1)} of the rows in a bin"
        )
        return
    rows = table("class", "rows", "share")
    for one in labels.bins:
        rows.add_row(escape(one.label or ""), count(one.count), percent(one.share_ratio, 1))
    out.print(rows)


def _write_importance(out: Console, importance: Sequence[views.FeatureImportance]) -> None:
    out.print(f"\n[bold]Importance of features[/bold]  after round {importance[0].round}")
    by_measure = {
        one.measure: {feature.name: feature for feature in one.features} for one in importance
    }
    rows = table("feature", *(name.replace("_", " ") for name in by_measure), "share of weight")
    weights = by_measure.get("weight", {})
    names = list(weights or next(iter(by_measure.values())))
    for name in names[:MAX_FEATURES]:
        values = [
            features[name].value if name in features else None for features in by_measure.values()
        ]
        share = weights[name].share_ratio if name in weights else None
        rows.add_row(escape(name), *(number(value, DIGITS) for value in values), percent(share, 1))
    out.print(rows)
    if len(names) > MAX_FEATURES:
        out.print(
            f"[dim]and {quantities.count_of(len(names) - MAX_FEATURES, 'more feature')}[/dim]"
        )


def _write_data_set(out: Console, evaluation: views.DataSetEvaluation) -> None:
    out.print(
        f"\n[bold]Predictions for {escape(evaluation.data_set)}[/bold]  {evaluation.mode}, after "
        f"round {evaluation.round}, {quantities.count_of(evaluation.counted_count, 'row')}"
    )
    if evaluation.confusion is not None:
        _write_confusion(out, evaluation.confusion)
    if evaluation.roc is not None:
        roc = evaluation.roc
        out.print(
            f"AUC {number(roc.auc, DIGITS)}  over rounds {curve(roc.auc_by_round, MAX_CURVE_CELLS)}"
        )
    if evaluation.errors is not None:
        _write_errors(out, evaluation.errors)


def _write_confusion(out: Console, confusion: views.ConfusionMatrix) -> None:
    labels = [row.label for row in confusion.matrix]
    if len(labels) <= MAX_CLASSES:
        rows = table("class", *(f"predicted {escape(label)}" for label in labels))
        for row in confusion.matrix:
            rows.add_row(escape(row.label), *map(count, row.predicted_count))
        out.print(rows)
    scores = table("class", "rows", "precision", "recall", "F1", "recall over rounds")
    curves: Iterable[str] = (curve(one.recall_ratio, 20) for one in confusion.diagonal)
    for one, over_rounds in zip(confusion.classes, curves, strict=True):
        scores.add_row(
            escape(one.label),
            count(one.row_count),
            percent(one.precision_ratio, 1),
            percent(one.recall_ratio, 1),
            percent(one.f1_ratio, 1),
            over_rounds,
        )
    for one in confusion.averages:
        scores.add_row(
            f"{one.label} average",
            "",
            percent(one.precision_ratio, 1),
            percent(one.recall_ratio, 1),
            percent(one.f1_ratio, 1),
            "",
        )
    out.print(scores)
    out.print(f"Accuracy {percent(confusion.accuracy_ratio, 1)} of all rows")


def _write_errors(out: Console, errors: views.RegressionErrors) -> None:
    if errors.residuals:
        counts = [float(one.count) for one in errors.residuals]
        low, high = errors.residuals[0].high, errors.residuals[-1].low
        out.print(
            f"Residuals (label minus prediction)  below {number(low, DIGITS)}  "
            f"{curve(counts, MAX_CURVE_CELLS)}  above {number(high, DIGITS)}"
        )
    rows = table("label from", "to", "rows", "mean absolute error", "over rounds")
    for one in errors.label_bins:
        rows.add_row(
            number(one.low, DIGITS),
            number(one.high, DIGITS),
            count(one.count),
            number(one.mean_absolute_error, DIGITS),
            curve(one.by_round, 20),
        )
    out.print(rows)


def _round(number_of_round: int | None) -> str:
    return quantities.MISSING if number_of_round is None else str(number_of_round)
