"""SQL of users over a run: SELECT alone, no other file, bounded in rows, time and memory.

Tables are those of `schema`. The tables of a view are in the SQL schema `views`, and are made when
a query names one of them: `views.gpu_time` is the table that `stepscope show RUN gpu-time --csv
FILE` writes, `views.gpu_time_NAME` that of `--table NAME`.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import msgspec

from stepscope import errors, exporters, output_files, schema, views
from stepscope.quantities import count_of, duration
from stepscope.run import Run, identifier, literal, query_error

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")
Cell: TypeAlias = str | int | float | bool | None
SCHEMA = "views"
"""SQL schema of the tables of views."""
_VIEW_TABLES = "views.NAME for the views of `stepscope show RUN VIEW`"
MAX_INT = 2**63 - 1
_MAX_GROWTH_BYTES = 4 << 30
"""Address space of a query: twice its memory, as threads reserve some that they do not use."""
_INTERRUPT_INTERVAL_S = 0.1
_TABLE_NAME = re.compile(r'(?:"?(?P<schema>\w+)"?\.)?"?(?P<table>\w+)')
_NO_WORD = re.compile(r"\W+")


class QueryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one query."""

    max_rows: int = 1000
    timeout_s: float = 30.0
    memory: str = "2GB"
    """In DuckDB's units."""


class QueryColumn(msgspec.Struct, frozen=True, kw_only=True):
    """Column of the result of a query."""

    name: str
    """Unique in the result."""
    type: str
    """DuckDB's name of the type."""


class QueryResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a query."""

    columns: list[QueryColumn]
    rows: Annotated[list[list[Cell]], schema.field_label("rows", display="identifier")]
    """Values in the order of the columns. Lists and structs are JSON, times and dates text; NaN and
    infinity are null."""
    is_cut: bool
    """True if there are more rows than the limit."""
    notes: list[str] = []
    """A sentence on the rows that were left out, and on each file that cannot be read."""


def query_rows(run: Run, query: str, limits: QueryLimits) -> QueryResult:
    """Run a query.

    Raises:
        UsageError: it is no single SELECT, is not valid, reads something else than the run, or
            exceeds the limit of time or memory.
    """

    def fetch(relation: duckdb.DuckDBPyRelation) -> QueryResult:
        rows = relation.limit(limits.max_rows + 1).fetchall()
        names = _make_unique(relation.columns)
        return QueryResult(
            columns=[
                QueryColumn(name=name, type=str(kind))
                for name, kind in zip(names, relation.types, strict=True)
            ],
            rows=[[_to_cell(value) for value in row] for row in rows[: limits.max_rows]],
            is_cut=len(rows) > limits.max_rows,
        )

    result, damage = _run(run, query, limits, fetch)
    notes = [_explain_cut(limits.max_rows)] if result.is_cut else []
    return msgspec.structs.replace(result, notes=[*notes, *damage])


def _query_arrow(run: Run, query: str, limits: QueryLimits) -> tuple[Any, list[str]]:
    """Run a query; return a `pyarrow.Table`, which keeps all types, and the notes.

    Raises:
        UsageError: pyarrow is not installed, or as `query_rows`.
    """
    errors.require("pyarrow", extra="arrow", alternative="use --csv")
    table, damage = _run(
        run, query, limits, lambda relation: relation.limit(limits.max_rows + 1).to_arrow_table()
    )
    is_cut = table.num_rows > limits.max_rows
    notes = [_explain_cut(limits.max_rows)] if is_cut else []
    return table.slice(0, limits.max_rows), [*notes, *damage]


def write_arrow(run: Run, query: str, limits: QueryLimits, path: Path) -> list[str]:
    """Write the result of a query as an Arrow IPC file; return the notes.

    Raises:
        UsageError: pyarrow is not installed, or as `query_rows`.
        OSError: the file cannot be written.
    """
    table, notes = _query_arrow(run, query, limits)
    ipc: Any = errors.require("pyarrow.ipc", extra="arrow")
    with output_files.atomic_write(path) as file, ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return notes


def tabulate_result(result: QueryResult) -> exporters.ViewTable:
    """Arrange a result as a table for CSV and text."""
    names = [column.name for column in result.columns]
    return exporters.ViewTable(
        name="result",
        labels={
            name: schema.FieldLabel(title=name, unit="none", display="identifier") for name in names
        },
        rows=[dict(zip(names, row, strict=True)) for row in result.rows],
    )


def _explain_cut(max_rows: int) -> str:
    return f"The result has more than {count_of(max_rows, 'row')}; the others were left out."


def _run(
    run: Run, query: str, limits: QueryLimits, fetch: Callable[[duckdb.DuckDBPyRelation], T]
) -> tuple[T, list[str]]:
    """Run a query and fetch its result; also return the damage of the tables that it names."""
    import duckdb

    try:
        with run.reader.trace_use() as reader:
            tables, view_tables = _find_sources(run, query, limits)

            def execute(connection: duckdb.DuckDBPyConnection) -> T:
                _create_tables(connection, view_tables)
                with _explained(connection, limits):
                    return fetch(_bind(connection, query))

            with _bounded_memory():
                result = reader.run_locked(tables, execute, memory_limit=limits.memory)
            return result, reader.damage_used
    except duckdb.Error as error:
        raise query_error(query, str(error), _VIEW_TABLES) from error


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """Bound the memory of this process: DuckDB does not count the texts of one call of a function,
    such as `repeat`, in its limit, and an allocation that is refused is its error of that limit.
    Systems other than Linux have no such bound."""
    if sys.platform != "linux":
        yield
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + _MAX_GROWTH_BYTES
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _bind(connection: duckdb.DuckDBPyConnection, query: str) -> duckdb.DuckDBPyRelation:
    import duckdb

    try:
        return connection.sql(query)
    except (duckdb.BinderException, duckdb.CatalogException):
        connection.execute(query)  # whose error has the position
        raise


def _find_sources(
    run: Run, query: str, limits: QueryLimits
) -> tuple[list[str], dict[str, exporters.ViewTable]]:
    """Find the tables of the run and of views that a query names, by DuckDB's parser.

    Raises:
        UsageError: it is not a single SELECT, or reads a file.
    """
    texts = run.reader.run_locked(
        [], lambda connection: _parse(connection, query, limits), memory_limit=limits.memory
    )
    if texts is None:
        return [table for table in schema.TABLES if run.reader.has(table)], {}
    names = [match for text in texts if (match := _TABLE_NAME.match(text.lower()))]
    tables = {match["table"] for match in names if match["schema"] is None}
    of_views = [match["table"] for match in names if match["schema"] == SCHEMA]
    view_tables: dict[str, exporters.ViewTable] = {}
    for sql_name, view in _views().items():
        if any(f"{name}_".startswith(f"{sql_name}_") for name in of_views):
            view_tables |= _make_view_tables(run, sql_name, view)
    return [table for table in schema.TABLES if table in tables], view_tables


def _parse(
    connection: duckdb.DuckDBPyConnection, query: str, limits: QueryLimits
) -> Iterable[str] | None:
    """Return the names of the tables in a query, with their SQL schemas and aliases; None if it
    states none, as SHOW and functions over the catalog, which list all.

    Raises:
        UsageError: it is not a single SELECT, or reads a file.
    """
    import duckdb

    statements = connection.extract_statements(query)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise errors.UsageError(
            "A query is a single statement that reads: SELECT, WITH, FROM, DESCRIBE, SHOW or "
            "SUMMARIZE."
        )
    with _explained(connection, limits):
        try:
            return connection.get_table_names(query, qualified=True) or None
        except duckdb.CatalogException:  # SHOW with a name; of others, execution has the error
            return None


def _views() -> dict[str, str]:
    """Return the views that need no option, by their names in SQL."""
    return {name.replace("-", "_"): name for name, view in views.VIEWS.items() if not view.needs}


def _make_view_tables(run: Run, sql_name: str, name: str) -> dict[str, exporters.ViewTable]:
    view = views.VIEWS[name]
    options = views.ViewOptions(top=exporters.MAX_LISTED) if "top" in view.uses else views.DEFAULTS
    tables = {table.name: table for table in exporters.tabulate(view(run, options)) if table.labels}
    by_name = {f"{sql_name}_{_NO_WORD.sub('_', name)}": table for name, table in tables.items()}
    main = view.table or name
    if main in tables:
        by_name[sql_name] = tables[main]
    return by_name


def _create_tables(
    connection: duckdb.DuckDBPyConnection, tables: Mapping[str, exporters.ViewTable]
) -> None:
    connection.execute(f"CREATE SCHEMA {SCHEMA}")
    for name, table in tables.items():
        types = {c: _choose_type([row.get(c) for row in table.rows]) for c in table.labels}
        row_type = literal(msgspec.json.encode([types]).decode())
        rows = f"SELECT unnest(from_json($1, {row_type})) AS item"
        connection.execute(
            f"CREATE TABLE {SCHEMA}.{identifier(name)} AS SELECT item.* FROM ({rows})",  # noqa: S608
            [msgspec.json.encode(table.rows).decode()],
        )


def _choose_type(cells: Iterable[Cell]) -> str:
    """Choose the SQL type of a column."""
    present = [cell for cell in cells if cell is not None]
    types = set(map(type, present))
    if types == {bool}:
        return "BOOLEAN"
    if types == {int}:
        return "BIGINT" if all(abs(int(cell)) <= MAX_INT for cell in present) else "HUGEINT"
    return "DOUBLE" if types and types <= {int, float} else "VARCHAR"


@contextmanager
def _explained(connection: duckdb.DuckDBPyConnection, limits: QueryLimits) -> Iterator[None]:
    """Cancel a query after its time limit, and explain why one was refused.

    Raises:
        UsageError: it took too long, needs too much memory, or reads a file.
    """
    import duckdb

    has_ended = threading.Event()

    def interrupt() -> None:
        has_ended.wait(limits.timeout_s)
        while not has_ended.wait(_INTERRUPT_INTERVAL_S):  # one between two statements has no effect
            connection.interrupt()

    watch = threading.Thread(target=interrupt, daemon=True)
    watch.start()
    try:
        yield
    except duckdb.InterruptException:
        raise errors.UsageError(
            f"The query took more than {duration(1e9 * limits.timeout_s)} and was cancelled. "
            "Select fewer rows, or a range of time."
        ) from None
    except duckdb.OutOfMemoryException:
        raise errors.UsageError(
            f"The query needs more than {limits.memory} of memory. Select fewer rows or columns."
        ) from None
    except duckdb.PermissionException:
        raise errors.UsageError(
            "The query reads a file or a setting; it can read the tables and views of the run."
        ) from None
    finally:
        has_ended.set()
        watch.join()


def _make_unique(names: Iterable[str]) -> list[str]:
    """Number repeated names.

    >>> _make_unique(["n", "n", "m"])
    ['n', 'n_2', 'm']
    """
    unique: list[str] = []
    for name in names:
        number, candidate = 2, name
        while candidate in unique:
            candidate, number = f"{name}_{number}", number + 1
        unique.append(candidate)
    return unique


def _to_cell(value: Any) -> Cell:
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, list | dict | tuple):
        return msgspec.json.encode(value, enc_hook=str).decode()
    is_plain = value is None or isinstance(value, str | bool)
    return value if is_plain or (isinstance(value, int) and abs(value) <= MAX_INT) else str(value)
