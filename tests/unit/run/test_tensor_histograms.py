"""Histograms of a tensor over the steps, on bins that all steps share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.run import Run, TensorHistograms, TensorSelection, read_histograms
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.tensor_rows import add_histograms

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
