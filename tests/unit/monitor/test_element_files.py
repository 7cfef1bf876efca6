"""Elements of tensors in a spool become files and rows, exactly once, whatever is interrupted."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stepscope.monitor.drain import SpoolDrain
from stepscope.schema import SCHEMA_VERSION
from stepscope.spool import TENSOR_ELEMENTS, DropCounts, ElementBudget, Journal, RowLog, SpoolTree
from stepscope.store import RunWriter, create_run, open_run
from tests.support.staged_runs import INFO
from tests.unit.monitor.test_row_files import PROCESS, Stored

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Make a spool with one process, whose first name is that of a tensor."""
    path = tmp_path / f"p-{PROCESS}"
    path.mkdir()
    labels = json.dumps({"collection": "weights", "shape": [2, 3], "dtype": "float32"})
    Journal(str(path / "journal.jsonl")).write("name", id=1, text="layer.weight", labels=labels)
    return path


def write(directory: Path, *steps: int, limit_bytes: int = 1 << 26) -> list[bool]:
    tree = SpoolTree(str(directory.parent), limit_bytes)
    log = RowLog(tree, str(directory), 7, DropCounts.create(str(directory)))
    return [
        log.write(
            1,
            [("tensor", "q", 1, array("q", [1]).tobytes()),
             ("elements", "B", VALUES.nbytes, (VALUES + step).tobytes())],
            table=TENSOR_ELEMENTS, t_ns=1000 + step, step=step, mode="TRAIN",
        )
        for step in steps
    ]  # fmt: skip


def drain_into(
    run: Path, directory: Path, *, stored: tuple[int, ...] = (), until: str = ""
) -> None:
    """Move everything into a run as the monitor does, up to a point at which it is killed."""
    tree = SpoolTree(str(directory.parent), 1 << 26)
    sequences = Stored(tensor_elements=list(stored))
    drain = SpoolDrain(tree, node="n", epoch_offset_ns=500, stored=sequences)
    chunks = drain.collect(final=True)[TENSOR_ELEMENTS]
    with RunWriter(run, "n") as writer:
        for key, content in drain.elements(TENSOR_ELEMENTS, chunks):
            writer.put_tensor(key, content)
        if until == "files" or not chunks:
            return
        writer.append(TENSOR_ELEMENTS, drain.columns(TENSOR_ELEMENTS, chunks))
        if until != "rows":
            drain.commit(chunks)


@pytest.mark.parametrize("until", ["files", "rows", ""])
def test_each_tensor_is_stored_once(tmp_path: Path, directory: Path, until: str) -> None:
    run = tmp_path / "run"
    create_run(run, msgspec.structs.replace(INFO, schema_version=SCHEMA_VERSION))
    assert write(directory, 10, 20) == [True, True]
    drain_into(run, directory, until=until)
    drain_into(run, directory, stored=() if until == "files" else (0, 1))
    rows = open_run(run).table("tensor_elements", order_by="seq")
    assert rows["step"].tolist() == [10, 20]
    assert rows["shape"].tolist() == ["2x3", "2x3"]
    for seq, (step, file) in enumerate(zip(rows["step"], rows["file"], strict=True)):
        content = open_run(run).tensor(PROCESS, "7r", seq)
        assert (run / file).read_bytes() == content
        assert np.array_equal(np.load(run / file), VALUES + step)
    assert not list(directory.glob("*.rows"))


def test_a_spool_without_room(directory: Path) -> None:
    assert write(directory, 1, limit_bytes=1) == [False]


def test_processes_share_a_limit(tmp_path: Path) -> None:
    first, second = (ElementBudget(str(tmp_path), 100) for _ in range(2))
    assert [first.reserve(60), second.reserve(50), second.reserve(40), first.reserve(1)] == [
        True, False, True, False,
    ]  # fmt: skip
