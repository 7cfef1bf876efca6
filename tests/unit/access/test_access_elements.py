"""Elements of tensors from Python: which one is meant, and sentences where none is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.access.run_frames import Tensors
from stepscope.analysis import STORED_REDUCTIONS, TensorSeries
from stepscope.errors import UsageError
from stepscope.run import TensorElements


def series(name: str) -> TensorSeries:
    return TensorSeries(
        name=name, collection="weights", process="p", rank=0, mode="TRAIN", shape="2",
        dtype="float32", step=np.arange(4), t_ns=np.arange(4),
        stored={reduction: np.ones(4) for reduction in STORED_REDUCTIONS},
    )  # fmt: skip


def elements(step: int, rank: int, mode: str) -> TensorElements:
    return TensorElements(
        name="w", rank=rank, mode=mode, step=step, shape=(2,), dtype="float32", key=("p", "7r", 0)
    )


def tensors(*names: str, recorded: tuple[TensorElements, ...] = ()) -> Tensors:
    return Tensors(
        lambda: [series(name) for name in names],
        list_elements=lambda _: list(recorded),
        read_elements=lambda one: (one.step, one.rank, one.mode),
        wait=lambda *_: None,
    )


def test_ranks_and_modes_are_chosen() -> None:
    recorded = [elements(n, rank, mode) for n in (1, 3) for rank in (0, 2)
                for mode in ("TRAIN", "EVAL")]  # fmt: skip
    several = tensors("w", recorded=tuple(recorded))
    assert several.value(3, rank=2, mode="EVAL") == (3, 2, "EVAL")
    assert several.values(rank=0, mode="TRAIN") == {1: (1, 0, "TRAIN"), 3: (3, 0, "TRAIN")}
    for arguments in ({}, {"rank": 0}, {"mode": "EVAL"}):
        with pytest.raises(UsageError) as error:
            several.values(**arguments)
        assert "was recorded on the ranks" in str(error.value)
        assert "Choose one, such as rank=0 and mode='TRAIN'" in str(error.value)
    one = tensors("w", recorded=(elements(1, 2, "EVAL"),))
    assert one.value(1) == (1, 2, "EVAL")
    with pytest.raises(UsageError) as error:
        one.value(2)
    assert str(error.value).endswith(", only at these steps: 1.")


def test_tensors_without_elements() -> None:
    with pytest.raises(UsageError) as error:
        tensors("w").value(1)
    assert "were not recorded. Run the job with `--tensors-raw w`." in str(error.value)
    with pytest.raises(UsageError, match="and the pattern selects 7: a, b, c, d, e, …"):
        tensors(*"abcdefg").values()
    with pytest.raises(UsageError, match="and the pattern selects 0: none"):
        tensors().values()


def test_a_run_without_tensors(path: Path) -> None:
    with pytest.raises(UsageError, match="and the pattern selects 0: none"):
        stepscope.open(path).tensors("fc.weight").value(0)
