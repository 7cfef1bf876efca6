"""View and report of XGBoost's models, against the labels and predictions behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.errors import UsageError
from stepscope.report.display import make_chart_table
from stepscope.report.drawing import draw_chart
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS, DataSetEvaluation, ViewOptions, XgboostView
from stepscope.views.profiling_report import (
    BarChart,
    Curves,
    Matrix,
    Section,
    choose_report_rules,
    make_report,
)
from tests.support.boosted_runs import GAIN, ROUNDS, ROW_COUNT, Boosted, draw_boosted
from tests.support.printed import print_text

BINARY, CLASSES, REGRESSION = "binary:logistic", "multi:softprob", "reg:squarederror"
NUMBERS = {BINARY: 1, CLASSES: 2, REGRESSION: 3}
DATA_SETS = pytest.mark.parametrize("data", ["train", "test"])


@pytest.fixture(scope="module")
def boosted(tmp_path_factory: pytest.TempPathFactory) -> Boosted:
    return draw_boosted(tmp_path_factory.mktemp("boosted") / "run")


def show(path: Path, **options: Any) -> XgboostView:
    view = VIEWS["xgboost"](Run(open_run(path)), ViewOptions(**options))
    assert isinstance(view, XgboostView)
    return view


def evaluation(boosted: Boosted, objective: str, data: str) -> DataSetEvaluation:
    view = show(boosted.path, name=str(NUMBERS[objective]))
    (shown,) = [one for one in view.data_sets if one.data_set == data]
    return shown


def test_models_and_metrics(boosted: Boosted) -> None:
    view = show(boosted.path)
    assert [(row.name, row.objective) for row in view.models] == [
        (f"model {number}", objective) for objective, number in NUMBERS.items()
    ]
    assert (view.name, view.rank, view.missing, view.notes) == ("model 1", 0, None, [])
    assert [(one.data_set, one.metric) for one in view.metrics] == [
        ("test", "logloss"), ("train", "logloss"),
    ]  # fmt: skip
    test = view.metrics[0]
    assert test.round == list(range(20))
    assert test.value == pytest.approx([2 * 0.9**step for step in range(20)], rel=1e-6)
    assert (test.min_round, test.max_round) == (19, 0)
    assert test.last_value == test.min == pytest.approx(2 * 0.9**19, rel=1e-6)
    assert view.trees is not None
    assert (view.trees.round, view.trees.depth, view.trees.tree_count) == ([10], [3.0], 11)


@DATA_SETS
@pytest.mark.parametrize("objective", [BINARY, CLASSES])
def test_labels_are_counted(boosted: Boosted, objective: str, data: str) -> None:
    labels = boosted.truth[objective, data, ROUNDS[-1]][0]
    view = show(boosted.path, name=f"model {NUMBERS[objective]}")
    (shown,) = [one for one in view.labels if one.data_set == data]
    for number, one in enumerate(shown.bins):
        assert one.label == str(number)
        assert one.count == np.sum(labels == number)
        assert one.share_ratio == pytest.approx(one.count / ROW_COUNT)
    assert shown.counted_count == ROW_COUNT


@DATA_SETS
@pytest.mark.parametrize("objective", [BINARY, CLASSES])
def test_confusion_and_scores(boosted: Boosted, objective: str, data: str) -> None:
    shown = evaluation(boosted, objective, data)
    confusion = shown.confusion
    assert confusion is not None
    assert (shown.round, shown.counted_count) == (10, ROW_COUNT)
    assert shown.mode == ("TRAIN" if data == "train" else "EVAL")

    def predict(step: int) -> tuple[np.ndarray, np.ndarray]:
        labels, scores = boosted.truth[objective, data, step]
        return labels, scores.argmax(axis=1) if scores.ndim > 1 else scores > 0.5

    labels, predicted = predict(10)
    assert confusion.accuracy_ratio == pytest.approx(np.mean(labels == predicted))
    f1 = []
    for number, (row, scores) in enumerate(zip(confusion.matrix, confusion.classes, strict=True)):
        hits = np.sum((labels == number) & (predicted == number))
        assert row.predicted_count == [
            np.sum((labels == number) & (predicted == guess))
            for guess in range(len(confusion.matrix))
        ]
        precision, recall = hits / np.sum(predicted == number), hits / np.sum(labels == number)
        f1.append(2 * precision * recall / (precision + recall))
        assert scores.precision_ratio == pytest.approx(precision)
        assert scores.recall_ratio == pytest.approx(recall)
        assert scores.f1_ratio == pytest.approx(f1[-1])
    counts = [sum(row.predicted_count) for row in confusion.matrix]
    macro, weighted = confusion.averages
    assert macro.f1_ratio == pytest.approx(np.mean(f1))
    assert weighted.f1_ratio == pytest.approx(np.average(f1, weights=counts))
    assert confusion.rounds == list(ROUNDS)
    for number, curve in enumerate(confusion.diagonal):
        for step, value in zip(ROUNDS, curve.recall_ratio, strict=True):
            true, guess = predict(step)
            assert value == pytest.approx(np.mean(guess[true == number] == number), rel=1e-5)


@DATA_SETS
def test_area_under_the_curve_by_round(boosted: Boosted, data: str) -> None:
    """The share of the pairs of a row of each class that are in the right order, ties half."""
    roc = evaluation(boosted, BINARY, data).roc
    assert roc is not None
    for step, area in zip(ROUNDS, roc.auc_by_round, strict=True):
        labels, scores = boosted.truth[BINARY, data, step]
        difference = scores[labels == 1][:, None] - scores[labels == 0][None, :]
        assert area == pytest.approx(((difference > 0) + 0.5 * (difference == 0)).mean())
    assert roc.auc == roc.auc_by_round[-1]
    assert (roc.false_positive_ratio[0], roc.true_positive_ratio[-1]) == (0, 1)


@DATA_SETS
def test_errors_of_a_regression(boosted: Boosted, data: str) -> None:
    errors = evaluation(boosted, REGRESSION, data).errors
    assert errors is not None
    labels, predictions = boosted.truth[REGRESSION, data, 10]
    residuals = labels - predictions
    assert sum(one.count for one in errors.residuals) == ROW_COUNT
    assert errors.residuals[0].low is errors.residuals[-1].high is None
    for one in errors.residuals[1:-2]:
        assert one.low is not None
        assert one.high is not None
        inside = np.sum((residuals >= one.low) & (residuals < one.high))
        assert one.count == pytest.approx(inside, abs=1)  # ends are rounded
    last = errors.label_bins[-1]
    assert last.high == pytest.approx(labels.max(), rel=1e-5)
    width = (labels.max() - labels.min()) / 10
    for number, one in enumerate(errors.label_bins):
        low = labels.min() + number * width
        inside = (labels >= low - 1e-12) & (labels < low + width) | (
            (number == 9) & (labels == labels.max())
        )
        assert one.count == inside.sum()
        if one.count:
            error = np.abs(residuals[inside]).mean()
            assert one.mean_absolute_error == pytest.approx(error, rel=1e-5)
        else:
            assert one.mean_absolute_error is None
        assert len(one.by_round) == len(ROUNDS)


def test_importance_of_features(boosted: Boosted) -> None:
    gain, weight = show(boosted.path).importance
    assert (gain.measure, weight.measure, gain.round) == ("gain", "weight", 10)
    assert [one.name for one in gain.features[:3]] == ["f0", "f1", "f2"]
    assert len(gain.features) == 51
    assert gain.features[0].share_ratio is None  # means have no sum
    assert weight.features[0].share_ratio == pytest.approx(100 / sum(GAIN.values()))
    assert sum(one.share_ratio or 0 for one in weight.features) == pytest.approx(1)


def test_mistakes_and_missing_data(boosted: Boosted, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No model is called 'model 7'\. Did you mean model"):
        show(boosted.path, name="model 7")
    with pytest.raises(UsageError, match="There is no rank 3"):
        show(boosted.path, rank=3)
    builder = RunBuilder(tmp_path / "torch")
    builder.rank(0).draw("forward 12 | backward 20 | optimizer 8", 20)
    run = Run(open_run(builder.write()))
    assert show(tmp_path / "torch").missing == "XGBoost trained no model in this run"
    report = make_report(run, choose_report_rules())
    assert "xgboost" not in [section.id for section in report.sections]


def test_only_metrics(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    process = builder.rank(0).draw("optimizer:XGBoost 8 | do 2", 20)
    process.fact("xgboost_model", number=1, objective=BINARY)
    view = show(builder.write())
    assert view.missing is None
    assert "--tensors feature_importance,trees,labels,predictions" in view.notes[0]


def test_text_in_a_terminal(boosted: Boosted) -> None:
    for name in ("1", "2", "3"):
        text = print_text(show(boosted.path, name=name))
        assert "Metrics by round" in text
        assert ("Accuracy" in text) is (name != "3")
        assert ("AUC" in text) is (name == "1")
        assert ("Residuals (label minus prediction)" in text) is (name == "3")


def sections_in(sections: list[Section]) -> list[Section]:
    return [one for section in sections for one in (section, *sections_in(section.sections))]


@pytest.mark.extended("a report of another kind of run")
@pytest.mark.seed("DBR-16")
def test_report_has_all_sections(boosted: Boosted) -> None:
    report = make_report(Run(open_run(boosted.path)), choose_report_rules())
    (section,) = [one for one in report.sections if one.id == "xgboost"]
    titles = {model.title: [one.title for one in model.sections] for model in section.sections}
    shared = ["Distribution of labels", "Loss against round", "Feature importance"]
    classifier = [
        "Confusion matrix",
        "Evaluation of the confusion matrix",
        "Accuracy of each class over rounds",
        "ROC curve",
        "Distribution of residuals",
    ]
    assert titles["Model 1"] == titles["Model 2"] == shared + classifier
    assert titles["Model 3"] == [
        *shared, "Confusion matrix", "ROC curve", "Distribution of residuals",
        "Absolute error by label over rounds",
    ]  # fmt: skip
    charts = [
        block
        for one in sections_in([section])
        for block in one.blocks
        if isinstance(block, BarChart | Curves | Matrix)
    ]
    assert {type(chart) for chart in charts} == {BarChart, Curves, Matrix}
    for chart in charts:
        table = make_chart_table(chart)
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)
        svg = draw_chart(chart)
        assert svg is None or svg.startswith("<svg")
