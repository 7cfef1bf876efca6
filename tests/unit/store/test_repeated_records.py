"""Tables of which several writers wrote the same records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.store import RunWriter, open_run
from stepscope.store.queries import TableQueries


def test_records_that_two_writers_stored_at_once_are_read_once(
    run: Path, spans: Callable[..., Any]
) -> None:
    """Neither found the rows of the other when it looked, as without a lock on the spool."""
    first, second = RunWriter(run, "n0"), RunWriter(run, "n0")
    first.append("spans", spans(range(1500)))
    second.append("spans", spans(range(1400, 1600)))
    first.append("spans", spans(range(1600, 1700)))
    RunWriter(run, "n1").append("spans", spans(range(3), node="n1"))
    reader = open_run(run)
    rows = reader.table("spans", ["node", "seq"])
    assert rows["seq"].tolist() == [*range(1700), *range(3)]
    assert reader.row_count("spans") == 1703
    query = "SELECT seq FROM spans WHERE start_ns >= 1450 AND start_ns < 1550 ORDER BY seq"
    assert reader.sql(query, within=(1450, 1550))["seq"].tolist() == list(range(1450, 1550))


def test_only_the_table_of_a_second_writer_is_searched_for_repeats(
    run: Path, spans: Callable[..., Any], samples: Callable[..., Any], monkeypatch: Any
) -> None:
    """A run with one monitor pays nothing, and later segments of a second one are in order."""
    searched: list[str] = []
    search = TableQueries._has_repeats

    def note(self: TableQueries, table: str, segments: Any) -> bool:
        searched.append(table)
        return search(self, table, segments)

    monkeypatch.setattr(TableQueries, "_has_repeats", note)
    writer = RunWriter(run, "n0")
    for start in range(0, 60, 20):
        writer.append("spans", spans(range(start, start + 20)))
        writer.append("metrics", samples(range(start, start + 20), ["cpu"] * 20))
    reader = open_run(run)
    assert reader.row_count("spans") == 60
    assert searched == []
    RunWriter(run, "n0").append("spans", spans(range(60, 80)))
    assert reader.table("spans", ["seq"])["seq"].tolist() == list(range(80))
    assert reader.row_count("metrics") == 60
    assert searched == ["spans"]
