"""Tables of views as Parquet and Arrow files: what is read back equals the payload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from stepscope import exporters, views
from stepscope.cli import root
from stepscope.errors import UsageError
from stepscope.exporters import ExportOptions, ViewTable, tabulate
from stepscope.exporters.columnar import ArrowExporter, ParquetExporter
from stepscope.run import Run
from stepscope.schema import FieldLabel
from stepscope.testing import RunBuilder

Rows = list[dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    builder = RunBuilder(tmp_path / "run")
    for number in range(2):
        builder.rank(number).draw("wait=0 50 | forward 8 | backward 20 | optimizer 10", 30)
    return builder.open()


def read(path: Path, form: str) -> tuple[Rows, dict[str, dict[str, str]]]:
    """Return rows, and the metadata of the columns."""
    if form == "parquet":
        relation = duckdb.sql(f"SELECT * FROM read_parquet('{path}')")  # noqa: S608
        rows = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
        query = f"SELECT value FROM parquet_kv_metadata('{path}') WHERE key = 'columns'"  # noqa: S608
        ((labels,),) = duckdb.sql(query).fetchall()
        return rows, json.loads(labels)
    table = pa.ipc.open_file(path).read_all()
    labels = {
        field.name: {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        for field in table.schema
    }
    return table.to_pylist(), labels


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("view", ["steps", "overview", "input-pipeline"])
def test_what_is_read_back_equals_the_payload(
    run: Run, tmp_path: Path, form: str, view: str
) -> None:
    options = views.ViewOptions(top=0) if "top" in views.VIEWS[view].uses else views.ViewOptions()
    for table in tabulate(views.VIEWS[view](run, options)):
        if not table.labels:
            continue
        path = tmp_path / f"{view}.{table.name}"
        selection = ExportOptions(view=view, table=table.name)
        exporters.export(run, form, str(path), selection)
        rows, labels = read(path, form)
        assert rows == [{name: row.get(name) for name in table.labels} for row in table.rows]
        for name, label in table.labels.items():
            assert labels[name].get("title", "") == label.title
            assert labels[name].get("unit", label.unit) == label.unit


@pytest.mark.parametrize("exporter", [ParquetExporter, ArrowExporter])
def test_types_of_columns(tmp_path: Path, exporter: type[ParquetExporter]) -> None:
    columns: dict[str, list[Any]] = {
        "integers": [1, None, -(2**63)],
        "addresses": [2**64 - 1, 0, None],
        "larger": [2**64, -1, None],
        "numbers": [1, 0.5, None],
        "flags": [True, None, False],
        "texts ☃\"'": ["a'b", "", None],
        "mixed": ["a", 1, None],
        "nothing": [None, None, None],
    }
    label = FieldLabel(title="it's", unit="ns", description="An explanation.")
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    table = ViewTable(name="t", labels=dict.fromkeys(columns, label), rows=rows)
    path = tmp_path / "file"
    with path.open("wb") as file:
        exporter().write(file, table)
    found_rows, labels = read(path, "parquet" if exporter is ParquetExporter else "arrow")
    expected = [dict(row) for row in rows]
    for row in expected:
        for name in ("larger", "mixed"):
            row[name] = None if row[name] is None else str(row[name])
    assert found_rows == expected
    assert labels["integers"] == {
        "title": "it's", "unit": "ns", "explanation": "An explanation.",
    }  # fmt: skip


def test_by_command(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["export", str(tmp_path / "run"), "-o", str(tmp_path / "steps.parquet"), "--to"]
    root.main(
        [*command, "parquet", "--view", "steps", "--table", "ranks.phases"], standalone_mode=False
    )
    assert "rows)" in capsys.readouterr().out
    for options, message in (
        (["--view", "no"], "Pass one of overview, "),
        ([], "Pass one of overview, "),
        (
            ["--view", "steps", "--table", "no"],
            "has no table 'no' with rows. Choose one with --table: summary, ranks",
        ),
        (["--view", "steps"], "has no table 'steps' with rows"),
        (["--view", "kernels"], "of this run has no rows: "),
        (["--view", "system", "--trace", "x"], "does not accept --trace"),
        (
            ["--view", "overview", "--table", "verdict.refused"],
            "has no table 'verdict.refused' with rows",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            root.main([*command, "parquet", *options], standalone_mode=False)
