"""What every importer of a trace file must do. Inherit `ImporterContract` and give it a file."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.errors import UnreadableTraceError
from stepscope.schema import QUALITY_CHECKS, TABLES
from tests.support.kineto_files import Row, Tables, imported_file, pretty, trace, training

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
"""Columns that name a row, and the table it is in."""


class ImporterContract:
    """The promises of an importer, on a file with a little of everything."""

    @pytest.fixture
    def content(self) -> bytes:
        raise NotImplementedError("a whole file of the format")

    def import_file(self, path: Path) -> Tables:
        """The rows that the importer makes of a file."""
        raise NotImplementedError

    @pytest.fixture
    def path(self, tmp_path: Path, content: bytes) -> Path:
        path = tmp_path / "recording"
        path.write_bytes(content)
        return path

    def test_the_same_file_twice_gives_the_same_rows(self, path: Path) -> None:
        assert self.import_file(path) == self.import_file(path)

    def test_the_content_matters_and_not_the_name(self, path: Path, content: bytes) -> None:
        wanted = self.import_file(path)
        path.write_bytes(gzip.compress(content))
        assert self.import_file(path) == wanted

    def test_a_trace_becomes_visible_last(self, path: Path) -> None:
        assert self.import_file(path).written[-1] == "traces"

    def test_the_file_is_left_as_it_is(self, path: Path, content: bytes) -> None:
        self.import_file(path)
        assert path.read_bytes() == content
        assert list(path.parent.iterdir()) == [path]

    def test_every_event_is_one_row(self, path: Path) -> None:
        tables = self.import_file(path)
        ids = [number for name in self.event_tables(tables) for number in tables.by_id(name)]
        assert len(ids) == len(set(ids))
        assert max(ids) < tables.one("traces")["event_count"]

    def test_links_lead_somewhere(self, path: Path) -> None:
        tables = self.import_file(path)
        for (table, column), target in LINKS.items():
            named = {row[column] for row in tables.rows(table)} - {None}
            assert named <= set(tables.by_id(target)), (table, column)
        tracks = {row["track"] for row in tables.rows("tracks")}
        for table in self.event_tables(tables):
            assert {row["track"] for row in tables.rows(table)} <= tracks

    def test_ranges_lie_in_the_recording(self, path: Path) -> None:
        tables = self.import_file(path)
        whole = tables.one("traces")
        for row in self.ranges(tables):
            assert row["duration_ns"] >= 0
            assert whole["start_ns"] <= row["start_ns"]
            assert row["start_ns"] + row["duration_ns"] <= whole["end_ns"]

    def test_a_doubt_has_a_name_that_is_explained(self, path: Path, content: bytes) -> None:
        for cut in (len(content), len(content) // 2):
            path.write_bytes(content[:cut])
            assert set(self.import_file(path).quality) <= set(QUALITY_CHECKS)

    def test_half_a_file_is_said_to_be_half(self, path: Path, content: bytes) -> None:
        path.write_bytes(content[: len(content) // 2])
        tables = self.import_file(path)
        assert tables.outcome is not None
        assert tables.outcome.lost
        assert tables.quality["truncated"]["count"] == 1

    @pytest.mark.parametrize("foreign", [b"", b"\n", b"what?", b"\x89PNG\r\n\x1a\n" * 99, b"{}"])
    def test_a_foreign_file_is_refused_in_one_sentence(self, path: Path, foreign: bytes) -> None:
        path.write_bytes(foreign)
        with pytest.raises(UnreadableTraceError) as refused:
            self.import_file(path)
        assert str(path) in str(refused.value)
        assert "\n" not in str(refused.value)

    @staticmethod
    def event_tables(tables: Tables) -> Iterator[str]:
        """Tables of the recording that hold events."""
        for name in tables.counts():
            if {"id", "track"} <= set(TABLES[name].column_names) and name != "timeline":
                yield name

    @staticmethod
    def ranges(tables: Tables) -> Iterator[Row]:
        """All rows of events with a duration but those of `other_events`."""
        for name in tables.counts():
            drawn_of_any = name in {"other_events", "timeline"}
            if "duration_ns" in TABLES[name].column_names and not drawn_of_any:
                yield from tables.rows(name)


class TestKineto(ImporterContract):
    @pytest.fixture
    def content(self) -> bytes:
        return trace(*training(), deviceProperties=[{"id": 0, "name": "A100"}])

    def import_file(self, path: Path) -> Tables:
        return imported_file(path)


class TestIndentedKineto(TestKineto):
    @pytest.fixture
    def content(self) -> bytes:
        return pretty(trace(*training()))
