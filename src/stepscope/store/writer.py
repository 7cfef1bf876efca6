"""Writer of a run, in the monitor of the job that is being recorded."""

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
from stepscope.schema import TABLES, JobStatus, NodeInfo, ProcessInfo, RunInfo
from stepscope.store import layout
from stepscope.store.columns import Array, Batch, DictColumn, find_table, make_batch
from stepscope.store.engine import connect, identifier, literal, scan, select
from stepscope.store.layout import Merge, Segment
from stepscope.store.local import make_private_directory
from stepscope.store.location import is_remote, open_store

if TYPE_CHECKING:
    import duckdb

_MEMORY_LIMIT = "256MB"
_ROW_GROUP_ROWS = 61_440
"""Rows held in memory at once while segments merge; half of DuckDB's default."""


def create_run(location: str | Path, info: RunInfo, *, is_shared: bool = False) -> None:
    """Create a run.

    Args:
        location: directory, which may exist, or URL.
        info: content of `run.json`.
        is_shared: let the umask decide who may read a new directory; else only its owner may.

    Raises:
        RunExistsError: a run exists at that location.
        UsageError: a file is in the way.
        OSError: the location cannot be written.
    """
    try:
        if not is_remote(location) and not is_shared:
            make_private_directory(Path(location).absolute())
        created = open_store(location).put_if_absent(layout.RUN_KEY, _json(info))
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(
            f"{location} cannot be created: {error.filename} is a file. Use a new directory."
        ) from error
    if not created:
        raise RunExistsError(f"{location} already holds a run. Use a new directory.")


class RunWriter:
    """Writer of one node's records.

    A node has one appending writer at a time, because new flush numbers continue those on disk. A
    second writer may call `compact` meanwhile, in another thread or process. A writer is not
    thread-safe and must be created after a fork.

    Failures of the environment (a full disk, a read-only directory) raise OSError; then nothing
    was written, and the call may be repeated. A wrong column is an error of the caller and raises
    ValueError.
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
        """Release DuckDB's memory; all written data is durable already."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def prepare(self) -> None:
        """Start DuckDB and import the modules that the first append needs."""
        import numpy.ma  # noqa: F401

        with self._environment_errors():
            self._engine()

    def clone(self) -> RunWriter:
        """Create another writer of this node, for use in another thread with other tables."""
        return RunWriter(self._location, self.node)

    def put_node(self, info: NodeInfo) -> None:
        """Replace the description of this node."""
        self._store.put(layout.node_key(self.node), _json(info))

    def put_status(self, status: JobStatus) -> None:
        """Replace the job's status as this node sees it."""
        self._store.put(layout.status_key(self.node), _json(status))

    def put_process(self, info: ProcessInfo) -> None:
        """Replace the manifest of one process."""
        self._store.put(layout.process_key(info.process), _json(info))

    def put_document(
        self, kind: str, name: str, document: msgspec.Struct | Mapping[str, Any]
    ) -> None:
        """Replace `<kind>/<name>.json`."""
        self._store.put(layout.document_key(kind, name), _json(document))

    def add_document(
        self, kind: str, name: str, document: msgspec.Struct | Mapping[str, Any]
    ) -> bool:
        """Write `<kind>/<name>.json`; False, and nothing is written, if it exists."""
        return self._store.put_if_absent(layout.document_key(kind, name), _json(document))

    def append(self, table: str, columns: Mapping[str, Array | DictColumn]) -> int:
        """Write one segment and return its number of rows once it is durable.

        `columns` has every column of the table: strings as DictColumn, numbers as arrays, nulls in
        numbers as a masked array. A batch without rows writes nothing.
        """
        batch = make_batch(find_table(table), columns)
        if batch.row_count:
            with self._environment_errors():
                while not self._append(table, batch):
                    # Another writer of this node took the number: continue after it.
                    self._next.pop(table, None)
        return batch.row_count

    def compact(self, table: str) -> int:
        """Merge segments, sixteen of one width at a time; return the number of merges.

        Rows keep their order, except in tables with a clustering column. Each row is rewritten once
        per width, which takes about 300 ns, or up to 1000 ns if rows are reordered. The GIL is
        released meanwhile.
        """
        find_table(table)
        merge_count = 0
        with self._environment_errors():
            while True:
                segments = self._segments(table)
                for segment in layout.find_covered(segments):
                    self._store.delete(segment.key)
                merges = [
                    merge
                    for merge in layout.plan_merges(segments)
                    if merge.target not in self._unmergeable
                ]
                if not merges:
                    return merge_count
                merge_count += sum(self._merge(merge) for merge in merges)
                if any(merge.target.width > layout.FAN_IN for merge in merges):
                    # DuckDB 1.5 keeps the memory of a large merge until the connection closes.
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
        """Return the number after the last flush.

        It lists twice, because one listing may miss a file that another process is merging at that
        moment, and a number must never be used again.
        """
        numbers = []
        for _ in range(2):
            self._store.refresh()
            numbers += [segment.last for segment in self._segments(table)]
        return 1 + max(numbers, default=-1)

    def _merge(self, merge: Merge) -> bool:
        import duckdb

        rows = scan(self._store.local_paths([source.key for source in merge.sources]))
        cluster_by = TABLES[merge.target.table].cluster_by
        try:
            query = select("*", rows)
            # Up to the first width all rows share a row group, so clustering saves no reads.
            if cluster_by is not None and merge.target.width > layout.FAN_IN:
                query = self._clustered(rows, cluster_by)
            # False means that they were merged before and the old files outlived a crash.
            self._write(merge.target, query, [])
        except duckdb.IOException:
            raise
        except duckdb.Error:
            # A torn or foreign file. Readers skip and report it; its neighbors are not merged.
            self._unmergeable.add(merge.target)
            return False
        for source in merge.sources:
            self._store.delete(source.key)
        return True

    def _clustered(self, rows: str, column: str) -> str:
        """Return a query of rows by value of a column, each value's rows in their order.

        Reading the rows once per value takes as long as sorting them, and hardly any memory.
        """
        name = identifier(column)
        values = self._engine().execute(select(f"DISTINCT {name}", rows, " ORDER BY 1")).fetchall()
        parts = (select("*", rows, f" WHERE {name} = {literal(value)}") for (value,) in values)
        return " UNION ALL ".join(parts)

    def _write(self, segment: Segment, query: str, parameters: list[str]) -> bool:
        """Write the rows of a query as a segment; return False if that segment exists."""
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
        return [segment for key in keys if (segment := layout.parse_segment(key)) is not None]

    def _engine(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = connect(threads=1, memory_limit=_MEMORY_LIMIT, spill=False)
        return self._connection

    @contextmanager
    def _environment_errors(self) -> Iterator[None]:
        """Translate errors of DuckDB to OSError.

        Columns are checked before DuckDB gets them, so the cause is the disk or the memory rather
        than the caller.
        """
        import duckdb

        try:
            yield
        except duckdb.Error as error:
            self.close()  # after some errors a connection is unusable
            is_memory = isinstance(error, duckdb.OutOfMemoryException)
            code = errno.ENOMEM if is_memory else errno.EIO
            raise OSError(code, f"{os.strerror(code)}: {error}") from error


def _json(document: msgspec.Struct | Mapping[str, Any]) -> bytes:
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:
        # Arguments and paths that are not UTF-8 reach Python as lone surrogates.
        encoded = msgspec.json.encode(_valid_unicode(msgspec.to_builtins(document)))
    return msgspec.json.format(encoded, indent=2) + b"\n"


def _valid_unicode(value: Any) -> Any:
    """Replace characters that are not Unicode with '?' in plain data."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [_valid_unicode(item) for item in value]
        case dict():
            return {_valid_unicode(key): _valid_unicode(item) for key, item in value.items()}
        case _:
            return value
