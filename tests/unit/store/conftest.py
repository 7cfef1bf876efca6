"""Fixtures: an empty run, rows to write into it, and databases of a test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import DictColumn, RunWriter, create_run

INFO = RunInfo(
    schema_version=SCHEMA_VERSION,
    run_id="r1",
    created_ns=1_700_000_000_000_000_000,
    command=["python", "train.py"],
    working_directory="/home/u",
    stepscope_version="0",
)

Columns = dict[str, Any]


def span_rows(
    seqs: Sequence[int], *, node: str = "n0", names: Sequence[str] | None = None, **changed: Any
) -> Columns:
    """Build one span per number: it starts there and lasts 5 ns; every third has no end."""
    seq = np.array(seqs, dtype=np.int64)
    count = len(seq)
    return {
        "node": DictColumn.constant(node, count),
        "process": DictColumn.constant("1-2-3", count),
        "log": DictColumn.constant("7c", count),
        "seq": seq,
        "kind": DictColumn.encode(["step" if number % 2 else "fetch" for number in seqs]),
        "name": DictColumn.encode(names or [f"span {number % 7}" for number in seqs]),
        "labels": DictColumn.encode([None if number % 2 else '{"a": 1}' for number in seqs]),
        "start_ns": seq,
        "end_ns": np.ma.MaskedArray(seq + 5, mask=seq % 3 == 0),
        "depth": np.zeros(count, dtype=np.int16),
        "flags": np.zeros(count, dtype=np.int16),
        "value": seq * 10,
        **changed,
    }


def sample_rows(times: Sequence[int], metrics: Sequence[str], *, node: str = "n0") -> Columns:
    """Build one sample per time, of the metric at the same index."""
    count = len(times)
    return {
        "node": DictColumn.constant(node, count),
        "process": DictColumn.constant("1-2-3", count),
        "log": DictColumn.constant("7c", count),
        "seq": np.arange(count),
        "t_ns": np.array(times, dtype=np.int64),
        "metric": DictColumn.encode(metrics),
        "device": DictColumn.constant("", count),
        "value": np.array(times, dtype=np.float64),
    }


@pytest.fixture(autouse=True)
def own_databases(
    shared_databases: Callable[..., duckdb.DuckDBPyConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open databases instead of sharing one: tests of the store limit them and break them."""
    monkeypatch.setattr(duckdb, "connect", shared_databases)


@pytest.fixture
def info() -> RunInfo:
    return INFO


@pytest.fixture
def spans() -> Callable[..., Columns]:
    return span_rows


@pytest.fixture
def samples() -> Callable[..., Columns]:
    return sample_rows


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    create_run(path, INFO)
    return path


@pytest.fixture
def writer(run: Path) -> Iterator[RunWriter]:
    with RunWriter(run, "n0") as writer:
        yield writer
