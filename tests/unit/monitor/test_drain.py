"""Spools with content that no process of a job writes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from stepscope.monitor.drain import SpoolDrain
from stepscope.spool import (
    FIRST_SEQUENCE_WORD,
    DropCounts,
    Journal,
    Kind,
    SpanLog,
    SpoolTree,
    make_meta,
)  # fmt: skip
from tests.conftest import _nothing_stored

LIMIT_BYTES = 1 << 26
PROCESS = "7-1-0"


@pytest.fixture
def drain(tmp_path: Path) -> SpoolDrain:
    """Make a drain of a spool with one process, whose log has one record."""
    tree = SpoolTree(str(tmp_path), LIMIT_BYTES)
    directory = tmp_path / f"p-{PROCESS}"
    directory.mkdir()
    log = SpanLog(tree, str(directory), 7, "c", DropCounts.create(str(directory)))
    log.write(make_meta(1, Kind.METRIC), 1_000, 2_000, 3)
    return SpoolDrain(tree, node="n", epoch_offset_ns=0, stored=_nothing_stored)


@pytest.mark.parametrize(
    "line",
    [
        {"k": "name"},
        {"k": "name", "id": [1], "text": "a", "labels": None},
        {"k": "name", "id": 1, "text": None, "labels": None},
        {"k": "process", "command": "train.py"},
        {"k": "process", "rank": "first"},
        {"k": "fact", "fact": "source", "text": 5},
        {"k": "note"},
    ],
)
def test_a_line_of_another_form_costs_that_line(
    drain: SpoolDrain, tmp_path: Path, line: dict[str, object]
) -> None:
    journal = Journal(str(tmp_path / f"p-{PROCESS}" / "journal.jsonl"))
    journal.write(str(line.pop("k")), **line)
    journal.write("name", id=1, text="gpu_busy_ratio", labels="not JSON")
    columns = drain.columns("metrics", drain.collect(final=True)["metrics"])
    assert columns["metric"].decode().tolist() == ["gpu_busy_ratio"]
    assert columns["device"].decode().tolist() == [""]


def test_a_deeply_nested_line(drain: SpoolDrain, tmp_path: Path) -> None:
    path = tmp_path / f"p-{PROCESS}" / "journal.jsonl"
    path.write_bytes(b"[" * 100_000 + b"\n")
    Journal(str(path)).write("note", text="kept")
    drain.collect(final=True)
    assert drain.processes[PROCESS].notes == ["kept"]


def test_names_and_files_that_are_not_of_a_process(drain: SpoolDrain, tmp_path: Path) -> None:
    (tmp_path / "p-unknown").mkdir()
    os.mkfifo(tmp_path / f"p-{PROCESS}" / "8c-0.log")
    (tmp_path / f"p-{PROCESS}" / "9c-0.log").mkdir()
    assert len(drain.collect(final=True)["metrics"]) == 1
    assert list(drain.processes) == [PROCESS]


def test_a_sequence_beyond_64_bits(drain: SpoolDrain, tmp_path: Path) -> None:
    (path,) = (tmp_path / f"p-{PROCESS}").glob("*.log")
    words = np.fromfile(path, dtype=np.uint64)
    words[FIRST_SEQUENCE_WORD] = 2**64 - 1
    words.tofile(path)
    assert not any(drain.collect(final=True).values())
