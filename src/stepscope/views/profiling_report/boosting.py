"""Section on the models that XGBoost trains, as in SageMaker Debugger's report for XGBoost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stepscope.quantities import count, count_of, number, percent
from stepscope.run import Run
from stepscope.views.profiling_report import building
from stepscope.views.profiling_report.blocks import (
    BarChart,
    Bars,
    Block,
    Cell,
    Curve,
    Curves,
    Histogram,
    Matrix,
    Section,
    Table,
    Text,
)
from stepscope.views.tensors import boosted_data, boosting

MAX_MODELS = 4
"""Models with sections of their own."""
MAX_FEATURES = 10
MAX_TABLE_CLASSES = 12
"""Classes of a confusion matrix that is also a table."""
_SECTIONS = (
    "Distribution of labels", "Loss against round", "Feature importance", "Confusion matrix",
    "Evaluation of the confusion matrix", "Accuracy of each class over rounds", "ROC curve",
    "Distribution of residuals", "Absolute error by label over rounds",
)  # fmt: skip
_NOT_APPLICABLE = {
    "Confusion matrix": "The model is no classifier whose predictions were recorded.",
    "ROC curve": "The model is no classifier of two classes whose predictions were recorded.",
    "Distribution of residuals": "The model is no regression whose predictions were recorded.",
}


def build_boosting_sections(run: Run) -> list[Section]:
    """Build the section on models of XGBoost; none if the job trains none."""
    models = boosting.list_models(run)
    if not models:
        return []
    rows = [row for _, row in models]
    shown, more = building.limit_items(models, MAX_MODELS, "models")
    sections = []
    for model, row in shown:
        view = boosting.show_model(run, model, rows)
        suffix = f"{row.rank}-{model.fact.number}"
        title = f"{row.name[0].upper()}{row.name[1:]}"
        if len({one.rank for one in rows}) > 1:
            title += f" of rank {row.rank}"
        sections.append(_build_model(view, f"xgboost-{suffix}", title))
    text = Text(
        text="One round of boosting is one step. Figures of predictions are those after the last "
        "recorded round; by default every fifth round is recorded."
    )
    title = "Analyzing XGBoost models"
    return [
        Section(
            id="xgboost",
            title=title,
            blocks=[text, *building.note_omitted(more)],
            sections=sections,
        )
    ]


def _build_model(view: boosting.XgboostView, model_id: str, title: str) -> Section:
    blocks: dict[str, list[Block]] = {
        "Distribution of labels": [_draw_labels(labels) for labels in view.labels],
        "Loss against round": _draw_metrics(view.metrics),
        "Feature importance": [_draw_importance(one) for one in view.importance],
    }
    for data_set in view.data_sets:
        for section, drawn in _draw_data_set(data_set).items():
            blocks.setdefault(section, []).extend(drawn)
    has_values = bool(view.labels or view.importance or view.data_sets)
    sections = [
        Section(id=f"{model_id}-{position}", title=name, blocks=drawn)
        for position, name in enumerate(_SECTIONS)
        if (drawn := blocks.get(name) or _explain_missing(name, has_values=has_values))
    ]
    return Section(id=model_id, title=title, blocks=_describe(view), sections=sections)


def _describe(view: boosting.XgboostView) -> list[Block]:
    row = next(row for row in view.models if (row.name, row.rank) == (view.name, view.rank))
    objective = "an objective of the script" if row.has_own_objective else f"`{row.objective}`"
    sentences = [f"Booster `{row.booster}` with {objective}."]
    if row.row_count is not None and row.column_count is not None:
        sentences.append(
            f"Trained on {count_of(row.row_count, 'row')} with "
            f"{count_of(row.column_count, 'feature')} (`{row.data}`)."
        )
    if row.parameters:
        parameters = ", ".join(f"{name}={value}" for name, value in row.parameters.items())
        sentences.append(f"Parameters of the trees: {parameters}.")
    if view.trees is not None:
        depths = [depth for depth in view.trees.depth if depth is not None]
        sentences.append(
            f"{count(view.trees.tree_count)} trees after recorded round {view.trees.round[-1]}, at "
            f"most {count(max(depths))} levels of splits deep."
        )
    texts: list[Block] = [Text(text=" ".join(sentences))]
    return texts + [
        Text(
            text=f"{note[0].upper()}{note[1:].rstrip('.')}.",
            tone="missing" if note == boosting.NO_VALUES else "note",
        )
        for note in view.notes
    ]


def _explain_missing(section: str, *, has_values: bool) -> list[Block]:
    """Explain why a section is empty; nothing for one that belongs to another kind of model."""
    if section == "Loss against round":
        text = "No metric was recorded: pass data sets in `evals` (`eval_set`)."
        return [Text(text=text, tone="missing")]
    if section in _NOT_APPLICABLE and has_values:
        return [Text(text=_NOT_APPLICABLE[section], tone="note")]
    return []


def _draw_labels(labels: boosted_data.LabelDistribution) -> Block:
    title = f"Labels of {building.shorten(labels.data_set)}"
    counted = (
        f"{count(labels.counted_count)} of {count_of(labels.row_count, 'row')} are counted."
        if labels.row_count not in {None, labels.counted_count}
        else None
    )
    if labels.bins and labels.bins[0].label is not None:
        return BarChart(
            title=title,
            item="class",
            axis="rows",
            unit="count",
            names=[one.label or "" for one in labels.bins],
            values=[float(one.count) for one in labels.bins],
            note=counted,
        )
    return Histogram(
        title=title,
        axis="label",
        unit="value",
        digits=4,
        counted="rows",
        edges=_join_edges([(one.low, one.high) for one in labels.bins]),
        series=[
            Bars(name=building.shorten(labels.data_set), counts=[one.count for one in labels.bins])
        ],
    )


def _draw_metrics(metrics: Iterable[boosting.RoundCurve]) -> list[Block]:
    """Draw a chart per metric, with a line per data set."""
    by_metric: dict[str, list[boosting.RoundCurve]] = {}
    for one in metrics:
        by_metric.setdefault(one.metric, []).append(one)
    charts: list[Block] = []
    for metric, group in by_metric.items():
        shown, more = building.limit_items(group, building.MAX_SERIES, "data sets")
        charts.append(
            Curves(
                title=f"{building.shorten(metric)} by round",
                x_axis="round",
                x_unit="count",
                y_axis=building.shorten(metric),
                y_unit="none",
                curves=[
                    Curve(name=building.shorten(one.data_set), x=_floats(one.round), y=one.value)
                    for one in shown
                ],
                more=more,
            )
        )
    return charts


def _draw_importance(importance: boosted_data.FeatureImportance) -> Block:
    shown, more = building.limit_items(importance.features, MAX_FEATURES, "features")
    return BarChart(
        title=f"Importance by {importance.measure.replace('_', ' ')}",
        item="feature",
        axis=importance.measure.replace("_", " "),
        unit="none",
        names=[building.shorten(feature.name) for feature in shown],
        values=[feature.value for feature in shown],
        note=f"After round {importance.round}.",
        more=more,
    )


def _draw_data_set(evaluation: boosted_data.DataSetEvaluation) -> Mapping[str, list[Block]]:
    name = building.shorten(evaluation.data_set)
    blocks: dict[str, list[Block]] = {}
    if evaluation.confusion is not None:
        blocks["Confusion matrix"] = _draw_confusion(evaluation, evaluation.confusion, name)
        blocks["Evaluation of the confusion matrix"] = _tabulate_scores(evaluation.confusion, name)
        blocks["Accuracy of each class over rounds"] = [_draw_diagonal(evaluation.confusion, name)]
    if evaluation.roc is not None:
        blocks["ROC curve"] = _draw_roc(evaluation.roc, name)
    if evaluation.errors is not None:
        blocks["Distribution of residuals"] = _draw_residuals(evaluation.errors, name)
        blocks["Absolute error by label over rounds"] = [_draw_errors(evaluation.errors, name)]
    return blocks


def _draw_confusion(
    evaluation: boosted_data.DataSetEvaluation, confusion: boosted_data.ConfusionMatrix, name: str
) -> list[Block]:
    labels = [row.label for row in confusion.matrix]
    title = f"Confusion matrix of {name}"
    blocks: list[Block] = [
        Matrix(
            title=title,
            row="true class",
            column="predicted class",
            axis="share of the class",
            unit="ratio",
            rows=labels,
            columns=labels,
            values=[_share(row.predicted_count) for row in confusion.matrix],
            note="Colors are shares of the rows of each true class. After round "
            f"{evaluation.round}, {count_of(evaluation.counted_count, 'row')}.",
        )
    ]
    if len(labels) <= MAX_TABLE_CLASSES:
        columns = [
            *building.make_text_columns("true class"),
            *building.make_number_columns(*(f"predicted {label}" for label in labels), digits=0),
        ]
        rows: list[list[Cell]] = [[row.label, *row.predicted_count] for row in confusion.matrix]
        blocks.append(Table(title=f"Rows of {name} by class", columns=columns, rows=rows))
    return blocks


def _tabulate_scores(confusion: boosted_data.ConfusionMatrix, name: str) -> list[Block]:
    columns = [
        *building.make_text_columns("class"),
        *building.make_number_columns("rows", digits=0),
        *building.make_number_columns("precision", "recall", "F1", digits=2, unit="%"),
    ]
    rows = [_list_scores(one) for one in confusion.classes]
    rows += [_list_scores(one, f"{one.label} average") for one in confusion.averages]
    text = (
        f"Accuracy for {name}: {percent(confusion.accuracy_ratio, 2)} of all rows, which is also "
        "the micro average of precision, recall and F1."
    )
    return [Text(text=text), Table(title=f"Scores for {name}", columns=columns, rows=rows)]


def _list_scores(scores: boosted_data.ClassScores, label: str | None = None) -> list[Cell]:
    ratios = (scores.precision_ratio, scores.recall_ratio, scores.f1_ratio)
    shares = (None if ratio is None else 100 * ratio for ratio in ratios)
    return [label or scores.label, scores.row_count, *shares]


def _draw_diagonal(confusion: boosted_data.ConfusionMatrix, name: str) -> Block:
    shown, more = building.limit_items(confusion.diagonal, building.MAX_SERIES, "classes")
    return Curves(
        title=f"Accuracy of each class of {name}",
        x_axis="round",
        x_unit="count",
        y_axis="accuracy",
        y_unit="ratio",
        curves=[
            Curve(name=f"class {one.label}", x=_floats(confusion.rounds), y=one.recall_ratio)
            for one in shown
        ],
        note="Rows of a class that are predicted as it, as a share of the rows of the class.",
        more=more,
    )


def _draw_roc(roc: boosted_data.RocCurve, name: str) -> list[Block]:
    curve = Curves(
        title=f"ROC curve of {name}, AUC {number(roc.auc, 4)}",
        x_axis="false positive rate",
        x_unit="ratio",
        y_axis="true positive rate",
        y_unit="ratio",
        curves=[
            Curve(name="model", x=roc.false_positive_ratio, y=roc.true_positive_ratio),
            Curve(name="random guess", x=[0.0, 1.0], y=[0.0, 1.0]),
        ],
    )
    area = Curves(
        title=f"AUC of {name} by round",
        x_axis="round",
        x_unit="count",
        y_axis="AUC",
        y_unit="none",
        curves=[Curve(name="AUC", x=_floats(roc.rounds), y=roc.auc_by_round)],
    )
    return [curve, area]


def _draw_residuals(errors: boosted_data.RegressionErrors, name: str) -> list[Block]:
    inner = [one for one in errors.residuals if one.low is not None and one.high is not None]
    if not inner:
        return []
    below = sum(one.count for one in errors.residuals if one.low is None)
    above = sum(one.count for one in errors.residuals if one.high is None)
    counts = [one.count for one in inner]
    bars = Bars(name=name, counts=counts, below_count=below, above_count=above)
    return [
        Histogram(
            title=f"Residuals of {name} after the last recorded round",
            axis="label minus prediction",
            unit="value",
            digits=4,
            counted="rows",
            edges=_join_edges([(one.low, one.high) for one in inner]),
            series=[bars],
        )
    ]


def _draw_errors(errors: boosted_data.RegressionErrors, name: str) -> Block:
    return Curves(
        title=f"Mean absolute error of {name} by label",
        x_axis="round",
        x_unit="count",
        y_axis="mean absolute error",
        y_unit="none",
        curves=[
            Curve(
                name=f"{number(one.low)} to {number(one.high)} ({count_of(one.count, 'row')})",
                x=_floats(errors.rounds),
                y=one.by_round,
            )
            for one in errors.label_bins
            if one.count
        ],
        note="Labels in ten bins of equal width; those without rows are left out.",
    )


def _share(counts: Sequence[int]) -> list[float | None]:
    total = sum(counts)
    return [value / total if total else None for value in counts]


def _join_edges(bins: Sequence[tuple[float | None, float | None]]) -> list[float]:
    """Join adjacent bins with known ends to edges."""
    edges = [*(low for low, _ in bins), bins[-1][1]] if bins else []
    return [edge for edge in edges if edge is not None]


def _floats(numbers: Iterable[int]) -> list[float | None]:
    return [float(value) for value in numbers]
