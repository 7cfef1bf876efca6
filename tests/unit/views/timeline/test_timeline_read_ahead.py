"""Data that was read ahead is not read again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepscope.run import Run
from stepscope.store import open_run
from stepscope.store.queries import TableQueries
from stepscope.timeline.trace import get_timelines
from tests.support.drawn_timelines import import_run, small_blocks, view
from tests.support.kineto_files import kernel, launch, op


def test_a_wide_window_of_a_run_that_was_read_ahead_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [op("first", 0, 10)]
    for at in range(0, 1_000_000, 1_000):
        events += [launch(at, 5, at + 1), kernel(at + 20, 30, at + 1)]
    with small_blocks(levels=True, slice_rows=10**6):
        import_run(tmp_path / "run", events)

    def draw(run: Run) -> list[Any]:
        view(run, "timeline")
        queried_tables.clear()
        return [view(run, f"timeline-{name}", pixels=100) for name in ("slices", "counters")]

    queried_tables: list[str] = []
    run_query = TableQueries.run

    def record_query(
        self: TableQueries, tables: Sequence[str], query: Callable[[Any], Any], node: str | None
    ) -> Any:
        queried_tables.extend(tables)
        return run_query(self, tables, query, node)

    monkeypatch.setattr(TableQueries, "run", record_query)
    cold = draw(Run(open_run(tmp_path / "run")))
    assert queried_tables
    run = Run(open_run(tmp_path / "run"))
    assert get_timelines(run).read_ahead(60)
    assert draw(run) == cold
    assert set(queried_tables) <= {"tracks"}, "names of tracks, and no event"
