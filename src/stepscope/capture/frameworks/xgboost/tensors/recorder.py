"""Recording of models and predictions of an unmodified script, down to the spool."""

from __future__ import annotations

import math
import re
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import xgboost

from stepscope.capture import session
from stepscope.capture.frameworks.tables import XGBOOST
from stepscope.capture.frameworks.xgboost.models import Model
from stepscope.capture.frameworks.xgboost.tensors import figures
from stepscope.capture.frameworks.xgboost.tensors.figures import Figure, Float
from stepscope.capture.guard import Probe
from stepscope.capture.matrices import Matrix, intern, write_matrices
from stepscope.spool import Kind, TensorPlan

IMPORTANCE = ("weight", "gain", "cover", "total_gain", "total_cover")
TRAINING_DATA = "train"
MAX_MODELS = 50
"""Models that are recorded."""
_MODE = "RECORDING"
"""Mode of the time that the recording takes: it is in no step."""
_NODE = re.compile(r"^(\t*)(\d+):", re.MULTILINE)
"""Depth, as tabs, and number of a node in the text of a tree."""
_BINARY = {"binary:logistic": 0.5, "binary:hinge": 0.5, "binary:logitraw": 0.0}
"""Objectives of two classes, with the score above which a row is in class 1."""
_SCORED = {"binary:logistic", "binary:logitraw"}
_VALUED = ("reg:", "count:")
"""Beginnings of the objectives whose predictions are in the unit of the labels."""

_COLUMNS = XGBOOST.find("split")
_time_probe = Probe("time of the recording of tensors")
_tree_probe = Probe("trees of XGBoost")
_importance_probe = Probe("importance of features")
_prediction_probe = Probe("predictions of XGBoost")


class _State:
    """Data sets of one model, and what is recorded of them."""

    def __init__(self) -> None:
        self.training: weakref.ref[Any] | None = None
        self.recorded: set[str] = set()
        """Data sets whose labels are recorded."""
        self.predicted: dict[str, int] = {}
        """Last round of which predictions are recorded, by data set."""


class BoostingRecorder:
    """Recorder of one process.

    Args:
        plan: what to record.
        interval: rounds between recorded ones where the plan has no interval.
    """

    def __init__(self, plan: TensorPlan, interval: int) -> None:
        self._plan = plan
        self._interval = interval
        self._has = frozenset(plan.collections)

    def add_round(self, model: Model, booster: xgboost.Booster, data: Any) -> None:
        """Record a model after a round on training data."""
        state = self._find_state(model)
        if state is None:
            return
        state.training = weakref.ref(data)
        if not self._is_recorded(model):
            return
        span = _time_probe.start(Kind.MODE, _MODE)
        writer = RowWriter(model.name(""), model.round_count - 1, "TRAIN")
        if "trees" in self._has and model.kind != "gblinear":
            _record_trees(model, booster)
        if "feature_importance" in self._has:
            _record_importance(model, booster, writer)
        self._record_data(model, booster, TRAINING_DATA, data, writer)
        _time_probe.end(span)

    def add_evaluation(self, model: Model, booster: xgboost.Booster, sets: Any) -> None:
        """Record predictions for the data of an evaluation, without the training data."""
        state = self._find_state(model)
        if state is None or state.training is None or not self._is_recorded(model):
            return
        span = _time_probe.start(Kind.MODE, _MODE)
        for data, name in sets:
            if data is state.training():
                continue
            shown = name if name != TRAINING_DATA else f"{name} (evaluation)"
            writer = RowWriter(model.name(""), model.round_count - 1, "EVAL")
            self._record_data(model, booster, shown, data, writer)
        _time_probe.end(span)

    def _find_state(self, model: Model) -> _State | None:
        if not session.live or model.number > MAX_MODELS:
            return None
        if model.state is None:
            model.state = _State()
        state: _State = model.state
        return state

    def _is_recorded(self, model: Model) -> bool:
        step = model.round_count - 1
        return step >= 0 and self._plan.records_step(step, self._interval)

    @_prediction_probe.protect
    def _record_data(
        self, model: Model, booster: xgboost.Booster, name: str, data: Any, writer: RowWriter
    ) -> None:
        if not self._has & {"labels", "predictions"} or _is_split_by_column(data):
            return
        state, step = model.state, model.round_count - 1
        if state.predicted.get(name) == step:  # the script evaluates a round again
            return
        state.predicted[name] = step
        is_known = name in state.recorded
        if is_known and "predictions" not in self._has:
            return
        labels = _as_array(data.get_label())
        if not len(labels):
            return
        shown, statistics = [], []
        class_count = _count_classes(model, labels)
        if not is_known and "labels" in self._has:
            state.recorded.add(name)
            statistics.append((f"labels/{name}", "labels", labels))
            shown.append(figures.count_labels(name, figures.thin(labels), class_count))
        if "predictions" in self._has:
            predictions = _as_array(booster.predict(data, validate_features=False))
            statistics.append((f"predictions/{name}", "predictions", predictions.ravel()))
            shown += _evaluate(model, name, labels, predictions, class_count)
        if statistics:
            writer.write_statistics(statistics)
        if shown:
            writer.write_figures(shown)


def _as_array(values: Any) -> Float:
    return np.asarray(values, np.float64)


def _is_split_by_column(data: Any) -> bool:
    """Return True if the columns are on different workers, which would all have to predict."""
    return _COLUMNS is not None and bool(data.data_split_mode() == _COLUMNS)


def _count_classes(model: Model, labels: Float) -> int:
    """Return the number of classes; 0 if the objective is not one of classification, or is not
    known."""
    count = 2 if model.objective in _BINARY else model.class_count
    if model.has_own_objective or count < 2:
        return 0
    is_class = np.all((labels >= 0) & (labels < count) & (labels == np.floor(labels)))
    return count if is_class else 0


def _evaluate(
    model: Model, name: str, labels: Float, predictions: Float, class_count: int
) -> list[Figure]:
    """Compare predictions with labels, as far as the objective says what they mean."""
    if len(predictions) != len(labels):  # several labels per row
        return []
    labels, predictions = figures.thin(labels), figures.thin(predictions)
    if class_count:
        if model.objective in _BINARY:
            predicted = (predictions > _BINARY[model.objective]).astype(np.float64)
        else:
            predicted = predictions.argmax(axis=1) if predictions.ndim > 1 else predictions
        shown = []
        if class_count <= figures.MAX_CLASSES:
            shown.append(figures.count_confusion(name, labels, predicted, class_count))
        if model.objective in _SCORED:
            shown += figures.trace_roc(name, labels, predictions)
        return shown
    is_valued = model.objective.startswith(_VALUED) and not model.has_own_objective
    is_finite = np.isfinite(labels) & np.isfinite(predictions.reshape(len(labels), -1)).all(axis=1)
    if not is_valued or predictions.ndim > 1 or not is_finite.all():
        return []
    return [
        figures.count_residuals(name, labels, predictions),
        figures.measure_errors(name, labels, predictions),
    ]


@_tree_probe.protect
def _record_trees(model: Model, booster: xgboost.Booster) -> None:
    """Record the number of trees, and the size of those of the last round."""
    t_ns, step = time.monotonic_ns(), model.round_count - 1
    round_count = booster.num_boosted_rounds()
    trees = booster[round_count - 1 : round_count].get_dump()
    nodes = [(len(tabs), int(number)) for tree in trees for tabs, number in _NODE.findall(tree)]
    numbers = {
        "count": round_count * len(trees),
        "depth": max(depth for depth, _ in nodes),
        "largest_node_id": max(number for _, number in nodes),
    }
    for name, number in numbers.items():
        _tree_probe.scalar(model.name(f"trees/{name}"), number, t_ns, step=step)


@_importance_probe.protect
def _record_importance(model: Model, booster: xgboost.Booster, writer: RowWriter) -> None:
    kinds = IMPORTANCE[:1] if model.kind == "gblinear" else IMPORTANCE
    shown, statistics = [], []
    for kind in kinds:
        scores = {
            feature: float(np.abs(score).sum())  # of a linear model, several coefficients
            for feature, score in booster.get_score(importance_type=kind).items()
        }
        if scores:
            figure = figures.rank_features(kind, scores)
            shown.append(figure)
            statistics.append((figure.name, figure.collection, _as_array(list(scores.values()))))
    if shown:
        writer.write_figures(shown)
        writer.write_statistics(statistics)


STATISTICS = (
    "element_count", "nan_count", "infinite_count", "zero_count",
    "min", "max", "sum", "deviation_square_sum", "abs_sum", "product", "update_square_sum",
)  # fmt: skip


class RowWriter:
    """Writer of the rows of one moment.

    Args:
        prefix: beginning of the names, of models after the first one.
        step: number of rounds of the model before.
        mode: TRAIN, or EVAL for data that the model is not trained on.
    """

    def __init__(self, prefix: str, step: int, mode: str) -> None:
        self._prefix = prefix
        self._fields: dict[str, Any] = {"t_ns": time.monotonic_ns(), "step": step, "mode": mode}

    def write_figures(self, figures: Sequence[Figure]) -> None:
        """Write the numbers of figures, one row each."""
        matrices = [
            Matrix(
                f"{self._prefix}{figure.name}",
                figure.collection,
                rows=figure.rows,
                columns=figure.columns,
                values=np.asarray(figure.values, np.float64).ravel().tolist(),
            )
            for figure in figures
        ]
        write_matrices(matrices, **self._fields)

    def write_statistics(self, tensors: Sequence[tuple[str, str, Float]]) -> None:
        """Write the statistics of tensors, given as name, collection and elements."""
        current = session.current()
        if current is None:
            return
        numbers = [
            intern(
                current,
                f"{self._prefix}{name}",
                {"collection": collection, "shape": [len(values)], "dtype": "float32"},
            )
            for name, collection, values in tensors
        ]
        statistics = np.array([summarize(values) for _, _, values in tensors])
        columns = [
            ("tensor", "q", 1, np.array(numbers, np.int64).tobytes()),
            ("statistics", "d", len(STATISTICS), statistics.tobytes()),
        ]
        current.row_log.write(len(tensors), columns, statistics=STATISTICS, **self._fields)


def summarize(values: Float) -> list[float]:
    """Return the values of `STATISTICS`; NaN where one is not known."""
    finite = values[np.isfinite(values)]
    nan_count = int(np.isnan(values).sum())
    counts = [len(values), nan_count, len(values) - len(finite) - nan_count, np.sum(finite == 0)]
    if not len(finite):
        return [*counts, *[math.nan] * 7]
    deviation = finite - finite.mean()
    return [
        *counts, finite.min(), finite.max(), finite.sum(), np.dot(deviation, deviation),
        np.abs(finite).sum(), math.nan, math.nan,
    ]  # fmt: skip
