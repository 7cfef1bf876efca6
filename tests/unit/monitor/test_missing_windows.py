"""Notes on detailed windows that are not in the run, from the run's own records."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stepscope.monitor.config import WindowSettings
from stepscope.monitor.windows.service import WindowService
from stepscope.spool import SpoolTree
from stepscope.store import RunWriter
from stepscope.testing import RunBuilder
from tests.support.store_rows import spans

ENDED = "1-2-3"
"""The process of the rows, which runs no longer."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with the spans of three windows: the first was closed, the others were not."""
    builder = RunBuilder(tmp_path / "run")
    builder.rank()
    path = builder.write()
    rows = spans([1, 3, 5])
    kind = type(rows["kind"]).constant("window", 3)
    with RunWriter(path, "n0") as writer:
        writer.append("spans", {**rows, "kind": kind, "value": rows["seq"]})
    return path


def finish(run: Path, spool: Path) -> list[str]:
    spool.mkdir(exist_ok=True)
    service = WindowService(
        WindowSettings(enabled=False),
        SpoolTree(str(spool), 1 << 26),
        run=str(run),
        node="n0",
        peer=None,
        job_pid=0,
        started_ns=time.monotonic_ns(),
    )
    assert service.finish() == 0
    return service.notes


def test_windows_of_a_killed_process_are_named(run: Path, tmp_path: Path) -> None:
    assert finish(run, tmp_path / "spool") == [
        f"detailed window {number} of process 1 was not finished when the process ended"
        for number in (1, 3, 5)
    ]


def test_a_window_with_an_unreadable_file(run: Path, tmp_path: Path) -> None:
    (run / "raw").mkdir()
    (run / "raw" / f"{ENDED}-window-3_1.json").touch()
    notes = finish(run, tmp_path / "spool")
    assert "the file of detailed window 3 of process 1 cannot be read and is kept in raw/" in notes
    assert len(notes) == 3
