"""Drawn run of a job that trained three models with XGBoost, with known labels and predictions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepscope.capture.frameworks.xgboost.tensors import figures
from stepscope.capture.frameworks.xgboost.tensors.figures import Figure
from stepscope.store import DictColumn, RunWriter
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from tests.support.tensor_rows import add_tensors

NODE = "node-0"
ROUNDS = (0, 5, 10)
ROW_COUNT = 400
CLASSES = 3
GAIN = {f"f{number}": 100.0 / (1 + number) for number in range(60)}


@dataclass(frozen=True)
class Boosted:
    """Path of the run, and labels and predictions by objective, data set and round."""

    path: Path
    truth: dict[tuple[str, str, int], tuple[np.ndarray, np.ndarray]]


def draw_boosted(path: Path) -> Boosted:
    """Draw a binary classifier (model 1), one of three classes (2) and a regression (3)."""
    builder = RunBuilder(path)
    process = builder.rank(0, node=NODE)
    builder.metric("cpu_busy_ratio", 0.5, node=NODE)
    process.draw("optimizer:XGBoost 8 | do 2", 20)
    objectives = ("binary:logistic", "multi:softprob", "reg:squarederror")
    for number, objective in enumerate(objectives, 1):
        process.fact(
            "xgboost_model", number=number, objective=objective, booster="gbtree", data="DMatrix",
            row_count=ROW_COUNT, column_count=60, parameters={"max_depth": "3"},
            class_count=CLASSES if number == 2 else None,
        )  # fmt: skip
    run = builder.write()
    random = np.random.default_rng(5)
    truth: dict[tuple[str, str, int], tuple[np.ndarray, np.ndarray]] = {}
    rows: list[dict[str, Any]] = []
    for number, objective in enumerate(objectives, 1):
        prefix = "" if number == 1 else f"model {number}/"
        rows += _rows(prefix, 10, "TRAIN", figures.rank_features("gain", GAIN))
        rows += _rows(prefix, 10, "TRAIN", figures.rank_features("weight", GAIN))
        for data, mode in (("train", "TRAIN"), ("test", "EVAL")):
            for step in ROUNDS:
                labels, predictions = _draw(objective, random)
                truth[objective, data, step] = labels, predictions
                for figure in _figures(objective, data, labels, predictions):
                    rows += _rows(prefix, step, mode, figure)
            class_count = {"binary:logistic": 2, "multi:softprob": CLASSES}.get(objective, 0)
            rows += _rows(prefix, 0, mode, figures.count_labels(data, labels, class_count))
    add_tensors(run, process.info.process, rows, table="tensor_values")
    _add_scalars(run, process.info.process)
    return Boosted(run, truth)


def _draw(objective: str, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if objective == "binary:logistic":
        labels = random.integers(0, 2, ROW_COUNT)
        scores = np.clip(0.3 * labels + 0.7 * random.random(ROW_COUNT), 0, 1).round(2)
        return labels.astype(float), scores
    if objective == "multi:softprob":
        labels = random.integers(0, CLASSES, ROW_COUNT)
        scores = random.random((ROW_COUNT, CLASSES))
        scores[np.arange(ROW_COUNT), labels] += 0.4
        return labels.astype(float), scores
    labels = random.normal(size=ROW_COUNT)
    return labels, labels + 0.3 * random.normal(size=ROW_COUNT)


def _figures(
    objective: str, data: str, labels: np.ndarray, predictions: np.ndarray
) -> list[Figure]:
    if objective == "binary:logistic":
        predicted = (predictions > 0.5).astype(float)
        confusion = figures.count_confusion(data, labels, predicted, 2)
        return [confusion, *figures.trace_roc(data, labels, predictions)]
    if objective == "multi:softprob":
        predicted = predictions.argmax(axis=1).astype(float)
        return [figures.count_confusion(data, labels, predicted, CLASSES)]
    return [
        figures.count_residuals(data, labels, predictions),
        figures.measure_errors(data, labels, predictions),
    ]


def _rows(prefix: str, step: int, mode: str, figure: Figure) -> list[dict[str, Any]]:
    values = np.asarray(figure.values, np.float64)
    return [
        {
            "node": NODE, "tensor": f"{prefix}{figure.name}", "collection": figure.collection,
            "mode": mode, "step": step, "row_name": row, "column_name": column,
            "value": float(values[row_number, column_number]),
        }
        for row_number, row in enumerate(figure.rows)
        for column_number, column in enumerate(figure.columns)
    ]  # fmt: skip


def _add_scalars(run: Path, process: str) -> None:
    """Add metrics that fall by a tenth in each round, and depths of trees."""
    names, steps, values = [], [], []
    for prefix, metric in (("", "logloss"), ("model 2/", "mlogloss"), ("model 3/", "rmse")):
        for name, start in ((f"train-{metric}", 1.0), (f"test-{metric}", 2.0)):
            names += [f"{prefix}{name}"] * 20
            steps += range(20)
            values += [start * 0.9**step for step in range(20)]
        for name, number in (("depth", 3.0), ("count", 11.0), ("largest_node_id", 14.0)):
            names.append(f"{prefix}trees/{name}")
            steps.append(10)
            values.append(number)
    size = len(names)
    with RunWriter(run, "n0") as writer:
        writer.append(
            "scalars",
            {
                "node": DictColumn.encode([NODE] * size),
                "process": DictColumn.encode([process] * size),
                "log": DictColumn.encode(["7s"] * size),
                "seq": np.arange(size, dtype=np.int64),
                "t_ns": EPOCH_NS + np.array(steps, dtype=np.int64) * 10_000_000 + 9_000_000,
                "name": DictColumn.encode(names),
                "step": np.ma.MaskedArray(np.array(steps, dtype=np.int64)),
                "value": np.array(values),
            },
        )
