"""Elements of tensors: numbers of types that NumPy does not have, and restarted jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepscope.run import Run, list_boosted_models
from stepscope.run.tensor_elements import FLOAT8_FORMATS, float8_values, list_elements
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.tensor_rows import add_tensors


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
