"""Writing a run, beside the job that is being recorded."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from stepscope.errors import RunExistsError, UsageError
from stepscope.schema import TABLES, JobStatus, NodeInfo, ProcessInfo, RunInfo, Table
from stepscope.store import layout
from stepscope.store.columns import Array, Batch, DictColumn, make_batch
from stepscope.store.engine import connect, identifier, literal, scan, select
from stepscope.store.layout import Merge, Segment
from stepscope.store.objectstore import open_store

if TYPE_CHECKING:
    import duckdb

__all__ = ["RunWriter", "create_run"]

_MEMORY_LIMIT = "256MB"
_ROW_GROUP_ROWS = 61_440
"""Rows that lie in memory at once while segments merge; half of DuckDB's default."""


def create_run(location: str | Path, info: RunInfo) -> None:
    """Makes a new run; RunExistsError when there is one, OSError when it cannot be written."""
    try:
        created = open_store(location).put_if_absent(layout.RUN_KEY, _json(info))
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(
            f"{location} cannot become a run directory: {error.filename} is a file. "
            "Name a new directory."
        ) from error
    if not created:
        raise RunExistsError(f"{location} already holds a run. Name a new directory.")


class RunWriter:
    """Writes what one node knows into a run.

    A node has one appending writer at a time, because flushes are numbered by counting on from
    what lies on disk. A second one may `compact` meanwhile, in a thread or process of its own.
    A writer is not thread-safe and must be opened after a fork.

    Whatever the environment refuses (a full disk, a read-only directory) is an OSError; then
    nothing was written, and the same call may be repeated. A wrong column is the caller's
    mistake and a ValueError.
    """

    def __init__(self, location: str | Path, node: str) -> None:
        self.node = node
        self._location = location
        self._store = open_store(location)
        self._next: dict[str, int] = {}
        self._unmergeable: set[Segment] = set()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives DuckDB's memory back; everything written is safe already."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def prepare(self) -> None:
        """Starts DuckDB and loads what else the first append does otherwise."""
        import numpy.ma  # noqa: F401

        with self._environment_errors():
            self._engine()

    def twin(self) -> RunWriter:
        """Another writer of this node, for another thread and other tables than this one's."""
        return RunWriter(self._location, self.node)

    def put_node(self, info: NodeInfo) -> None:
        """Replaces the description of this node."""
        self._store.put(layout.node_key(self.node), _json(info))

    def put_status(self, status: JobStatus) -> None:
        """Replaces the job's status as this node sees it."""
        self._store.put(layout.status_key(self.node), _json(status))

    def put_process(self, info: ProcessInfo) -> None:
        """Replaces what one process said of itself."""
        self._store.put(layout.process_key(info.process), _json(info))

    def put_document(
        self, kind: str, name: str, document: msgspec.Struct | Mapping[str, Any]
    ) -> None:
        """Replaces `<kind>/<name>.json`."""
        self._store.put(layout.document_key(kind, name), _json(document))

    def append(self, table: str, columns: Mapping[str, Array | DictColumn]) -> int:
        """Writes one segment and returns its number of rows once it is durable.

        Every column of the table is given: strings as DictColumn, numbers as arrays, nulls in
        numbers as a masked array. No rows write nothing.
        """
        batch = make_batch(_declared(table), columns)
        if batch.rows:
            with self._environment_errors():
                while not self._append(table, batch):
                    # Another writer of this node took the number: go on behind it.
                    self._next.pop(table, None)
        return batch.rows

    def compact(self, table: str) -> int:
        """Merges segments, sixteen of a width at a time; returns how many merges were made.

        Rows keep their order, but for those that a table wants together. Each row is rewritten
        once per width, at about a third of a microsecond and up to one where it changes its
        place, with the interpreter free to run meanwhile.
        """
        _declared(table)
        done = 0
        with self._environment_errors():
            while True:
                present = self._segments(table)
                for segment in layout.covered(present):
                    self._store.delete(segment.key)
                possible = [
                    merge
                    for merge in layout.merges(present)
                    if merge.target not in self._unmergeable
                ]
                if not possible:
                    return done
                done += sum(self._merge(merge) for merge in possible)
                if any(merge.target.width > layout.FAN_IN for merge in possible):
                    # DuckDB 1.5 keeps the memory that a large merge took until it is closed.
                    self.close()

    def _append(self, table: str, batch: Batch) -> bool:
        if table not in self._next:
            self._next[table] = self._first_free(table)
        number = self._next[table]
        segment = Segment(table, self.node, number, number)
        engine = self._engine()
        engine.register("batch", batch.arrays)
        try:
            query = select(batch.expressions, "batch")
            written = self._write(segment, query, batch.dictionaries)
        finally:
            engine.unregister("batch")
        if written:
            self._next[table] = number + 1
        return written

    def _first_free(self, table: str) -> int:
        """The number behind the last flush. Listed twice, because one listing may miss a file
        that another process is merging just then, and a number must never be used again."""
        last = []
        for _ in range(2):
            self._store.look_again()
            last += [each.last for each in self._segments(table)]
        return 1 + max(last, default=-1)

    def _merge(self, merge: Merge) -> bool:
        import duckdb

        rows = scan(self._store.local_paths([member.key for member in merge.members]))
        together = TABLES[merge.target.table].together
        try:
            query = select("*", rows)
            # Up to the first width they share a row group: it would save no reader anything.
            if together is not None and merge.target.width > layout.FAN_IN:
                query = self._value_by_value(rows, together)
            # False means that it was merged before and the old files outlived a crash.
            self._write(merge.target, query, [])
        except duckdb.IOException:
            raise
        except duckdb.Error:
            # A torn or foreign file. Readers skip and report it; its neighbours stay as they are.
            self._unmergeable.add(merge.target)
            return False
        for member in merge.members:
            self._store.delete(member.key)
        return True

    def _value_by_value(self, rows: str, column: str) -> str:
        """A query of rows in the order of a column, and within a value in their own.

        Reading them once per value takes no more time than sorting, and next to no memory.
        """
        name = identifier(column)
        values = self._engine().execute(select(f"DISTINCT {name}", rows, " ORDER BY 1")).fetchall()
        parts = (select("*", rows, f" WHERE {name} = {literal(value)}") for (value,) in values)
        return " UNION ALL ".join(parts)

    def _write(self, segment: Segment, query: str, parameters: list[str]) -> bool:
        """Writes the rows of a query as a segment; False when that segment exists."""
        staged = self._store.staging_path(segment.key)
        try:
            self._engine().execute(
                f"COPY ({query}) TO {literal(str(staged))} (FORMAT parquet, PARQUET_VERSION v2, "
                f"COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP_ROWS}, USE_TMP_FILE false)",
                parameters,
            )
            return self._store.put_file(segment.key, staged)
        finally:
            staged.unlink(missing_ok=True)

    def _segments(self, table: str) -> list[Segment]:
        keys = self._store.list(layout.table_prefix(table, self.node))
        return [segment for key in keys if (segment := layout.segment_of(key)) is not None]

    def _engine(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = connect(threads=1, memory_limit=_MEMORY_LIMIT, spill=False)
        return self._connection

    @contextmanager
    def _environment_errors(self) -> Iterator[None]:
        """Columns are checked before DuckDB sees them, so what DuckDB refuses is no mistake of
        the caller but of the disk or the memory."""
        import duckdb

        try:
            yield
        except duckdb.Error as error:
            self.close()  # after some errors a connection serves no more
            lacking = isinstance(error, duckdb.OutOfMemoryException)
            number = errno.ENOMEM if lacking else errno.EIO
            raise OSError(number, f"{os.strerror(number)}: {error}") from error


def _declared(table: str) -> Table:
    if table not in TABLES:
        raise ValueError(f"no table {table!r}; there are {', '.join(TABLES)}")
    return TABLES[table]


def _json(document: msgspec.Struct | Mapping[str, Any]) -> bytes:
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:
        # Arguments and paths that are not UTF-8 reach Python as lone surrogates.
        encoded = msgspec.json.encode(_whole(msgspec.to_builtins(document)))
    return msgspec.json.format(encoded, indent=2) + b"\n"


def _whole(value: Any) -> Any:
    """Plain data with '?' for what is not Unicode."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [_whole(each) for each in value]
        case dict():
            return {_whole(name): _whole(each) for name, each in value.items()}
        case _:
            return value
