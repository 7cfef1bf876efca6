"""Tensors: statistics as series, frames and in the view; histograms; elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.analysis import REDUCTIONS
from stepscope.errors import UsageError
from stepscope.run import (
    Run,
    TensorHistograms,
    TensorSelection,
    list_boosted_models,
    read_histograms,
)
from stepscope.run.tensors.elements import FLOAT8_FORMATS, float8_values, list_elements
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.views.tensors.tensors import show_tensors
from tests.support.command import run_command
from tests.support.tensor_rows import add_histograms, add_tensors

VALUES = {0: [1.0, -2.0, 0.0], 10: [3.0, 4.0, 0.5]}
"""Elements of a tensor by step."""


def describe(values: list[float]) -> dict[str, float]:
    array = np.array(values)
    return {
        "element_count": array.size, "zero_count": int((array == 0).sum()), "min": array.min(),
        "max": array.max(), "mean": array.mean(), "std": array.std(),
        "l1": np.abs(array).sum(), "l2": np.sqrt((array**2).sum()), "product": array.prod(),
    }  # fmt: skip


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    """Draw two ranks; on rank 1 a gradient becomes NaN."""
    builder = RunBuilder(tmp_path / "run")
    processes = [builder.rank(rank) for rank in (0, 1)]
    for process in processes:
        process.draw("forward 12 | backward 20 | optimizer 8", 20)
    run = builder.write()
    rows = [
        {"tensor": "fc.weight", "step": step, "update_l2": 0.1, **describe(values)}
        for step, values in VALUES.items()
    ]
    gradient = {"tensor": "gradient/fc.weight", "collection": "gradients"}
    add_tensors(run, processes[0].info.process, [*rows, {**gradient, "step": 10, "l2": 2.0}])
    broken = {**gradient, "step": 20, "nan_count": 4, "infinite_count": 2}
    add_tensors(run, processes[1].info.process, [{**gradient, "step": 10, "l2": 1.0}, broken])
    return run


def test_reductions(drawn: Path) -> None:
    tensors = stepscope.open(drawn).tensors("fc.*")
    assert (tensors.names, tensors.steps(), tensors.ranks) == (["fc.weight"], [0, 10], [0])
    for position, values in enumerate(VALUES.values()):
        array = np.array(values)
        expected = {
            **describe(values),
            "variance": array.var(),
            "sum": array.sum(),
            "abs_mean": np.abs(array).mean(),
            "zero_ratio": (array == 0).mean(),
            "update_l2": 0.1,
            "update_ratio": 0.1 / np.linalg.norm(array),
            "nan_count": 0,
            "infinite_count": 0,
        }
        assert expected.keys() == set(REDUCTIONS)
        for name, value in expected.items():
            assert tensors.array("fc.weight", name)[position] == pytest.approx(value), name


def test_selection(drawn: Path) -> None:
    run = stepscope.open(drawn)
    assert run.tensors().names == ["fc.weight", "gradient/fc.weight"]
    assert run.tensors(collection="gradients").ranks == [0, 1]
    assert run.tensors("gradient/.*", rank=1).steps() == [10, 20]
    assert run.tensors("weight").names == []  # a pattern of whole names
    frame = run.tensors(rank=1).reduction("l2").rows()
    assert [(row["rank"], row["step"], row["l2"]) for row in frame] == [(1, 10, 1.0), (1, 20, None)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: run.tensors("("), r"'\(' is not a regular expression"),
        (lambda run: run.tensors(collection="weight"), "weights"),
        (lambda run: run.tensors(rank=7), "the run has ranks 0, 1"),
        (lambda run: run.tensors().reduction("norm"), "'norm' is no reduction; choose one of"),
        (lambda run: run.tensors().array("fc", "l2"), "'fc' was not recorded in mode TRAIN"),
        (lambda run: run.tensors().array("fc.weight", "norm"), "'norm' is no reduction"),
    ],
)
def test_mistakes(drawn: Path, call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(UsageError, match=message):
        call(stepscope.open(drawn))


def test_the_view_begins_with_what_is_not_finite(drawn: Path) -> None:
    view = show_tensors(stepscope.open(drawn)._run)
    assert view.missing is view.tensors_missing is None
    first, *rest = view.tensors
    assert (first.name, first.rank, first.step) == ("gradient/fc.weight", 1, 20)
    assert (first.non_finite_count, first.l2, first.l2_by_step) == (6, None, [1.0, None])
    assert [tensor.name for tensor in rest] == ["fc.weight", "gradient/fc.weight"]
    assert all(tensor.non_finite_count == 0 for tensor in rest)
    text = run_command(drawn.parent, "show", str(drawn), "tensors").stdout
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "gradient/fc.weight rank 1 2x3 20 0% 6" in lines
    assert "fc.weight rank 0 2x3 10 5.02 0.0199 0%" in lines


def test_a_run_without_tensors(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    builder.rank(0).draw("forward 12 | backward 20 | optimizer 8", 20)
    run = stepscope.open(builder.write())
    assert run.tensors().names == []
    assert len(run.tensors().frame()) == 0
    assert "--tensors weights,gradients,losses" in str(show_tensors(run._run).tensors_missing)


ELEMENTS = {
    0: [-0.3, -0.001, 0.0, 0.002, 0.3, 0.9],
    1: [-70.0, -0.4, 0.0, 0.2, 3.0, 100.0],
    2: [-0.9, -0.9, 0.003, 0.03, 0.6, 0.7],
    5: [-1.5, 1.5, 1.6, 0.0, 0.0, 0.0],
}
"""Elements of the tensor by step."""
ZERO_WIDTH = {0: 2.0**-7, 1: 0.5, 2: 2.0**-5, 5: 2.0**-7}
"""Half the width of the bin around zero by step, as the largest element decides."""


def bin_of(value: float, width: float) -> tuple[float, float]:
    """Return the bin of an element: a power of two, or the one around zero."""
    if abs(value) < width:
        return -width, width
    low = 2.0 ** np.floor(np.log2(abs(value)))
    return (low, 2 * low) if value > 0 else (-2 * low, -low)


def bins_of(step: int) -> dict[tuple[float, float], int]:
    counts: dict[tuple[float, float], int] = {}
    for value in ELEMENTS[step]:
        edges = bin_of(value, ZERO_WIDTH[step])
        counts[edges] = counts.get(edges, 0) + 1
    return counts


def rows_of(step: int, **fields: Any) -> list[dict[str, Any]]:
    return [
        {"tensor": "fc.weight", "step": step, "low": low, "high": high, "count": count, **fields}
        for (low, high), count in bins_of(step).items()
    ]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Draw two ranks; rows of another rank, mode and tensor must not count."""
    builder = RunBuilder(tmp_path / "run")
    first, second = (builder.rank(rank).info.process for rank in (0, 1))
    builder.write()
    rows = [row for step in ELEMENTS for row in rows_of(step)]
    ignored_rows = rows_of(1, tensor="other") + rows_of(2, mode="EVAL")
    add_histograms(tmp_path / "run", first, rows + ignored_rows)
    add_histograms(tmp_path / "run", second, rows_of(0))
    return Run(open_run(tmp_path / "run"))


def read(run: Run, max_columns: int) -> TensorHistograms:
    selection = TensorSelection(rank=0, mode="TRAIN", tensors=("fc.weight",))
    return read_histograms(run, selection, max_columns)


@pytest.mark.parametrize("max_columns", [10, 2, 1])
def test_elements_are_in_their_bins(run: Run, max_columns: int) -> None:
    """The bin around zero is the widest of all steps; those of the steps of a column are added."""
    histograms = read(run, max_columns)
    size = -(-len(ELEMENTS) // max_columns)
    groups = [list(ELEMENTS)[n : n + size] for n in range(0, len(ELEMENTS), size)]
    assert histograms.columns.first_step.tolist() == [group[0] for group in groups]
    assert histograms.columns.last_step.tolist() == [group[-1] for group in groups]
    edges = list(zip(histograms.low.tolist(), histograms.high.tolist(), strict=True))
    assert edges == sorted(edges)
    assert (-0.5, 0.5) in edges
    expected = np.zeros((len(edges), len(groups)))
    for column, group in enumerate(groups):
        for step in group:
            for value in ELEMENTS[step]:
                expected[edges.index(bin_of(value, 0.5)), column] += 1
    assert histograms.counts.tolist() == expected.tolist()


def test_bins_do_not_overlap(run: Run) -> None:
    histograms = read(run, 10)
    assert (histograms.high[:-1] <= histograms.low[1:]).all()


def test_a_tensor_without_histograms_has_no_columns(run: Run) -> None:
    selection = TensorSelection(rank=0, mode="TRAIN", tensors=("bias",))
    histograms = read_histograms(run, selection, 10)
    assert len(histograms.columns) == 0
    assert histograms.counts.shape == (0, 0)


@pytest.mark.parametrize("dtype", FLOAT8_FORMATS)
def test_8_bit_numbers_are_those_of_pytorch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    bits = torch.arange(256, dtype=torch.uint8)
    expected = bits.view(getattr(torch, dtype)).float().numpy()
    values = float8_values(dtype)
    assert np.array_equal(values, expected, equal_nan=True)
    assert np.array_equal(np.signbit(values[:128]), np.signbit(expected[:128]))


def test_of_a_restarted_job_the_latest_start_counts(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    processes = [builder.rank(0, incarnation=number) for number in (2, 1)]
    for process, steps in zip(processes, (4, 8), strict=True):
        process.draw("forward 12 | backward 20 | optimizer 8", steps)
        process.fact("xgboost_model", number=1, objective="binary:logistic")
    path = builder.write()
    for process, recorded in zip(processes, ([0, 2], [0, 2, 4, 6]), strict=True):
        rows = [{"tensor": "w", "step": step, "byte_count": 24, "file": ""} for step in recorded]
        add_tensors(path, process.info.process, rows, table="tensor_elements")
    run = Run(open_run(path))
    listed = [(element.step, element.key[0]) for element in list_elements(run, ["w"])]
    current = processes[0].info.process
    assert listed == [(0, current), (2, current)]
    assert [model.process for model in list_boosted_models(run)] == [current]
