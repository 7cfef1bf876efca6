"""Contract of an importer of trace files. Inherit `ImporterContract` and provide a file."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.errors import UnreadableTraceError
from stepscope.schema import QUALITY_CHECKS, TABLES
from tests.support.kineto_files import (
    Row,
    Tables,
    imported_file,
    kernel,
    launch,
    pretty,
    span,
    trace,
    training,
)

LINKS = {
    ("operators", "parent"): "operators",
    ("operators", "python"): "python_functions",
    ("operators", "forward"): "operators",
    ("runtime_calls", "operator"): "operators",
    ("runtime_calls", "python"): "python_functions",
    ("kernels", "launch"): "runtime_calls",
    ("kernels", "operator"): "operators",
    ("copies", "launch"): "runtime_calls",
    ("copies", "operator"): "operators",
    ("annotations", "python"): "python_functions",
    ("python_functions", "parent"): "python_functions",
    ("python_functions", "module"): "python_functions",
    ("memory_events", "operator"): "operators",
}
"""Columns that refer to a row, with the table of that row."""


class ImporterContract:
    """Requirements on an importer, tested with a file that has events of all kinds."""

    @pytest.fixture
    def content(self) -> bytes:
        raise NotImplementedError("provide a complete file of the format")

    @pytest.fixture
    def event_count(self) -> int:
        raise NotImplementedError("provide the number of its events except metadata and arrows")

    def import_file(self, path: Path) -> Tables:
        """Return the rows that the importer creates from a file."""
        raise NotImplementedError

    @pytest.fixture
    def path(self, tmp_path: Path, content: bytes) -> Path:
        path = tmp_path / "trace"
        path.write_bytes(content)
        return path

    def test_the_same_file_twice_gives_the_same_rows(self, path: Path) -> None:
        assert self.import_file(path) == self.import_file(path)

    def test_the_format_is_detected_from_the_content(self, path: Path, content: bytes) -> None:
        expected = self.import_file(path)
        path.write_bytes(gzip.compress(content))
        assert self.import_file(path) == expected

    def test_a_trace_becomes_visible_last(self, path: Path) -> None:
        assert self.import_file(path).written[-1] == "traces"

    def test_the_file_is_not_changed(self, path: Path, content: bytes) -> None:
        self.import_file(path)
        assert path.read_bytes() == content
        assert list(path.parent.iterdir()) == [path]

    def test_every_event_is_one_row(self, path: Path, event_count: int) -> None:
        tables = self.import_file(path)
        ids = [number for name in self.event_tables(tables) for number in tables.by_id(name)]
        assert len(ids) == len(set(ids)) == event_count
        assert max(ids) < tables.one("traces")["event_count"]

    def test_every_range_is_drawn(self, path: Path) -> None:
        """Each level of detail holds all ranges of its track, of every kind."""
        tables = self.import_file(path)
        names = [name for name in self.event_tables(tables) if name != "memory_events"]
        expected = Counter(row["track"] for name in names for row in tables.rows(name))
        levels = tables.levels()
        assert {track for track, _ in levels} == set(expected)
        for (track, level), (count, _) in levels.items():
            assert count == expected[track], (track, level)

    def test_links_refer_to_existing_rows(self, path: Path) -> None:
        tables = self.import_file(path)
        for (table, column), target in LINKS.items():
            ids = {row[column] for row in tables.rows(table)} - {None}
            assert ids <= set(tables.by_id(target)), (table, column)
        tracks = {row["track"] for row in tables.rows("tracks")}
        for table in self.event_tables(tables):
            assert {row["track"] for row in tables.rows(table)} <= tracks

    def test_ranges_are_inside_the_trace(self, path: Path) -> None:
        tables = self.import_file(path)
        trace_row = tables.one("traces")
        for row in self.ranges(tables):
            assert row["duration_ns"] >= 0
            assert trace_row["start_ns"] <= row["start_ns"]
            assert row["start_ns"] + row["duration_ns"] <= trace_row["end_ns"]

    def test_quality_issues_are_documented(self, path: Path, content: bytes) -> None:
        for cut in (len(content), len(content) // 2):
            path.write_bytes(content[:cut])
            assert set(self.import_file(path).quality) <= set(QUALITY_CHECKS)

    def test_a_truncated_file_is_reported(self, path: Path, content: bytes) -> None:
        path.write_bytes(content[: len(content) // 2])
        tables = self.import_file(path)
        assert tables.outcome is not None
        assert tables.outcome.lost
        assert tables.quality["truncated"]["count"] == 1

    @pytest.mark.parametrize("foreign", [b"", b"\n", b"what?", b"\x89PNG\r\n\x1a\n" * 99, b"{}"])
    def test_a_foreign_file_is_rejected_in_one_sentence(self, path: Path, foreign: bytes) -> None:
        path.write_bytes(foreign)
        with pytest.raises(UnreadableTraceError) as raised:
            self.import_file(path)
        assert str(path) in str(raised.value)
        assert "\n" not in str(raised.value)

    @staticmethod
    def event_tables(tables: Tables) -> Iterator[str]:
        """Yield the tables of the trace that hold events."""
        for name in tables.counts():
            if {"id", "track"} <= set(TABLES[name].column_names) and name != "timeline":
                yield name

    @staticmethod
    def ranges(tables: Tables) -> Iterator[Row]:
        """Yield all rows of events with a duration, except those of `other_events`."""
        for name in tables.counts():
            is_excluded = name in {"other_events", "timeline"}
            if "duration_ns" in TABLES[name].column_names and not is_excluded:
                yield from tables.rows(name)


EVENTS = [
    *training(),
    launch(7_000, 90, 9, category="cuda_driver"),
    kernel(7_200, 60, 9, category="gpu_memset", name="Memset"),
    span("cuda_sync", "Stream Sync", 7_400, 50, pid=0, tid=7),
]


class TestKineto(ImporterContract):
    @pytest.fixture
    def content(self) -> bytes:
        return trace(*EVENTS, deviceProperties=[{"id": 0, "name": "A100"}])

    @pytest.fixture
    def event_count(self) -> int:
        return sum(event["ph"] not in {"M", "s", "f"} for event in EVENTS)

    def import_file(self, path: Path) -> Tables:
        return imported_file(path)


class TestIndentedKineto(TestKineto):
    @pytest.fixture
    def content(self) -> bytes:
        return pretty(trace(*EVENTS))
