"""Opening of a run, finished or still growing, and read access to it."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from stepscope import cores, errors, schema
from stepscope.store import layout
from stepscope.store.engine import (
    Array,
    DictColumn,
    Upgrade,
    code_expression,
    create_dictionaries,
    create_empty,
    find_table,
    identifier,
    select,
    select_columns,
    to_declared_array,
    unmask_objects,
    upgrades_from,
)
from stepscope.store.launchers import correct_heartbeat
from stepscope.store.local import LocalStore
from stepscope.store.location import is_remote, open_store
from stepscope.store.objectstore import ObjectStore
from stepscope.store.queries import TRACE_COLUMN, Extents, SegmentFilter, TableQueries, with_tables
from stepscope.store.rounding import ROUNDED_TABLES

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")
_SMALL_BYTES = 1 << 16
"""Size of the files of a table up to which its strings are encoded in Python."""


class RunReader:
    """Reader of a run. Usable from several threads; queries run one after the other.

    Every call sees what the run contains at that moment. Numbers are arrays of the declared type.
    Nulls in numbers are a mask (see `table` and `sql`), nulls in strings are None.
    """

    def __init__(
        self,
        store: ObjectStore,
        info: schema.RunInfo,
        upgrades: tuple[Upgrade, ...] = (),
        *,
        threads: int | None = None,
    ) -> None:
        self.info = info
        self._store = store
        self._queries = TableQueries(store, upgrades, threads=threads or cores.available_cores())
        self._broken: dict[str, str] = {}  # key of a manifest -> sentence
        self._used: set[str] = set()  # tables and keys of manifests

    @property
    def is_local(self) -> bool:
        """True if the run is a directory, into which a job on this machine may be writing."""
        return isinstance(self._store, LocalStore)

    @property
    def directory(self) -> Path | None:
        """Directory of the run; None if it is in an object store."""
        return self._store.root if isinstance(self._store, LocalStore) else None

    @property
    def location(self) -> str:
        """Directory or URL, at which another process can open the run."""
        return self._store.url

    def release_memory(self) -> None:
        """Release what the database keeps of large results."""
        self._queries.release_memory()

    def refresh(self) -> None:
        """Drop cached listings, so that the next call sees the latest writes to a bucket."""
        self._store.refresh()

    @property
    def damage(self) -> list[str]:
        """One sentence per file that could not be read so far."""
        return [*self._broken.values(), *self._queries.damage_of(schema.TABLES)]

    @property
    def damage_used(self) -> list[str]:
        """The same of the tables and manifests that were read with this object."""
        manifests = [text for key, text in self._broken.items() if key in self._used]
        return [*manifests, *self._queries.damage_of(self._used)]

    @property
    def tables_used(self) -> list[str]:
        """Tables that were read with this object."""
        return [table for table in schema.TABLES if table in self._used]

    @property
    def unreadable(self) -> dict[str, tuple[str, str]]:
        """Table and sentence of each segment that could not be read so far, by its key."""
        return self._queries.unreadable

    def add_unreadable(self, segments: Mapping[str, tuple[str, str]]) -> None:
        """Count segments of the run that another process could not read as damage."""
        self._queries.add_unreadable(segments)

    @contextmanager
    def trace_use(self) -> Iterator[RunReader]:
        """Give a reader of the same run whose `damage_used` begins empty; what it reads counts for
        this one too."""
        reader = copy.copy(self)
        reader._used = set()
        yield reader
        self._used |= reader._used

    # --- manifests ---------------------------------------------------------------------------

    def nodes(self) -> dict[str, schema.NodeInfo]:
        """Return the nodes by name."""
        manifests = self._read_manifests(layout.NODES, "/node.json", schema.NodeInfo)
        return {layout.node_of_key(key): info for key, info in manifests.items()}

    def statuses(self) -> dict[str, schema.JobStatus]:
        """Return the status of the job by node, as its monitor wrote it. Where its clock differs
        from that of the file system, the time of the heartbeat is that of the clock that is right
        (`correct_heartbeat`)."""
        manifests = self._read_manifests(layout.NODES, "/status.json", schema.JobStatus)
        return {
            layout.node_of_key(key): self._correct_heartbeat(key, status)
            for key, status in manifests.items()
        }

    def _correct_heartbeat(self, key: str, status: schema.JobStatus) -> schema.JobStatus:
        if not self.is_local or status.state.is_final:
            return status
        try:
            times = [self._store.local_path(k).stat().st_mtime_ns for k in (key, layout.RUN_KEY)]
        except OSError:  # it is being replaced
            return status
        return correct_heartbeat(
            status, written_ns=times[0], run_written_ns=times[1], now_ns=time.time_ns()
        )

    def processes(self) -> list[schema.ProcessInfo]:
        """Return the manifests of the job's processes."""
        return list(self._read_manifests(layout.PROCESSES, ".json", schema.ProcessInfo).values())

    @overload
    def document(self, name: str, *, kind: str = ...) -> Any: ...
    @overload
    def document(self, name: str, *, kind: str = ..., as_type: type[T]) -> T | None: ...
    def document(self, name: str, *, kind: str = "findings", as_type: Any = Any) -> Any:
        """Read a document as plain data or a msgspec type; None if it is missing or damaged."""
        key = layout.document_key(kind, name)
        return self._decode(key, self._store.get_all([key])[0], as_type)

    def documents(self, kind: str, as_type: type[T]) -> dict[str, T]:
        """Read all documents of a kind by name, damaged ones excepted."""
        prefix = layout.document_prefix(kind)
        documents = self._read_manifests(prefix, ".json", as_type)
        return {
            layout.decode_file_name(key.removeprefix(prefix).removesuffix(".json")): document
            for key, document in documents.items()
        }

    def _read_manifests(self, prefix: str, suffix: str, as_type: type[T]) -> dict[str, T]:
        keys = [key for key in self._store.list(prefix) if key.endswith(suffix)]
        manifests = {
            key: self._decode(key, content, as_type)
            for key, content in zip(keys, self._store.get_all(keys), strict=True)
        }
        return {key: manifest for key, manifest in manifests.items() if manifest is not None}

    def _decode(self, key: str, content: bytes | None, as_type: type[T]) -> T | None:
        if content is None:
            return None
        self._used.add(key)
        try:
            manifest = msgspec.json.decode(content, type=as_type)
        except schema.MALFORMED_JSON as error:
            self._broken[key] = f"{key} cannot be read: {error}."
            return None
        self._broken.pop(key, None)  # it was replaced by a valid one
        return manifest

    def tensor(self, process: str, log: str, seq: int) -> bytes:
        """Read the elements of a tensor, a file of NumPy's format, by the key of its row.

        Raises:
            DamagedRunError: the file is missing.
        """
        key = layout.tensor_key(process, log, seq)
        content = self._store.get_all([key])[0]
        if content is None:
            raise errors.DamagedRunError(
                f"{key} is missing, so the elements of a tensor cannot be read."
            )
        return content

    # --- tables ------------------------------------------------------------------------------

    def has(self, table: str) -> bool:
        """Return True if a table has rows."""
        self._used.add(find_table(table).name)
        return bool(self._queries.list_segments(table))

    def row_count(self, table: str) -> int:
        """Number of rows of a table; it is in the Parquet footers, so no row is read."""
        query = select("count(*) AS n", find_table(table).name)
        counts = self._run([table], lambda engine: engine.execute(query).fetchnumpy())
        return int(counts["n"][0])

    @overload
    def table(
        self,
        name: str,
        columns: Sequence[str] | None = ...,
        *,
        condition: str | None = ...,
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
        condition: str | None = ...,
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
        condition: str | None = None,
        parameters: Sequence[object] = (),
        order_by: str | None = None,
        traces: Sequence[int] = (),
        encoded: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Read columns of a table, by default in the order in which rows were appended.

        Args:
            name: the table.
            columns: names of columns; all by default.
            condition: SQL condition.
            parameters: values for the '?' in `condition`.
            order_by: SQL.
            traces: see `sql`.
            encoded: string columns to return as DictColumn, several times faster than as objects.

        Returns:
            Arrays by column. A nullable column is always a masked array, or objects and None for
            strings; other columns never are.
        """
        table = find_table(name)
        selected = select_columns(table, columns, encoded)
        if not self.has(name):  # of an absent table nothing is asked of DuckDB
            return create_empty(table, selected, encoded)
        filtering = f" WHERE {condition}" if condition else ""
        order = f" ORDER BY {order_by}" if order_by else ""
        segments = SegmentFilter(traces=traces)

        def fetch(engine: duckdb.DuckDBPyConnection) -> dict[str, Any]:
            filtered = self._queries.filtered_tables([name], segments)
            source = f"({filtered[name]}) AS {name}" if filtered else name
            # Types take milliseconds to create, and strings of a small table are soon encoded.
            is_small = self._queries.count_bytes(name) <= _SMALL_BYTES
            typed = () if is_small else encoded
            dictionaries = create_dictionaries(engine, f"{source}{filtering}", parameters, typed)
            expressions = ", ".join(
                code_expression(column) if column in dictionaries else identifier(column)
                for column in selected
            )
            query = select(expressions, source, f"{filtering}{order}")
            result = engine.execute(query, list(parameters)).fetchnumpy()
            arrays: dict[str, Any] = {}
            for column in selected:
                if column in dictionaries:
                    arrays[column] = DictColumn(result[column], dictionaries[column])
                else:
                    arrays[column] = to_declared_array(table, column, result[column])
                    if column in encoded:
                        arrays[column] = DictColumn.encode_sorted(arrays[column])
            return arrays

        return self._run([name], fetch)

    def _run(
        self,
        tables: Sequence[str],
        query: Callable[[duckdb.DuckDBPyConnection], T],
        node: str | None = None,
    ) -> T:
        self._used.update(tables)
        return self._queries.run(tables, query, node)

    def times(self, table: str) -> dict[str, Extents]:
        """First and last value of each time column by node, from the Parquet footers."""
        times: dict[str, Extents] = {}
        if not self.has(table):
            return times
        extents = self._run([table], functools.partial(self._read_extents, table))
        for segment, segment_extents in extents.items():
            node_times = times.setdefault(segment.node, {})
            for column, (first, last) in segment_extents.items():
                if column != TRACE_COLUMN:
                    earlier = node_times.get(column, (first, last))
                    node_times[column] = min(first, earlier[0]), max(last, earlier[1])
        return times

    def rounded_times(self) -> tuple[int, int] | None:
        """Time of the first and of the last record that is in a coarse segment; None without one.

        These records were rounded (`store.rounding`), because the run had reached its size limit.
        """
        times: list[int] = []
        for table in ROUNDED_TABLES:
            if any(segment.coarseness for segment in self._queries.list_segments(table)):
                read_extents = functools.partial(self._read_extents, table)
                column = find_table(table).time_column
                for segment, extents in self._queries.run([table], read_extents).items():
                    if segment.coarseness and column in extents:
                        times += extents[column]
        return (min(times), max(times)) if times else None

    def _read_extents(
        self, table: str, _engine: duckdb.DuckDBPyConnection
    ) -> dict[layout.Segment, Extents]:
        return self._queries.segment_extents(table)

    def sql(
        self,
        query: str,
        parameters: Sequence[object] = (),
        *,
        within: tuple[int, int] | None = None,
        traces: Sequence[int] = (),
        node: str | None = None,
    ) -> dict[str, Array]:
        """Run a DuckDB query in which each table is a view of its name.

        A numeric column of the result is a masked array only if it contains a null. DuckDB returns
        sums of integers as float64: write `CAST(sum(x) AS BIGINT)` where nanoseconds matter.

        Args:
            query: SQL.
            parameters: values for its '?'.
            within: if the query selects only rows between two times (the second one excluded) of
                the first time column of their table: these times. Other segments are not opened.
            traces: if the query selects only rows of some traces: their numbers, likewise.
            node: query the rows of this node alone.
        """
        tables = [table for table in schema.TABLES if table in query.lower()]
        condition = SegmentFilter(within, traces)

        def fetch(engine: duckdb.DuckDBPyConnection) -> dict[str, Array]:
            filtered = self._queries.filtered_tables(tables, condition)
            return engine.execute(with_tables(filtered, query), list(parameters)).fetchnumpy()

        result = self._run(tables, fetch, node)
        return {name: unmask_objects(values) for name, values in result.items()}

    def run_locked(
        self,
        tables: Sequence[str],
        query: Callable[[duckdb.DuckDBPyConnection], T],
        *,
        memory_limit: str,
    ) -> T:
        """Run SQL of a user on a connection of its own, in which each of some tables is a view of
        its name, and which can read no other file.

        Args:
            tables: names of tables of the schema.
            query: runs it. It must not raise DuckDB's error of an interrupted query or of missing
                memory, which are taken for damage of the files.
            memory_limit: such as 2GB.
        """

        def fetch(_engine: duckdb.DuckDBPyConnection) -> T:
            locked = self._queries.connect_locked(tables, memory_limit=memory_limit)
            with closing(locked) as connection:
                return query(connection)

        return self._run(tables, fetch)


def open_run(location: str | Path, *, threads: int | None = None) -> RunReader:
    """Open a run for reading.

    Args:
        location: directory or URL.
        threads: threads per query; by default the number of available cores.

    Raises:
        NotARunError: there is no run at that location.
        DamagedRunError: its `run.json` is invalid.
        NewerSchemaError: a later version of stepscope wrote it.
        OSError: a bucket cannot be reached.
    """
    store = open_store(location)
    try:
        data = store.get(layout.RUN_KEY)
    except (FileNotFoundError, NotADirectoryError):
        raise errors.NotARunError(_explain_missing_run(location)) from None
    except OSError as error:
        if is_remote(location):  # without a connection, the content is unknown
            raise
        raise errors.NotARunError(f"{location} cannot be read: {error.strerror}.") from error
    version, content = _decode_versioned(location, data)
    upgrades = upgrades_from(version)
    for upgrade in upgrades:
        content = upgrade.run_info(content)
    try:
        info = msgspec.convert(content, schema.RunInfo)
    except msgspec.ValidationError as error:
        raise _damaged_run(location, error) from error
    return RunReader(store, info, upgrades, threads=threads)


class _Version(msgspec.Struct):
    schema_version: int


def _decode_versioned(location: str | Path, data: bytes) -> tuple[int, dict[str, Any]]:
    """Decode the schema version and the content of a `run.json`."""
    try:
        # The version is decoded first: the other fields of a newer file may have any form.
        version = msgspec.json.decode(data, type=_Version).schema_version
        content = msgspec.json.decode(data, type=dict[str, Any])
    except schema.MALFORMED_JSON as error:
        is_page = is_remote(location) and data.lstrip().startswith(b"<")
        page = "it is a web page; a proxy or a login page answered in place of the store"
        raise _damaged_run(location, page if is_page else error) from error
    if version > schema.SCHEMA_VERSION:
        raise errors.NewerSchemaError(
            f"{location} was recorded with schema version {version}; this stepscope reads up to "
            f"version {schema.SCHEMA_VERSION}. Upgrade stepscope to open it."
        )
    if version < 1:
        raise _damaged_run(location, f"schema version {version} does not exist")
    return version, content


def _damaged_run(location: str | Path, reason: object) -> errors.DamagedRunError:
    return errors.DamagedRunError(f"{location}: {layout.RUN_KEY} is damaged: {reason}.")


def _explain_missing_run(location: str | Path) -> str:
    if is_remote(location):
        return (
            f"{location} is not a run: it has no {layout.RUN_KEY}, or not yet, if its job has just "
            "started. Pass the URL of a run; `stepscope ui URL` lists the runs below a URL."
        )
    path = Path(location)
    if not path.exists():
        return f"{path} does not exist. Pass the directory of a run."
    if not path.is_dir():
        return f"{path} is a file, but a run is a directory. Pass the directory of a run."
    return f"{path} is not a run: it has no {layout.RUN_KEY}. Pass the directory of a run."
