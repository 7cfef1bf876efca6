"""`xgboost`: a model that XGBoost trains, its metrics by round, and its predictions."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope import analysis, errors, quantities, schema
from stepscope.run import (
    BoostedModel,
    Run,
    count_label_rows,
    list_boosted_models,
    number_ranks,
    read_model_values,
    read_round_scalars,
)
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions
from stepscope.views.tensors import boosted_data

MAX_POINTS = 500
"""Limit of the rounds of a metric."""
MAX_METRICS = 40
DIGITS = 7
RECORDING = (
    "run the job with `--tensors feature_importance,trees,labels,predictions` to record the "
    "importance of features, labels and predictions"
)
NO_MODELS = "XGBoost trained no model in this run"
NO_VALUES = f"only metrics were recorded: {RECORDING}"
_TREES = "trees/"


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """Model of one process, as it was after its first round."""

    name: str
    rank: int
    objective: str
    has_own_objective: bool
    """True if the script computes the gradients."""
    booster: str
    class_count: int | None
    data: Annotated[str, schema.field_label("training data")]
    row_count: int | None
    column_count: Annotated[int | None, schema.field_label("features")]
    parameters: dict[str, str]
    """Parameters of the trees that XGBoost states."""

    text_fields = ("name", "rank", "objective", "booster", "data", "row_count", "column_count")


class RoundCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Number that XGBoost reports for rounds of a model."""

    name: str
    data_set: str
    """Beginning of the name of a metric."""
    metric: str
    last_value: Annotated[float | None, schema.field_label(unit="none")]
    min: Annotated[float | None, schema.field_label(unit="none")]
    min_round: Annotated[
        int | None, schema.field_label("round of the minimum", display="identifier")
    ]
    max: Annotated[float | None, schema.field_label(unit="none")]
    max_round: Annotated[
        int | None, schema.field_label("round of the maximum", display="identifier")
    ]
    round: Annotated[list[int], schema.field_label("rounds", display="identifier")]
    """Rounds before each one; at most 500 in equal distances, and the last."""
    value: Annotated[
        list[float | None], schema.field_label("over rounds", unit="none", display="curve")
    ]

    text_fields = ("name", "last_value", "min", "min_round", "max", "max_round")


class TreeSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Trees of a model by recorded round."""

    round: Annotated[list[int], schema.field_label("rounds", display="identifier")]
    """Rounds before each recorded one."""
    depth: Annotated[list[float | None], schema.field_label(unit="count", display="curve")]
    """Splits from the root to the deepest leaf of the round's trees."""
    tree_count: Annotated[int | None, schema.field_label("trees")]
    """Trees of the model after the last recorded round."""


class XgboostView(Ranged, frozen=True, kw_only=True):
    """Payload of `xgboost`: all models, and one of them in full."""

    sentence: str
    """How the first metric of the model shown develops; empty without metrics."""
    models: list[ModelRow]
    name: Annotated[str | None, schema.field_label("model shown")]
    rank: int | None
    metrics: list[RoundCurve]
    left_out_metric_count: Annotated[int, schema.field_label("omitted metrics")]
    trees: TreeSizes | None
    labels: list[boosted_data.LabelDistribution]
    importance: Annotated[
        list[boosted_data.FeatureImportance], schema.field_label("importance of features")
    ]
    data_sets: list[boosted_data.DataSetEvaluation]
    notes: list[str]
    missing: str | None


def show_xgboost(run: Run, options: ViewOptions = DEFAULTS) -> XgboostView:
    """Show a model that XGBoost trains: the first one, or that of `--name` and `--rank`."""
    models = list_boosted_models(run)
    number_ranks(run).require(options.rank)
    shown = _choose(models, options.name, options.rank)
    rows = [_show_row(model) for model in models]
    if shown is None:
        return XgboostView(
            sentence="", models=rows, name=None, rank=None, metrics=[], left_out_metric_count=0,
            trees=None, labels=[], importance=[], data_sets=[], notes=[], missing=NO_MODELS,
        )  # fmt: skip
    return show_model(run, shown, rows)


def show_model(run: Run, model: BoostedModel, rows: list[ModelRow]) -> XgboostView:
    """Show one model in full.

    Args:
        run: the run.
        model: the model.
        rows: rows of all models.
    """
    values = read_model_values(run, model)
    scalars = read_round_scalars(run, model)
    labels = boosted_data.show_labels(values, count_label_rows(run, model))
    metrics = [one for one in scalars if not one.name.startswith(_TREES)]
    data_sets = boosted_data.evaluate_data_sets(values)
    names = [*(one.data_set for one in labels), *(one.data_set for one in data_sets)]
    notes = [] if values else [NO_VALUES]
    if values and not data_sets and model.fact.has_own_objective:
        notes.append(
            "The script computes the gradients: the meaning of the predictions is not known."
        )
    curves = [_show_curve(one, names) for one in metrics[:MAX_METRICS]]
    return XgboostView(
        sentence=_write_sentence(model.title, curves),
        models=rows,
        name=model.title,
        rank=model.rank,
        metrics=curves,
        left_out_metric_count=max(0, len(metrics) - MAX_METRICS),
        trees=_show_trees([one for one in scalars if one.name.startswith(_TREES)]),
        labels=labels,
        importance=boosted_data.show_importance(values),
        data_sets=data_sets,
        notes=notes,
        missing=None,
    )


def _write_sentence(name: str, curves: list[RoundCurve]) -> str:
    """Write how the first metric of a model develops on each data set."""
    shown = [
        curve
        for curve in curves
        if curve.metric == curves[0].metric and curve.value and curve.value[0] is not None
    ]
    changes = [
        f"from {quantities.number(curve.value[0])} to {quantities.number(curve.last_value)} on "
        f"{curve.data_set}"
        for curve in shown
    ]
    if not changes:
        return ""
    rounds = quantities.count_of(shown[0].round[-1] + 1, "round")
    return f"{name.capitalize()}: in {rounds}, {shown[0].metric} goes {', '.join(changes)}."


def _choose(models: list[BoostedModel], name: str | None, rank: int | None) -> BoostedModel | None:
    """Choose a model by its name or number.

    Raises:
        UsageError: there is no such model.
    """
    of_rank = [model for model in models if rank is None or model.rank == rank]
    if name is None or not models:
        return of_rank[0] if of_rank else None
    for model in of_rank:
        if name in {model.title, str(model.fact.number)}:
            return model
    titles = sorted({model.title for model in of_rank})
    raise errors.UsageError(f"No model is called {name!r}.{errors.name_similar(name, titles)}")


def _show_row(model: BoostedModel) -> ModelRow:
    fact = model.fact
    return ModelRow(
        name=model.title,
        rank=model.rank,
        objective=fact.objective,
        has_own_objective=fact.has_own_objective,
        booster=fact.booster,
        class_count=fact.class_count,
        data=fact.data,
        row_count=fact.row_count,
        column_count=fact.column_count,
        parameters=fact.parameters,
    )


def list_models(run: Run) -> list[tuple[BoostedModel, ModelRow]]:
    """List the models of a run with their rows."""
    return [(model, _show_row(model)) for model in list_boosted_models(run)]


def _show_curve(series: analysis.LoggedScalars, data_sets: list[str]) -> RoundCurve:
    data_set = next(
        (name for name in data_sets if series.name.startswith(f"{name}-")),
        series.name.partition("-")[0],
    )
    rounds = [] if series.step is None else series.step.tolist()
    values = analysis.round_significant(series.value, DIGITS)
    present = [
        (value, step) for value, step in zip(values, rounds, strict=True) if value is not None
    ]
    low, high = min(present, default=None), max(present, key=lambda pair: pair[0], default=None)
    stride = -(-len(rounds) // MAX_POINTS) or 1
    return RoundCurve(
        name=series.name,
        data_set=data_set,
        metric=series.name.removeprefix(f"{data_set}-"),
        last_value=values[-1] if values else None,
        min=low[0] if low else None,
        min_round=low[1] if low else None,
        max=high[0] if high else None,
        max_round=high[1] if high else None,
        round=rounds[::-stride][::-1],
        value=values[::-stride][::-1],
    )


def _show_trees(scalars: list[analysis.LoggedScalars]) -> TreeSizes | None:
    by_name = {one.name.removeprefix(_TREES): one for one in scalars}
    depth, count = by_name.get("depth"), by_name.get("count")
    if depth is None or depth.step is None:
        return None
    stride = -(-len(depth.value) // MAX_POINTS) or 1
    return TreeSizes(
        round=depth.step.tolist()[::-stride][::-1],
        depth=depth.value.tolist()[::-stride][::-1],
        tree_count=None if count is None else int(count.value[-1]),
    )
