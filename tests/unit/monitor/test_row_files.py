"""Rows of tensors in a spool become rows of tables, exactly once, whatever is interrupted."""

from __future__ import annotations

import json
import math
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stepscope.monitor.drain import SpoolDrain
from stepscope.spool import POWER_BINS, DropCounts, Journal, RowLog, SpoolTree
from stepscope.store import DictColumn

PROCESS = "7-1-0"
TABLES = ("tensor_statistics", "tensor_histograms")
STATISTICS = {
    "element_count": 5, "nan_count": 1, "infinite_count": 1, "zero_count": 1,
    "min": -3, "max": 4, "sum": 1, "deviation_square_sum": 25 - 1 / 3, "abs_sum": 7,
    "product": math.nan,
    "update_square_sum": 0.25,
}  # fmt: skip
"""Of the elements -3, 0, 4, NaN and infinity."""
ONE, FOUR, MINUS_THREE = 127, 127 + 2, 256 + 127 + 1
"""Sign and exponent of 1, 4 and -3."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Make a spool with one process, whose first name is that of a tensor."""
    path = tmp_path / f"p-{PROCESS}"
    path.mkdir()
    labels = json.dumps({"collection": "weights", "shape": [5], "dtype": "float32"})
    Journal(str(path / "journal.jsonl")).write("name", id=1, text="layer.weight", labels=labels)
    return path


def new_log(directory: Path, limit_bytes: int = 1 << 26) -> RowLog:
    tree = SpoolTree(str(directory.parent), limit_bytes)
    return RowLog(tree, str(directory), 7, DropCounts.create(str(directory)))


def write(log: RowLog, step: int, count: int = 1) -> None:
    powers = array("i", [0] * POWER_BINS)
    powers[0] = powers[FOUR] = powers[MINUS_THREE] = 1
    log.write(
        count,
        [
            ("tensor", "q", 1, array("q", [1] * count).tobytes()),
            ("statistics", "d", len(STATISTICS), array("d", STATISTICS.values()).tobytes() * count),
            ("powers", "i", POWER_BINS, powers.tobytes() * count),
        ],
        statistics=list(STATISTICS),
        t_ns=1000 + step,
        step=step,
        mode="TRAIN",
    )


class Stored:
    """Sequence numbers that the store has, by table."""

    def __init__(self, **rows: list[int]) -> None:
        self.rows = rows

    def __call__(
        self, table: str, process: str, log: str, first: int, count: int
    ) -> NDArray[np.int64]:
        assert (process, log) == (PROCESS, "7r") or table not in TABLES
        return np.array([n for n in self.rows.get(table, []) if first <= n < first + count])


def new_drain(directory: Path, **stored: list[int]) -> SpoolDrain:
    tree = SpoolTree(str(directory.parent), 1 << 26)
    return SpoolDrain(tree, node="n", epoch_offset_ns=500, stored=Stored(**stored))


def read(drain: SpoolDrain, table: str) -> dict[str, list[Any]]:
    columns = drain.columns(table, drain.collect(final=True)[table])
    return {
        name: (column.decode() if isinstance(column, DictColumn) else column).tolist()
        for name, column in columns.items()
    }


def test_statistics(directory: Path) -> None:
    log = new_log(directory)
    write(log, 10)
    write(log, 20, count=2)
    columns = read(new_drain(directory), "tensor_statistics")
    assert columns["seq"] == [0, 1, 2]
    assert columns["step"] == [10, 20, 20]
    assert columns["t_ns"] == [1510, 1520, 1520]
    assert set(columns["tensor"]) == {"layer.weight"}
    row = {name: values[0] for name, values in columns.items()}
    assert (row["collection"], row["shape"], row["dtype"]) == ("weights", "5", "float32")
    finite = np.array([-3, 0, 4])
    assert row["mean"] == pytest.approx(finite.mean())
    assert row["std"] == pytest.approx(finite.std())
    assert (row["l1"], row["update_l2"]) == (7, 0.5)
    assert row["l2"] == pytest.approx(5)
    assert row["product"] is None


def test_histograms(directory: Path) -> None:
    write(new_log(directory), 10, count=2)
    columns = read(new_drain(directory), "tensor_histograms")
    bins = list(zip(columns["low"], columns["high"], columns["count"], strict=True))
    around_zero = (-(2.0**-28), 2.0**-28)  # 2**(x - 30) with the largest in [2**x, 2**(x + 1))
    assert bins == [(-4, -2, 1), (*around_zero, 1), (4, 8, 1)] * 2
    assert len(set(columns["seq"])) == len(bins)


def test_a_file_is_removed_once_both_tables_have_its_rows(directory: Path) -> None:
    write(new_log(directory), 10)
    drain = new_drain(directory)
    chunks = drain.collect(final=True)
    drain.commit(chunks["tensor_statistics"])
    assert len(list(directory.glob("*.rows"))) == 1
    assert not drain.processes[PROCESS].drained
    again = drain.collect(final=True)
    assert [len(again[table]) for table in TABLES] == [0, 1]
    drain.commit(again["tensor_histograms"])
    assert not list(directory.glob("*.rows"))
    assert drain.processes[PROCESS].drained


@pytest.mark.parametrize(
    ("stored", "missing"),
    [
        ({"tensor_statistics": [0]}, [0, 1]),
        ({"tensor_histograms": [31]}, [1, 0]),
        ({"tensor_statistics": [0], "tensor_histograms": [31]}, [0, 0]),
    ],
)
def test_a_new_drain_stores_what_a_killed_one_did_not(
    directory: Path, stored: dict[str, list[int]], missing: list[int]
) -> None:
    write(new_log(directory), 10)
    chunks = new_drain(directory, **stored).collect(final=True)
    assert [len(chunks[table]) for table in TABLES] == missing
    assert len(list(directory.glob("*.rows"))) == any(missing)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: b"",
        lambda data: data.replace(b'"count": 1', b'"count": 9'),
        lambda data: data.replace(b'"first": 0', b'"first": "a"'),
        lambda data: data.replace(b"tensor", b"unsort"),
        lambda data: data.replace(b"abs_sum", b"abs_som"),
        lambda data: b"[" * 100_000 + b"\n" + data,
    ],
    ids=[
        "cut",
        "longer",
        "empty",
        "wrong count",
        "wrong type",
        "other column",
        "other statistic",
        "deep",
    ],
)
def test_a_damaged_file_costs_its_rows(directory: Path, damage: Any) -> None:
    log = new_log(directory)
    write(log, 10)
    (path,) = directory.glob("*.rows")
    path.write_bytes(damage(path.read_bytes()))
    write(log, 20)
    drain = new_drain(directory)
    columns = read(drain, "tensor_statistics")
    assert columns["step"] == [20]
    drain.collect()
    assert drain.processes[PROCESS].notes == [
        "the statistics of tensors in 7r-0.rows cannot be read"
    ]


def test_a_file_that_is_not_finished_is_not_read(directory: Path) -> None:
    write(new_log(directory), 10)
    (path,) = directory.glob("*.rows")
    path.rename(f"{path}.new")
    assert not any(new_drain(directory).collect(final=True)[table] for table in TABLES)


def test_rows_without_room_are_counted(directory: Path) -> None:
    """A fourth of the spool is kept for steps and phases."""
    log = new_log(directory, limit_bytes=60_000)
    for step in range(5):
        write(log, step, count=10)  # 10 * (8 + 11 * 8 + 512 * 4) bytes and a header
    drain = new_drain(directory)
    assert len(read(drain, "tensor_statistics")["step"]) == 10
    assert drain.processes[PROCESS].dropped == {"spool_limit": 40}
