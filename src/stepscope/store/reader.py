"""Reading a run, finished or still growing.

Nothing is remembered between calls but what is damaged, and of each segment its times: every call
lists the segments afresh.
A segment that cannot be read is left out and named in `damage`; the rest of the run stays
readable. Files are looked at one by one only after a query has failed.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec
import numpy as np

from stepscope.errors import DamagedRunError, NewerSchemaError, NotARunError
from stepscope.schema import (
    SCHEMA_VERSION,
    TABLES,
    Column,
    JobStatus,
    NodeInfo,
    ProcessInfo,
    RunInfo,
    Table,
)
from stepscope.store import layout
from stepscope.store.columns import NUMPY_TYPES, Array, DictColumn
from stepscope.store.engine import (
    available_cores,
    connect,
    identifier,
    scan,
    select,
)
from stepscope.store.layout import Segment
from stepscope.store.objectstore import LocalStore, ObjectStore, is_remote, open_store
from stepscope.store.upgrades import Step, steps_from

if TYPE_CHECKING:
    import duckdb

__all__ = ["RunReader", "open_run"]

T = TypeVar("T")
Times = dict[str, tuple[int, int]]
"""First and last value of each column of times."""

_RECORDING = "trace"
"""The column that says which recording a row is of."""
_LISTINGS = 3
"""How often a listing with a hole in it is repeated before the hole is believed."""
_ATTEMPTS = 8
"""How often a query is tried while the files below it change."""
_LEFT_TO_PARENT: list[duckdb.DuckDBPyConnection | None] = []
"""Connections that a forked process inherited and must neither use nor close."""


def open_run(location: str | Path, *, threads: int | None = None) -> RunReader:
    """Opens a run, to be read by as many threads as there are cores where nothing else is said.

    NotARunError when there is none at that place, DamagedRunError when its `run.json` makes no
    sense, NewerSchemaError when a later stepscope wrote it, OSError when a bucket cannot be
    reached.
    """
    store = open_store(location)
    try:
        data = store.get(layout.RUN_KEY)
    except (FileNotFoundError, NotADirectoryError):
        raise NotARunError(_why_not_a_run(location)) from None
    except OSError as error:
        if is_remote(location):  # who does not reach a bucket cannot know what it holds
            raise
        raise NotARunError(f"{location} cannot be read: {error.strerror}.") from error
    version, content = _versioned(location, data)
    steps = steps_from(version)
    for step in steps:
        content = step.run_info(content)
    try:
        info = msgspec.convert(content, RunInfo)
    except msgspec.ValidationError as error:
        raise _damaged_run(location, error) from error
    return RunReader(store, info, steps, threads=threads)


class RunReader:
    """A run, read only. Usable from several threads; queries run one after the other.

    Numbers come as arrays of the declared type. Nulls in numbers come as a masked array (see
    `table` and `sql`), nulls in strings as None.
    """

    def __init__(
        self,
        store: ObjectStore,
        info: RunInfo,
        steps: tuple[Step, ...] = (),
        *,
        threads: int | None = None,
    ) -> None:
        self.info = info
        self._threads = threads or available_cores()
        self._store = store
        self._steps = steps
        self._broken: dict[str, str] = {}  # key of a file -> what is wrong with it
        self._gaps: dict[str, list[Segment]] = {}
        self._times: dict[str, dict[Segment, Times]] = {}
        self._lock = threading.Lock()
        self._forget_connection()

    @property
    def is_local(self) -> bool:
        """Whether the run is a directory, into which a job of this machine may be writing."""
        return isinstance(self._store, LocalStore)

    def look_again(self) -> None:
        """Sees what was written a moment ago. Only of a bucket is a listing believed so long."""
        self._store.look_again()

    @property
    def damage(self) -> list[str]:
        """What the calls so far could not read, one sentence per file."""
        missing = [
            f"{gap.key} and what it was merged from are missing."
            for gaps in self._gaps.values()
            for gap in gaps
        ]
        return [*self._broken.values(), *missing]

    def nodes(self) -> dict[str, NodeInfo]:
        """Every machine by name."""
        found = self._manifests(layout.NODES, "/node.json", NodeInfo)
        return {layout.node_of(key): info for key, info in found.items()}

    def statuses(self) -> dict[str, JobStatus]:
        """The job's status by the machine whose monitor wrote it."""
        found = self._manifests(layout.NODES, "/status.json", JobStatus)
        return {layout.node_of(key): status for key, status in found.items()}

    def processes(self) -> list[ProcessInfo]:
        """What each process said of itself."""
        return list(self._manifests(layout.PROCESSES, ".json", ProcessInfo).values())

    @overload
    def document(self, name: str, *, kind: str = ...) -> Any: ...
    @overload
    def document(self, name: str, *, kind: str = ..., as_type: type[T]) -> T | None: ...
    def document(self, name: str, *, kind: str = "findings", as_type: Any = Any) -> Any:
        """A document, as plain data or as a msgspec type; None when absent or damaged."""
        return self._manifest(layout.document_key(kind, name), as_type)

    def has(self, table: str) -> bool:
        """True when there are rows of a table."""
        _declared(table)
        return bool(self._readable(table))

    def row_count(self, table: str) -> int:
        """Rows of a table; Parquet footers know it, so no row is read."""
        query = select("count(*) AS n", _declared(table).name)
        return int(self._run([table], lambda engine: engine.execute(query).fetchnumpy())["n"][0])

    @overload
    def table(
        self,
        name: str,
        columns: Sequence[str] | None = ...,
        *,
        where: str | None = ...,
        parameters: Sequence[object] = ...,
        order_by: str | None = ...,
        traces: Sequence[int] = ...,
    ) -> dict[str, Array]: ...
    @overload
    def table(
        self,
        name: str,
        columns: Sequence[str] | None = ...,
        *,
        where: str | None = ...,
        parameters: Sequence[object] = ...,
        order_by: str | None = ...,
        traces: Sequence[int] = ...,
        encoded: Sequence[str],
    ) -> dict[str, Any]: ...
    def table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        *,
        where: str | None = None,
        parameters: Sequence[object] = (),
        order_by: str | None = None,
        traces: Sequence[int] = (),
        encoded: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Columns of a table (all by default), in the order in which rows were appended.

        `where` and `order_by` are SQL, `parameters` fill the '?' of `where`; `traces` as in `sql`.
        String columns in
        `encoded` come as DictColumn, several times faster than as objects. A column that is
        declared nullable always comes as a masked array, or as objects and None for strings;
        all others never do.
        """
        table = _declared(name)
        chosen = _chosen(table, columns, encoded)
        tail = f" WHERE {where}" if where else ""
        tail += f" ORDER BY {order_by}" if order_by else ""

        def fetch(engine: duckdb.DuckDBPyConnection) -> dict[str, Any]:
            few = self._few([name], traces=traces)
            source = f"({few[name]}) AS {name}" if few else name
            dictionaries = {each: _make_dictionary(engine, source, each) for each in encoded}
            selected = ", ".join(
                _code_of(each) if each in dictionaries else identifier(each) for each in chosen
            )
            query = select(selected, source, tail)
            found = engine.execute(query, list(parameters)).fetchnumpy()
            return {
                each: _string_codes(found[each], dictionaries[each])
                if each in dictionaries
                else _declared_array(table, each, found[each])
                for each in chosen
            }

        return self._run([name], fetch)

    def times(self, table: str) -> dict[str, Times]:
        """By node, first and last value of each column of times; footers know them."""
        found: dict[str, Times] = {}
        read = self._run([table], lambda _: self._times_of(table, self._views[table]))
        for segment, extents in read.items():
            of_node = found.setdefault(segment.node, {})
            for column, (first, last) in extents.items():
                if column != _RECORDING:
                    known = of_node.get(column, (first, last))
                    of_node[column] = min(first, known[0]), max(last, known[1])
        return found

    def sql(
        self,
        query: str,
        parameters: Sequence[object] = (),
        *,
        within: tuple[int, int] | None = None,
        traces: Sequence[int] = (),
    ) -> dict[str, Array]:
        """The columns of a DuckDB query over the tables, each a view of its own name.

        Where the query asks for no rows but those `within` two times, the second exclusive, by
        the first column of times of their table, only segments that may have such rows are opened;
        likewise where it asks for no rows but those of some recordings.

        A numeric column is a masked array only if the result has a null in it. DuckDB's sums of
        integers arrive as float64: write `CAST(sum(x) AS BIGINT)` where nanoseconds count.
        """
        tables = [table for table in TABLES if table in query.lower()]

        def fetch(engine: duckdb.DuckDBPyConnection) -> dict[str, Array]:
            few = self._few(tables, within, traces)
            return engine.execute(_over(few, query), list(parameters)).fetchnumpy()

        found = self._run(tables, fetch)
        return {name: _without_masked_objects(values) for name, values in found.items()}

    # --- manifests ---------------------------------------------------------------------------

    def _manifests(self, prefix: str, ending: str, as_type: type[T]) -> dict[str, T]:
        keys = [key for key in self._store.list(prefix) if key.endswith(ending)]
        found = {
            key: self._decoded(key, content, as_type)
            for key, content in zip(keys, self._store.get_all(keys), strict=True)
        }
        return {key: manifest for key, manifest in found.items() if manifest is not None}

    def _manifest(self, key: str, as_type: type[T]) -> T | None:
        return self._decoded(key, self._store.get_all([key])[0], as_type)

    def _decoded(self, key: str, content: bytes | None, as_type: type[T]) -> T | None:
        if content is None:
            return None
        try:
            manifest = msgspec.json.decode(content, type=as_type)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._broken[key] = f"{key} cannot be read: {error}."
            return None
        self._broken.pop(key, None)  # it has been replaced since
        return manifest

    # --- segments ----------------------------------------------------------------------------

    def _readable(self, table: str) -> list[Segment]:
        """The segments of a table that can be read, in the order of their rows.

        A directory is not listed in one instant: a listing during a merge may miss the new file
        and the old ones too. Flushes are numbered, so that shows as a gap.
        """
        found: list[Segment] = []
        for _ in range(_LISTINGS):
            keys = self._store.list(layout.table_prefix(table))
            found = layout.visible(s for key in keys if (s := layout.segment_of(key)) is not None)
            self._gaps[table] = layout.gaps(found)
            if not self._gaps[table]:
                break
            self._store.look_again()
        return [segment for segment in found if segment.key not in self._broken]

    def _few(
        self,
        tables: Sequence[str],
        within: tuple[int, int] | None = None,
        traces: Sequence[int] = (),
    ) -> dict[str, str]:
        """Rows of fewer segments, as queries, of the tables that need not be looked at whole."""
        return {
            table: self._view(TABLES[table], chosen)
            for table in tables
            if (chosen := self._may_hold(table, within, traces)) != self._views[table]
        }

    def _may_hold(
        self, table: str, within: tuple[int, int] | None, traces: Sequence[int]
    ) -> list[Segment]:
        """The segments that may have rows within two times, and of some recordings."""
        segments, declared = self._views[table], TABLES[table]
        begun = declared.time_column if within else None
        named = sorted(traces) if _RECORDING in declared.column_names else []
        if begun is None and not named:
            return segments
        extents = self._times_of(table, segments)
        if within and begun is not None:
            segments = [each for each in segments if _reaches(extents[each].get(begun), within)]
        if named:
            segments = [each for each in segments if _spans(extents[each].get(_RECORDING), named)]
        return segments

    def _times_of(self, table: str, segments: list[Segment]) -> dict[Segment, Times]:
        """The times in each segment, and its recordings; only footers of new ones are read."""
        columns = [
            column.name
            for column in TABLES[table].columns
            if column.unit == "epoch_ns" or column.name == _RECORDING
        ]
        known = self._times.get(table, {})
        self._paths(each for each in segments if each not in known)  # fetched side by side
        found = {
            segment: known[segment] if segment in known else self._extents(segment, columns)
            for segment in segments
        }
        self._times[table] = found
        return found

    def _extents(self, segment: Segment, columns: Sequence[str]) -> Times:
        """First and last value of columns of a segment: DuckDB has those of one file from its
        footer, several times as fast as it lists what the footer says of every row group."""
        if not columns:
            return {}
        ends = ", ".join(f"min({identifier(each)}), max({identifier(each)})" for each in columns)
        query = select(ends, f"({self._rows(segment.table, [segment])})")
        values = self._engine().execute(query).fetchall()[0]
        pairs = zip(columns, values[::2], values[1::2], strict=True)
        return {column: (first, last) for column, first, last in pairs if first is not None}

    def _paths(self, segments: Iterable[Segment]) -> Sequence[Path]:
        return self._store.local_paths([segment.key for segment in segments])

    def _view(self, table: Table, segments: Sequence[Segment]) -> str:
        if not segments:
            nulls = (f"CAST(NULL AS {c.type}) AS {identifier(c.name)}" for c in table.columns)
            return f"SELECT {', '.join(nulls)} WHERE false"
        # Naming the columns here makes a file that lacks one fail at once.
        columns = ", ".join(map(_as_declared, table.columns))
        return select(columns, f"({self._rows(table.name, segments)})")

    def _rows(self, table: str, segments: Sequence[Segment]) -> str:
        """What segments hold, as this version has it."""
        query = select("*", scan(self._paths(segments)))
        for step in self._steps:
            query = step.rows(table, query)
        return query

    # --- queries -----------------------------------------------------------------------------

    def _forget_connection(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._process = os.getpid()
        self._views: dict[str, list[Segment]] = {}

    def _leave_to_parent(self) -> None:
        """After a fork: DuckDB's threads are the parent's, so even closing would wait for ever."""
        _LEFT_TO_PARENT.append(self._connection)
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._forget_connection()

    def _engine(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = connect(threads=self._threads)
        return self._connection

    def _run(self, tables: Sequence[str], query: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Runs a query over the segments of this moment; again when one of them turns out to be
        damaged, or was merged away meanwhile."""
        import duckdb

        if self._process != os.getpid():
            self._leave_to_parent()
        with self._lock:
            for attempt in range(_ATTEMPTS):
                segments = {table: self._readable(table) for table in tables}
                try:
                    self._show(segments)
                    return query(self._engine())
                except FileNotFoundError:  # a bucket no longer holds what it has listed
                    if attempt + 1 == _ATTEMPTS:
                        raise
                except duckdb.Error as error:
                    self._forget_connection()  # after some errors a connection serves no more
                    if attempt + 1 == _ATTEMPTS or not self._worth_repeating(segments, error):
                        raise
        raise AssertionError("unreachable")

    def _show(self, segments: dict[str, list[Segment]]) -> None:
        for table, those in segments.items():
            if self._views.get(table) != those:
                self._views.pop(table, None)
                view = self._view(TABLES[table], those)
                self._engine().execute(f"CREATE OR REPLACE TEMP VIEW {table} AS {view}")
                self._views[table] = those

    def _worth_repeating(self, segments: dict[str, list[Segment]], error: duckdb.Error) -> bool:
        used = [segment for those in segments.values() for segment in those]
        gone = any(not self._store.at_hand(segment.key) for segment in used)
        if gone or self._find_broken(used, _footer_check):
            return True
        return not _is_mistake(error) and self._find_broken(used, _content_check)

    def _find_broken(
        self,
        segments: Iterable[Segment],
        check: Callable[[Table, str], str],
    ) -> bool:
        """Marks the segments that fail a check; True when there was one."""
        import duckdb

        before = len(self._broken)
        for segment in segments:
            table = TABLES[segment.table]
            try:
                query = check(table, f"({self._view(table, [segment])})")
                self._engine().execute(query).fetchall()
            except duckdb.Error as error:
                if self._store.at_hand(segment.key):
                    reason = str(error).strip().splitlines()[0]
                    self._broken[segment.key] = f"{segment.key} cannot be read: {reason}."
        return len(self._broken) > before


def _is_mistake(error: duckdb.Error) -> bool:
    """Whether a wrong query raises such; a file with wrong columns raises the last of them too."""
    import duckdb

    return isinstance(
        error, duckdb.ParserException | duckdb.CatalogException | duckdb.BinderException
    )


def _reaches(extent: tuple[int, int] | None, within: tuple[int, int]) -> bool:
    """Whether values from first to last, if known, may lie within two times."""
    return extent is None or (extent[0] < within[1] and extent[1] >= within[0])


def _spans(extent: tuple[int, int] | None, values: Sequence[int]) -> bool:
    """Whether one of some ascending values lies from first to last, if these are known."""
    return extent is None or bisect_left(values, extent[0]) < bisect_right(values, extent[1])


def _over(tables: dict[str, str], query: str) -> str:
    """A query that sees other rows in some tables than their views have. Making views anew would
    take longer than most queries."""
    if not tables:
        return query
    made = ", ".join(f"{table} AS NOT MATERIALIZED ({rows})" for table, rows in tables.items())
    begin, rest = query.lstrip()[:5], query.lstrip()[5:]
    return f"WITH {made}, {rest}" if begin.upper() == "WITH " else f"WITH {made} {query}"


def _as_declared(column: Column) -> str:
    name = identifier(column.name)
    return name if column.stored is None else f"CAST({name} AS {column.type}) AS {name}"


def _footer_check(_table: Table, rows: str) -> str:
    """A query that reads no more than the footer of a file, and the names in it."""
    return select("*", rows, " LIMIT 0")


def _content_check(table: Table, rows: str) -> str:
    """A query that decodes every value; statistics in the footer cannot answer a hash."""
    hashes = ", ".join(f"bit_xor(hash({identifier(name)}))" for name in table.column_names)
    return select(hashes, rows)


# --- opening -------------------------------------------------------------------------------------


class _Version(msgspec.Struct):
    schema_version: int


def _versioned(location: str | Path, data: bytes) -> tuple[int, dict[str, Any]]:
    """The schema version of a `run.json` and its content."""
    try:
        # The version is read alone first: the rest of a newer file may look like anything.
        version = msgspec.json.decode(data, type=_Version).schema_version
        content = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged_run(location, error) from error
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"{location} was recorded with schema version {version}; this stepscope reads up to "
            f"version {SCHEMA_VERSION}. Upgrade stepscope to open it."
        )
    if version < 1:
        raise _damaged_run(location, f"schema version {version} never existed")
    return version, content


def _damaged_run(location: str | Path, reason: object) -> DamagedRunError:
    return DamagedRunError(f"{location}: {layout.RUN_KEY} is damaged: {reason}.")


def _why_not_a_run(location: str | Path) -> str:
    if is_remote(location):
        return (
            f"{location} is not a run: there is no {layout.RUN_KEY}. Name the URL of a run; "
            "stepscope ui shows those below a URL."
        )
    path = Path(location)
    if not path.exists():
        return f"{path} does not exist. Name the directory of a run."
    if not path.is_dir():
        return f"{path} is a file. A run is a directory; name that."
    return f"{path} is not a run: it holds no {layout.RUN_KEY}. Name the directory of a run."


# --- columns -------------------------------------------------------------------------------------


def _declared(name: str) -> Table:
    if name not in TABLES:
        raise ValueError(f"no table {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name]


def _chosen(table: Table, columns: Sequence[str] | None, encoded: Sequence[str]) -> tuple[str, ...]:
    chosen = table.column_names if columns is None else tuple(columns)
    unknown = [name for name in chosen if name not in table.column_names]
    if unknown or not chosen:
        raise ValueError(f"{table.name} has no columns {unknown}; it has {table.column_names}")
    wrong = [n for n in encoded if n not in chosen or table.column(n).type != "VARCHAR"]
    if wrong:
        raise ValueError(f"{table.name}: {wrong} are no string columns among those asked for")
    return chosen


def _make_dictionary(engine: duckdb.DuckDBPyConnection, source: str, column: str) -> list[str]:
    """Makes an ENUM type of a column's distinct strings, sorted, and returns them.

    A join would do as well, but DuckDB may turn it around and with it the order of the rows.
    """
    name, kind = identifier(column), identifier(f"strings of {column}")
    distinct = select(f"DISTINCT {name}", source, f" WHERE {name} IS NOT NULL ORDER BY 1")
    engine.execute(f"CREATE OR REPLACE TEMP TYPE {kind} AS ENUM ({distinct})")
    strings = engine.execute(f"SELECT unnest(enum_range(CAST(NULL AS {kind}))) AS s").fetchnumpy()
    return [str(each) for each in strings["s"]]


def _code_of(column: str) -> str:
    name, kind = identifier(column), identifier(f"strings of {column}")
    return f"COALESCE(CAST(enum_code(CAST({name} AS {kind})) AS INTEGER), -1) AS {name}"


def _string_codes(found: Array, strings: list[str]) -> DictColumn:
    """Codes with the strings that rows have: a condition may have left some out."""
    return DictColumn(np.asarray(found, dtype=np.int32), strings).in_use()


def _declared_array(table: Table, name: str, found: Array) -> Array:
    column = table.column(name)
    if column.type == "VARCHAR":
        return _without_masked_objects(found)
    values = found.astype(NUMPY_TYPES[column.type], copy=False)
    return np.ma.MaskedArray(values, mask=np.ma.getmaskarray(found)) if column.nullable else values


def _without_masked_objects(found: Array) -> Array:
    """Strings with None for null; DuckDB masks them instead, and only if there is one."""
    if not isinstance(found, np.ma.MaskedArray) or found.dtype != object:
        return found
    objects = np.array(found.data, dtype=object)
    objects[np.ma.getmaskarray(found)] = None
    return objects
