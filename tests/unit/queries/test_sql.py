"""SQL over a run: its tables and views, and nothing else."""

from __future__ import annotations

import csv
import io
import json
import re
import resource
import shutil
from pathlib import Path

import pyarrow.ipc
import pytest

from stepscope.errors import UsageError
from stepscope.queries import QueryLimits, query_rows
from stepscope.run import Run, open_run
from stepscope.schema import TABLES
from stepscope.testing import RunBuilder
from tests.support.command import run_command

ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range = 7"


@pytest.fixture(scope="module")
def run(traced: Path) -> Run:
    return open_run(traced)


def ask(run: Run, query: str, **limits: object) -> list[list[object]]:
    return [list(row) for row in query_rows(run, query, QueryLimits(**limits)).rows]  # type: ignore[arg-type]


def show(traced: Path, view: str, *options: str) -> list[dict[str, str]]:
    """Return a table of a view as CSV has it."""
    arguments = ("show", str(traced), view, "--csv", "-", *options)
    return list(csv.DictReader(io.StringIO(run_command(traced.parent, *arguments).stdout)))


def test_tables_are_those_of_the_run(run: Run) -> None:
    for table in ("kernels", "operators", "spans"):
        assert ask(run, f"FROM {table} SELECT count(*)") == [[run.reader.row_count(table)]]
    present = sorted(table for table in TABLES if run.reader.has(table))
    for query in ("SHOW TABLES", "-- all\n/* of them */ SHOW TABLES", "FROM (SHOW TABLES)"):
        assert [name for (name,) in ask(run, query)] == present
    columns = [row[0] for row in ask(run, "DESCRIBE kernels")]
    assert columns == list(TABLES["kernels"].column_names)
    assert [row[0] for row in ask(run, "SUMMARIZE kernels")] == columns
    assert [row[0] for row in ask(run, "SHOW kernels")] == columns


@pytest.mark.parametrize(
    ("view", "name", "options"),
    [
        ("gpu-time", "gpu_time", ()),
        ("kernels", "kernels", ()),
        ("kernels", "kernels_summary", ("--table", "summary")),
        ("system-heat", "system_heat_summary", ("--table", "summary")),
        ("system", "system_summary", ("--table", "summary")),
    ],
)
def test_views_are_tables(
    traced: Path, run: Run, view: str, name: str, options: tuple[str, ...]
) -> None:
    result = query_rows(run, f'FROM Views."{name}"', QueryLimits())
    rows = show(traced, view, *options)
    assert [column.name for column in result.columns] == list(rows[0])
    assert len(result.rows) == len(rows)
    for cells, row in zip(result.rows, rows, strict=True):
        for cell, text in zip(cells, row.values(), strict=True):
            plain = str(cell).lower() if isinstance(cell, bool) else cell
            assert plain == (type(plain)(text) if text else None)


def test_tables_and_views_are_joined(run: Run) -> None:
    joined = (
        "WITH longest AS (SELECT name, sum(duration_ns) AS n FROM kernels GROUP BY name) "
        "SELECT sum(n) = sum(v.total_ns) FROM longest "
        "JOIN (SELECT name, sum(total_ns) AS total_ns FROM views.kernels GROUP BY name) v "
        "USING (name)"
    )
    assert ask(run, joined) == [[True]]


@pytest.mark.parametrize(
    "query",
    [
        "COPY kernels TO '{out}'",
        "COPY (SELECT 1) TO '{out}'",
        "ATTACH '{out}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA version",
        "SET threads = 1",
        "RESET threads",
        "CREATE TABLE t AS SELECT 1",
        "INSERT INTO kernels SELECT * FROM kernels",
        "DROP VIEW kernels",
        "EXPORT DATABASE '{out}'",
        "CALL enable_logging()",
        "SELECT 1; COPY kernels TO '{out}'",
        "SHOW TABLES; COPY kernels TO '{out}'",
        "",
    ],
)
def test_statements_that_do_more_than_read_are_refused(
    run: Run, query: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="A query is a single statement that reads: SELECT, WITH"):
        ask(run, query.format(out=tmp_path / "out"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "source",
    [
        "read_csv('{file}')",
        "read_text('{file}')",
        "read_blob('{file}')",
        "read_json('{file}')",
        "read_parquet('{file}')",
        "parquet_metadata('{file}')",
        "sniff_csv('{file}')",
        "glob('{folder}/*')",
        "duckdb_secrets()",
        "(SELECT * FROM read_text('{file}'))",
        "kernels WHERE name IN (SELECT content FROM read_text('{file}'))",
    ],
)
def test_other_files_are_refused(run: Run, source: str, tmp_path: Path) -> None:
    for file in (Path("/etc/passwd"), tmp_path / "mine.csv", run.reader.directory / "run.json"):  # type: ignore[operator]
        names = [str(path).replace("'", "''") for path in (file, file.parent)]
        query = f"FROM {source.format(file=names[0], folder=names[1])}"
        with pytest.raises(UsageError, match=r"^The query reads a file or a setting; it can read"):
            ask(run, query)
    with pytest.raises(UsageError, match="The query cannot be run"):  # as it is no table
        ask(run, "SELECT * FROM '/etc/passwd'")


def test_functions_change_nothing(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="configuration"):
        ask(run, f"FROM enable_logging(storage = 'file', storage_path = '{tmp_path / 'log'}')")
    with pytest.raises(UsageError, match="SELECT"):
        ask(run, f"FROM query('COPY kernels TO ''{tmp_path / 'out'}''')")
    assert not list(tmp_path.iterdir())


def test_rows_and_time_are_limited(run: Run) -> None:
    result = query_rows(run, "FROM range(7)", QueryLimits(max_rows=5))
    assert (len(result.rows), result.is_cut) == (5, True)
    assert result.notes == ["The result has more than 5 rows; the others were left out."]
    assert not query_rows(run, "FROM range(5)", QueryLimits(max_rows=5)).is_cut
    ordered = "SELECT range AS n FROM range(100000) ORDER BY n DESC"
    assert ask(run, ordered, max_rows=2) == [[99_999], [99_998]]
    cancelled = (
        "The query took more than 200 ms and was cancelled. Select fewer rows, or a range of time."
    )
    with pytest.raises(UsageError, match=re.escape(cancelled)):
        ask(run, ENDLESS, timeout_s=0.2)
    assert ask(run, "SELECT 1") == [[1]]


def test_memory_is_limited(run: Run) -> None:
    expected = r"The query needs more than 20MB of memory. Select fewer rows or columns."
    with pytest.raises(UsageError, match=expected):
        ask(run, "SELECT list(range) FROM range(20000000)", memory="20MB")
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(UsageError, match="The query needs more than 2GB of memory"):
        # Texts of one call of a function, which are not in DuckDB's limit.
        ask(run, "SELECT repeat('x', 20000000) FROM range(1000)")
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_values_are_those_of_json(run: Run) -> None:
    query = (
        "SELECT 'nan'::DOUBLE, 1.5::DECIMAL(5, 2), [1, NULL], {'a': 2}, 9223372036854775807, "
        "170141183460469231731687303715884105727, DATE '2026-01-02', NULL, true, 1 AS n, 2 AS n"
    )
    result = query_rows(run, query, QueryLimits())
    largest, day = "170141183460469231731687303715884105727", "2026-01-02"
    assert result.rows == [
        [None, 1.5, "[1,null]", '{"a":2}', 2**63 - 1, largest, day, None, True, 1, 2]
    ]
    assert [column.name for column in result.columns][-2:] == ["n", "n_2"]


def test_errors_name_the_position_and_the_tables(run: Run) -> None:
    expected = r'"nme" not found.*\(line 2, column 8\)\. Tables: spans, .*views\.NAME'
    with pytest.raises(UsageError, match=expected):
        ask(run, "SELECT name,\n       nme FROM kernels")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    for number in (0, 1):
        run.rank(number, node=f"n{number}").draw("wait 5 | forward 5", 10)
    run.write()
    files = sorted((tmp_path / "run").rglob("spans/**/*.parquet"))
    before = ask(open_run(tmp_path / "run"), "SELECT count(DISTINCT node) FROM spans")
    files[0].write_bytes(b"PAR1")
    result = query_rows(
        open_run(tmp_path / "run"), "SELECT count(DISTINCT node) FROM spans", QueryLimits()
    )
    assert (before, result.rows) == ([[2]], [[1]])
    assert len(result.notes) == 1
    assert "cannot be read" in result.notes[0]


def test_the_command_writes_each_form(traced: Path, run: Run, tmp_path: Path) -> None:
    query = "SELECT name, count(*) AS n FROM operators GROUP BY ALL ORDER BY n DESC, name"
    rows = ask(run, query)
    command = ("sql", str(traced), query)
    text = run_command(tmp_path, *command).stdout.splitlines()
    assert text[0].split() == ["name", "n"]
    assert len(text) == 1 + len(rows)
    printed = json.loads(run_command(tmp_path, *command, "--json").stdout)
    assert printed["rows"] == rows
    lines = list(csv.reader(io.StringIO(run_command(tmp_path, *command, "--csv", "-").stdout)))
    assert lines == [["name", "n"], *([name, str(n)] for name, n in rows)]
    arrow = run_command(tmp_path, *command, "--arrow", "result.arrow", "--max-rows", "1")
    assert arrow.stderr == "stepscope: The result has more than 1 row; the others were left out.\n"
    table = pyarrow.ipc.open_file(tmp_path / "result.arrow").read_all()
    assert table.to_pylist() == [dict(zip(("name", "n"), rows[0], strict=True))]
    both = run_command(tmp_path, *command, "--json", "--csv", "-")
    assert (both.returncode, json.loads(both.stderr)["error"]) == (2, "Use one of --json, --csv.")
    refused = run_command(tmp_path, "sql", str(traced), "FROM read_csv('/etc/passwd')")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1


def test_the_run_is_left_as_it_was(traced: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(traced, copied)
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    assert run_command(tmp_path, "sql", "run", "FROM kernels").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == before
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
