"""Rows of several traces are stored together, those of `traces` last."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.importers.kineto import Identity, import_trace
from stepscope.importers.kineto.tables import Rows, Storing
from stepscope.store import RunWriter
from stepscope.testing import RunBuilder
from tests.support.drawn_trace import training
from tests.support.kineto_files import trace


class Writer(RunWriter):
    """Writer that only notes its appends; one table cannot be written."""

    def __init__(self, broken: str = "") -> None:
        self.appends: list[tuple[str, list[int]]] = []
        self.durable_counts: list[int] = []
        """Appends before each call of `sync`."""
        self._broken = broken

    def deferring_sync(self) -> Any:
        return nullcontext()

    def sync(self) -> None:
        self.durable_counts.append(len(self.appends))

    def clone(self) -> Any:
        return nullcontext(self)

    def append(self, table: str, columns: Any) -> int:
        if table == self._broken:
            raise OSError(28, "No space left on device")
        self.appends.append((table, columns["trace"].tolist()))
        return len(columns["trace"])


def rows(*traces: int) -> Rows:
    return {"trace": np.array(traces, dtype=np.int64)}


@pytest.mark.parametrize("lanes", [0, 1])
def test_traces_share_a_segment(lanes: int) -> None:
    writer = Writer()
    with Storing(writer, 4, 100, lanes=lanes) as storing:
        for trace in (1, 2, 3):
            storing.append([("tracks", rows(trace)), ("traces", rows(trace))])
    assert writer.appends == [
        ("tracks", [1, 2]), ("traces", [1, 2]), ("tracks", [3]), ("traces", [3]),
    ]  # fmt: skip
    assert writer.durable_counts == [1, 2, 3, 4]  # the other tables before `traces`


def test_segments_of_a_window_are_durable_before_they_have_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss must not leave a segment that is cut short in the run of a job."""
    run = RunBuilder(tmp_path / "run").write()
    durable, published = set(), []

    def publish(source: Path, target: Path) -> None:
        published.append((target, source.stat().st_ino in durable))
        source.rename(target)
        source.touch()

    monkeypatch.setattr(os, "fsync", lambda file: durable.add(os.fstat(file).st_ino))
    monkeypatch.setattr(os, "link", publish)
    (tmp_path / "window.json").write_bytes(trace(*training()))
    with RunWriter(run, "node") as writer:
        import_trace(tmp_path / "window.json", writer, Identity(name="window"), scratch=tmp_path)
    tables = {target.parts[-3] for target, _ in published}
    assert {"operators", "tracks", "traces"} <= tables
    assert [target for target, is_durable in published if not is_durable] == []


def test_the_largest_table_is_stored_first() -> None:
    writer = Writer()
    with Storing(writer, 100, 5) as storing:
        for trace in (1, 2):
            tables = {"tracks": 1, "operators": 3, "traces": 1}
            storing.append((table, rows(*[trace] * count)) for table, count in tables.items())
        storing.wait()
        assert writer.appends == [("operators", [1] * 3 + [2] * 3)]
    assert writer.appends[1:] == [("tracks", [1, 2]), ("traces", [1, 2])]


def test_a_single_trace_is_stored_at_once() -> None:
    writer = Writer()
    with Storing(writer) as storing:
        for table in ("tracks", "operators"):
            storing.append([(table, rows(1))])
            storing.wait()
            assert writer.appends[-1] == (table, [1])


def test_a_table_that_appears_later_is_stored_before_the_traces() -> None:
    writer = Writer()
    with Storing(writer, 100, 100) as storing:
        storing.append([("tracks", rows(1)), ("traces", rows(1))])
        storing.append([("kernels", rows(2)), ("traces", rows(2))])
    assert [table for table, _ in writer.appends] == ["tracks", "kernels", "traces"]


@pytest.mark.parametrize(("broken", "lanes"), [("kernels", 0), ("kernels", 1), ("operators", 2)])
def test_no_trace_is_complete_after_an_error(broken: str, lanes: int) -> None:
    writer = Writer(broken)
    storing = Storing(writer, 100, 100, lanes=lanes)
    with pytest.raises(OSError, match="No space"), storing:
        storing.append([("tracks", rows(1)), (broken, rows(1)), ("traces", rows(1))])
    assert [table for table, _ in writer.appends] == ["tracks"]


def test_traces_of_a_group_have_consecutive_numbers() -> None:
    with Storing(Writer()) as storing, Storing(Writer()) as another:
        first, second = storing.next_trace(), storing.next_trace()
        assert second == first + 1
        assert abs(another.next_trace() - first) > 1
