"""An unmodified script that trains with XGBoost: same models, steps, metrics and figures."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from stepscope.schema import BoostedModelFact
from stepscope.store import open_run
from tests.support.under_stepscope import E2E, JOB_TIMEOUT_S, FinishedJob, run_under

pytest.importorskip("xgboost")

SCRIPT = str(E2E / "scripts" / "boosting.py")
COLLECTIONS = "feature_importance,trees,labels,predictions"
ROUNDS, LAST_RECORDED = 12, 10
MODELS = {
    "binary": 1, "classes": 2, "regression": 3, "own objective": 4, "dart": 5, "linear": 6,
    "stopped": 7, "ranking": 8, "quantile": 9, "loop": 10,
}  # fmt: skip
"""Number of each model in the process; three folds of the cross validation follow."""


@dataclass(frozen=True)
class Boosting:
    job: FinishedJob
    bare: dict[str, Any]
    watched: dict[str, Any]

    def matrix(self, tensor: str, step: int) -> dict[tuple[str, str], float]:
        """Return the numbers of a figure by row and column."""
        rows = open_run(self.job.run).sql(
            "SELECT row_name, column_name, value FROM tensor_values "
            "WHERE tensor = ? AND step = ? ORDER BY seq",
            (tensor, step),
        )
        values = np.ma.filled(rows["value"], np.nan).tolist()
        keys = zip(rows["row_name"].tolist(), rows["column_name"].tolist(), strict=True)
        return dict(zip(keys, values, strict=True))

    def truth(self, model: str) -> tuple[np.ndarray, np.ndarray]:
        expected = self.bare["expected"][model]
        return np.array(expected["labels"]), np.array(expected["predictions"])


@pytest.fixture(scope="module")
def boosting(tmp_path_factory: pytest.TempPathFactory) -> Boosting:
    directory = tmp_path_factory.mktemp("boosting")
    bare, watched = directory / "bare.json", directory / "watched.json"
    command = [sys.executable, SCRIPT, "--out", str(bare)]
    subprocess.run(command, check=True, capture_output=True, timeout=JOB_TIMEOUT_S)
    job = run_under(
        directory / "run",
        *(sys.executable, SCRIPT, "--out", str(watched)),
        options=("--tensors", COLLECTIONS),
    )
    assert job.code == 0, job.stderr
    return Boosting(job, json.loads(bare.read_bytes()), json.loads(watched.read_bytes()))


@pytest.mark.seed("DBT-01")
def test_models_are_the_same(boosting: Boosting) -> None:
    """Compare `save_raw` of every objective, and the metrics of the cross validation."""
    assert boosting.watched == boosting.bare


def test_each_round_is_a_step(boosting: Boosting) -> None:
    """Folds of a cross-validation take their rounds in turn, which is one step."""
    rounds = sum(model["rounds"] for model in boosting.bare["expected"].values())
    assert boosting.job.steps()["step_count"] == rounds + 3 * ROUNDS + ROUNDS


def test_metrics_are_scalars(boosting: Boosting) -> None:
    rows = open_run(boosting.job.run).sql("SELECT name, value FROM scalars ORDER BY t_ns")
    metric = rows["value"][rows["name"] == "test-logloss"]
    labels, predictions = boosting.truth("binary")
    loss = -np.log(np.where(labels == 1, predictions, 1 - predictions)).mean()
    assert len(metric) == ROUNDS
    assert metric[LAST_RECORDED] == pytest.approx(loss, rel=1e-4)
    folds = [name for name in set(rows["name"].tolist()) if name.startswith("model 13/")]
    assert sorted(folds)[:2] == ["model 13/test-logloss", "model 13/train-logloss"]


def test_models_are_described(boosting: Boosting) -> None:
    (process,) = [p for p in open_run(boosting.job.run).processes() if p.facts_of(BoostedModelFact)]
    facts = {fact.number: fact for fact in process.facts_of(BoostedModelFact)}
    assert len(facts) == len(MODELS) + 3
    assert facts[2].objective == "multi:softprob"
    assert facts[2].class_count == 3
    assert (facts[1].row_count, facts[1].column_count) == (600, 6)
    assert facts[1].parameters["max_depth"] == "3"
    assert [n for n, fact in facts.items() if fact.has_own_objective] == [MODELS["own objective"]]
    assert facts[MODELS["quantile"]].data == "QuantileDMatrix"
    assert facts[MODELS["linear"]].booster == "gblinear"


@pytest.mark.parametrize("model", ["binary", "classes"])
def test_confusion_counts_rows(boosting: Boosting, model: str) -> None:
    labels, predictions = boosting.truth(model)
    predicted = predictions.argmax(axis=1) if predictions.ndim > 1 else predictions > 0.5
    prefix = "" if model == "binary" else f"model {MODELS[model]}/"
    counts = boosting.matrix(f"{prefix}confusion/test", LAST_RECORDED)
    class_count = len(set(labels.tolist()))
    assert len(counts) == class_count**2
    for (true_class, predicted_class), count in counts.items():
        is_pair = (labels == int(true_class)) & (predicted == int(predicted_class))
        assert count == is_pair.sum()


def test_area_under_the_curve_is_the_share_of_ordered_pairs(boosting: Boosting) -> None:
    """Mann and Whitney: the area is the probability that a row of class 1 has the higher score."""
    labels, scores = boosting.truth("binary")
    difference = scores[labels == 1][:, None] - scores[labels == 0][None, :]
    area = ((difference > 0) + 0.5 * (difference == 0)).mean()
    assert boosting.matrix("auc/test", LAST_RECORDED)["0", "value"] == pytest.approx(area)
    curve = boosting.matrix("roc/test", LAST_RECORDED)
    for number in range(1, len(curve) // 3):
        threshold = curve[str(number), "threshold"]
        reached = scores >= threshold * (1 - 1e-6)
        for column, label in (("true_positive_ratio", 1), ("false_positive_ratio", 0)):
            share = reached[labels == label].mean()
            assert curve[str(number), column] == pytest.approx(share, abs=1e-9)


def test_errors_of_a_regression(boosting: Boosting) -> None:
    labels, predictions = boosting.truth("regression")
    residuals = boosting.matrix("model 3/residuals/test", LAST_RECORDED)
    counts = [count for (_, column), count in residuals.items() if column == "count"]
    assert sum(counts) == len(labels)
    errors = boosting.matrix("model 3/absolute_error/test", LAST_RECORDED)
    for number in range(10):
        low, high = errors[str(number), "low"], errors[str(number), "high"]
        upper = labels <= high if number == 9 else labels < high
        inside = np.abs(labels - predictions)[(labels >= low) & upper]
        assert errors[str(number), "count"] == pytest.approx(len(inside), abs=1)
        if len(inside) > 1:
            mean = errors[str(number), "mean_absolute_error"]
            assert mean == pytest.approx(inside.mean(), rel=0.2)


def test_importance_of_features(boosting: Boosting) -> None:
    recorded = boosting.matrix("feature_importance/gain", LAST_RECORDED)
    assert {feature: value for (feature, _), value in recorded.items()} == pytest.approx(
        boosting.bare["expected"]["binary"]["gain"]
    )


def test_meaning_that_is_not_known_has_no_figures(boosting: Boosting) -> None:
    """Predictions under an own objective, and scores of a ranking, are not compared to labels."""
    names = open_run(boosting.job.run).sql("SELECT DISTINCT tensor FROM tensor_values")["tensor"]
    for number in (MODELS["own objective"], MODELS["ranking"]):
        kinds = {name.split("/")[1] for name in names if name.startswith(f"model {number}/")}
        assert kinds == {"feature_importance", "labels"}


def test_verdict_blames_no_optimizer(boosting: Boosting) -> None:
    verdict = json.dumps(boosting.job.verdict)
    assert "optimizer takes" not in verdict
    assert "torch.optim" not in verdict
    assert "inference_mode" not in verdict
    assert "A boosting round of XGBoost is one call" in verdict
