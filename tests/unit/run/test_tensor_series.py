"""Statistics of tensors as series, as frames, and in the view."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.analysis import REDUCTIONS
from stepscope.errors import UsageError
from stepscope.testing import RunBuilder
from stepscope.views.tensors import show_tensors
from tests.support.command import run_command
from tests.support.tensor_rows import add_tensors

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


def test_the_text_of_the_view(drawn: Path) -> None:
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
