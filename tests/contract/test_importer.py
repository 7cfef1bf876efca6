"""Contract of the importer of Kineto; those of other formats are with their tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from stepscope.importers.kineto import KinetoImporter
from stepscope.schema import TABLES
from stepscope.testing.importer_contract import ImporterContract
from tests.support.kineto_files import (
    Tables,
    imported_file,
    kernel,
    launch,
    pretty,
    span,
    trace,
    training,
)

EVENTS = [
    *training(),
    launch(7_000, 90, 9, category="cuda_driver"),
    kernel(7_200, 60, 9, category="gpu_memset", name="Memset"),
    span("cuda_sync", "Stream Sync", 7_400, 50, pid=0, tid=7),
]


class TestKineto(ImporterContract):
    importer = KinetoImporter

    def write(self, directory: Path) -> Path:
        path = directory / "trace"
        path.write_bytes(trace(*EVENTS, deviceProperties=[{"id": 0, "name": "A100"}]))
        return path

    def test_a_trace_becomes_visible_last(self, path: Path) -> None:
        assert imported_file(path).written[-1] == "traces"

    def test_every_event_is_one_row(self, path: Path) -> None:
        tables = imported_file(path)
        ids = [number for name in event_tables(tables) for number in tables.by_id(name)]
        event_count = sum(event["ph"] not in {"M", "s", "f"} for event in EVENTS)
        assert len(ids) == len(set(ids)) == event_count
        assert max(ids) < tables.one("traces")["event_count"]

    def test_every_range_is_drawn(self, path: Path) -> None:
        """Each level of detail holds all ranges of its track, of every kind."""
        tables = imported_file(path)
        names = [name for name in event_tables(tables) if name != "memory_events"]
        expected = Counter(row["track"] for name in names for row in tables.rows(name))
        levels = tables.levels()
        assert {track for track, _ in levels} == set(expected)
        for (track, level), (count, _) in levels.items():
            assert count == expected[track], (track, level)


class TestIndentedKineto(TestKineto):
    def write(self, directory: Path) -> Path:
        path = directory / "trace"
        path.write_bytes(pretty(trace(*EVENTS)))
        return path


def event_tables(tables: Tables) -> Iterator[str]:
    """Yield the tables of the trace that hold events."""
    for name in tables.counts():
        if {"id", "track"} <= set(TABLES[name].column_names) and name != "timeline":
            yield name
