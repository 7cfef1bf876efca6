"""Contract of an importer: a test suite to inherit. It needs pytest.

pytest.register_assert_rewrite("stepscope.testing.importer_contract")
from stepscope.testing.importer_contract import ImporterContract

class TestMyImporter(ImporterContract):
    importer = MyImporter

    def write(self, directory):
        path = directory / "recording.bin"
        path.write_bytes(...)
        return path

The file has some of everything that the importer reads. Tests import it by the registry, as
`stepscope import` does, so the importer must be an installed one.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, ClassVar

import pytest

from stepscope import importers, schema, store

__all__ = ["ImporterContract"]

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
_FOREIGN = (b"", b"\n", b"what?", b"\x89PNG\r\n\x1a\n" * 99, b"{}", b"[]", b"[[]]", b"PK\x05\x06")
Row = dict[str, Any]


class _Import:
    """A file in a new run."""

    def __init__(self, run: Path, path: Path) -> None:
        info = schema.RunInfo(
            schema_version=schema.SCHEMA_VERSION,
            run_id="contract",
            created_ns=0,
            command=[],
            working_directory="/",
            stepscope_version="0",
        )
        store.create_run(run, info)
        self.shares: list[float] = []
        self.results = importers.import_files(
            [path], run, "node", lambda _, share: self.shares.append(share)
        )
        self._reader = store.open_run(run)

    def rows(self, table: str) -> list[Row]:
        """Return the rows of a table, None for null."""
        if not self._reader.row_count(table):
            return []
        columns = self._reader.table(table)
        values = [column.tolist() for column in columns.values()]
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]

    @property
    def tables(self) -> dict[str, list[Row]]:
        """Rows of all tables that have some."""
        return {name: rows for name in schema.TABLES if (rows := self.rows(name))}


class ImporterContract:
    """Requirements on an importer."""

    importer: ClassVar[type[importers.Importer]]
    """Class of the importer."""
    is_compressible: ClassVar[bool] = True
    """Files may be compressed by gzip."""
    varying: ClassVar[frozenset[str]] = frozenset({"trace", "process"})
    """Columns whose values differ from import to import, such as random names."""

    def write(self, directory: Path) -> Path:
        """Write a complete file of the format."""
        raise NotImplementedError

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        directory = tmp_path / "recording"
        directory.mkdir()
        return self.write(directory)

    @pytest.fixture
    def imported(self, tmp_path: Path, path: Path) -> _Import:
        return _Import(tmp_path / "run", path)

    def test_its_files_are_those_of_no_other_importer(self, path: Path) -> None:
        head = importers.read_head(path)
        offers = importers.installed_importers()
        assert [type(one) for one in offers if one.recognise(head, path)] == [self.importer]

    @pytest.mark.parametrize("content", _FOREIGN)
    def test_foreign_files_are_not_recognised(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "foreign"
        path.write_bytes(content)
        assert not self.importer().recognise(importers.read_head(path), path)

    def test_what_is_imported_is_stated(self, imported: _Import) -> None:
        (result,) = imported.results
        assert isinstance(result, importers.Imported | importers.Recorded)
        assert result.lost is None
        if isinstance(result, importers.Recorded):
            forms = {
                name for item in self.importer().formats for name in item.parts or (item.name,)
            }
            assert result.form in forms
        declared = {name for item in self.importer().formats for name in item.tables}
        assert set(imported.tables)
        assert set(imported.tables) <= declared
        assert imported.shares[-1] == 1.0

    def test_the_same_file_twice_gives_the_same_rows(
        self, tmp_path: Path, path: Path, imported: _Import
    ) -> None:
        again = _Import(tmp_path / "again", path)
        self._compare(imported, again)

    def test_a_compressed_file_gives_the_same_rows(
        self, tmp_path: Path, path: Path, imported: _Import
    ) -> None:
        if not self.is_compressible:
            pytest.skip("files of this format are not compressed")
        path.write_bytes(gzip.compress(path.read_bytes()))
        compressed = _Import(tmp_path / "again", path)
        self._compare(imported, compressed)

    def test_the_file_is_not_changed(self, path: Path, tmp_path: Path) -> None:
        before = {item: item.read_bytes() for item in path.parent.iterdir()}
        _Import(tmp_path / "run", path)
        assert {item: item.read_bytes() for item in path.parent.iterdir()} == before

    def test_links_refer_to_existing_rows(self, imported: _Import) -> None:
        for (table, column), target in LINKS.items():
            links = {(row["trace"], row[column]) for row in imported.rows(table) if row[column]}
            assert links <= {(row["trace"], row["id"]) for row in imported.rows(target)}, table
        tracks = {(row["trace"], row["track"]) for row in imported.rows("tracks")}
        for events in schema.EVENT_TABLES:
            rows = imported.rows(events.name)
            assert {(row["trace"], row["track"]) for row in rows} <= tracks, events.name

    def test_ranges_are_inside_their_trace(self, imported: _Import) -> None:
        bounds = {row["trace"]: (row["start_ns"], row["end_ns"]) for row in imported.rows("traces")}
        timed = [table for table in schema.EVENT_TABLES if "duration_ns" in table.column_names]
        for row in (row for table in timed for row in imported.rows(table.name)):
            start_ns, end_ns = bounds[row["trace"]]
            assert start_ns <= row["start_ns"]
            assert row["duration_ns"] is None or row["duration_ns"] >= 0
            assert row["start_ns"] + (row["duration_ns"] or 0) <= end_ns

    def test_quality_checks_are_documented(self, imported: _Import) -> None:
        assert {row["kind"] for row in imported.rows("quality")} <= set(schema.QUALITY_CHECKS)

    @pytest.mark.parametrize("ratio", [0.0, 0.1, 0.47, 0.9, 0.999])
    def test_of_a_cut_file_the_readable_part_is_imported_or_none(
        self, tmp_path: Path, path: Path, ratio: float
    ) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: int(ratio * len(content))])
        (result,) = _Import(tmp_path / "run", path).results
        if isinstance(result, importers.Refused):
            assert path.name in result.reason
            assert "\n" not in result.reason
        else:
            assert isinstance(result, importers.Imported | importers.Recorded)
            assert result.lost

    def _compare(self, first: _Import, second: _Import) -> None:
        for table, rows in first.tables.items():
            pairs = zip(rows, second.rows(table), strict=True)
            different = {name for a, b in pairs for name in a if repr(a[name]) != repr(b[name])}
            assert not different - self.varying, (table, different)
