"""Views of tensors over the steps, against the rows that they aggregate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.analysis import REDUCTIONS
from stepscope.errors import UsageError
from stepscope.run import Run, read_tensors
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS, ViewOptions
from stepscope.views.tensors import tensor
from stepscope.views.tensors.tensor import show_tensor, show_tensor_heat
from tests.support.tensor_rows import add_tensors

NAMES = ("stem.weight", "a.weight", "head.weight")
STEPS = range(0, 70, 10)


def open_drawn(path: Path, *, with_tensors: bool = True) -> Run:
    builder = RunBuilder(path)
    process = builder.rank(0).draw("forward 12 | backward 20 | optimizer 8", 70)
    drawn = builder.write()
    if with_tensors:
        random = np.random.default_rng(0)
        rows = []
        for step in STEPS:
            for name in NAMES:
                low, mean, high = np.sort(random.normal(size=3))
                rows.append({
                    "tensor": name, "step": step, "min": low, "mean": mean, "max": high,
                    "std": random.random(), "l1": random.random(), "l2": 1 + random.random(),
                    "update_l2": random.random(), "product": random.random(),
                    "zero_count": int(random.integers(6)),
                    "nan_count": int(name == "a.weight" and step == 50),
                })  # fmt: skip
        add_tensors(drawn, process.info.process, rows)
    return stepscope.open(drawn)._run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_drawn(tmp_path_factory.mktemp("tensors") / "run")


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_heat_map_has_the_largest_value_of_a_column(
    run: Run, reduction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor, "MAX_HEAT_COLUMNS", 3)
    heat = show_tensor_heat(run, ViewOptions(reduction=reduction))
    assert (heat.first_step, heat.last_step) == ([0, 30, 60], [20, 50, 60])
    assert heat.columns == "each column is the maximum of up to 3 recorded steps"
    assert [row.name for row in heat.rows] == list(NAMES)  # as recorded, not by the alphabet
    for row, series in zip(heat.rows, read_tensors(run), strict=True):
        values = series.reduction(reduction)
        for column, value in enumerate(row.value):
            assert value == pytest.approx(values[3 * column : 3 * column + 3].max(), rel=1e-3)
    assert [row.non_finite_columns for row in heat.rows] == [[], [1], []]


def test_a_tensor_over_the_steps(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor, "MAX_COLUMNS", 4)
    view = show_tensor(run, ViewOptions(name="a.weight"))
    (series,) = [series for series in read_tensors(run) if series.name == "a.weight"]
    assert (view.first_step, view.last_step) == ([0, 20, 40, 60], [10, 30, 50, 60])
    for name, reduction, aggregate in (
        ("min", "min", np.min), ("max", "max", np.max), ("mean", "mean", np.mean),
        ("standard_deviation", "std", np.mean), ("l2", "l2", np.max),
        ("update_ratio", "update_ratio", np.max), ("nan_count", "nan_count", np.sum),
    ):  # fmt: skip
        values = series.reduction(reduction)
        expected = [aggregate(values[start : start + 2]) for start in range(0, 7, 2)]
        assert getattr(view, name) == pytest.approx(expected, rel=1e-3), name
    assert view.histogram is None
    assert "--tensor-histograms" in str(view.histogram_missing)


def test_a_range_of_time(run: Run) -> None:
    heat = VIEWS["tensor-heat"](run, ViewOptions(from_ns=15 * 10**9, to_ns=35 * 10**9))
    assert isinstance(heat, tensor.TensorHeatView)
    assert heat.first_step == [20, 30]


@pytest.mark.parametrize(
    ("view", "options", "message"),
    [
        ("tensor", ViewOptions(name="a.weigth"), r"No tensor is called 'a.weigth'\. Did you mean"),
        ("tensor-heat", ViewOptions(reduction="norm"), "'norm' is no reduction; choose one of"),
        (
            "tensor-heat",
            ViewOptions(collection="biases"),
            "No collection is called biases; available: weights",
        ),
        ("tensor-heat", ViewOptions(rank=3), "There is no rank 3"),
    ],
)
def test_mistakes(run: Run, view: str, options: ViewOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        VIEWS[view](run, options)


def test_a_run_without_tensors(tmp_path: Path) -> None:
    run = open_drawn(tmp_path / "run", with_tensors=False)
    assert "--tensors weights,gradients" in str(show_tensor_heat(run).missing)
    assert "--tensors weights,gradients" in str(show_tensor(run, ViewOptions(name="a")).missing)
