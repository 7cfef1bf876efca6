"""Writer of a run, in the monitor of the job that is being recorded."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from stepscope import schema
from stepscope.schema import DURATION_VALUE_KINDS
from stepscope.store import engine, layout, rounding
from stepscope.store.documents import encode_document
from stepscope.store.engine import literal
from stepscope.store.layout import Merge, Segment
from stepscope.store.location import open_store

if TYPE_CHECKING:
    import duckdb

_MEMORY_LIMIT = "256MB"
_ROW_GROUP_ROWS = 61_440
"""Rows held in memory at once while segments merge; half of DuckDB's default."""
_ROUNDED_ROWS = 4 * _ROW_GROUP_ROWS
"""Rows of a segment that are rounded at once."""
_UNROUNDED_METRICS = ("missed_samples", "gpu_throttle_reasons")
"""Metrics whose values are few whole numbers."""
_KIND = "kind, name, depth, flags"
_ROUNDED_COLUMNS = {
    "spans": (
        'start_ns AS "start", coalesce(end_ns, start_ns) AS "end", depth, value, '
        # A span without an end takes nothing over from the spans with one.
        f"hash({_KIND}, end_ns IS NULL) AS kind, hash(process, log[:-2]) AS thread, "
        f"if(kind IN ({', '.join(map(literal, DURATION_VALUE_KINDS))}) AND value >= 0, "
        f"hash(process, log, {_KIND}), 0) AS series, kind = 'run_queue' AS is_fixed"
    ),
    "metrics": (
        f"value, if(metric IN ({', '.join(map(literal, _UNROUNDED_METRICS))}), 0, "
        "hash(process, log, metric, device)) AS series"
    ),
}
"""Columns that are rounded, and those that tell which rows are rounded together, by table."""


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

    def deferring_sync(self) -> AbstractContextManager[None]:
        """Let `sync`, or the end, make durable what is appended: that takes a tenth of the time."""
        return self._store.deferring_sync()

    def sync(self) -> None:
        """Make durable what was appended within `deferring_sync`."""
        self._store.sync()

    def clone(self) -> RunWriter:
        """Create another writer of this node, for use in another thread with other tables."""
        return RunWriter(self._location, self.node)

    def put_node(self, info: schema.NodeInfo) -> None:
        """Replace the description of this node."""
        self._store.put(layout.node_key(self.node), encode_document(info))

    def put_status(self, status: schema.JobStatus) -> None:
        """Replace the job's status as this node sees it."""
        self._store.put(layout.status_key(self.node), encode_document(status))

    def put_process(self, info: schema.ProcessInfo) -> None:
        """Replace the manifest of one process."""
        self._store.put(layout.process_key(info.process), encode_document(info))

    def put_document(
        self, kind: str, name: str, document: msgspec.Struct | Mapping[str, Any]
    ) -> None:
        """Replace `<kind>/<name>.json`."""
        self._store.put(layout.document_key(kind, name), encode_document(document))

    def put_tensor(self, key: str, elements: bytes) -> None:
        """Write the elements of a tensor, a file of NumPy's format; key by `layout.tensor_key`."""
        self._store.put(key, elements)

    def add_document(
        self, kind: str, name: str, document: msgspec.Struct | Mapping[str, Any]
    ) -> bool:
        """Write `<kind>/<name>.json`; False, and nothing is written, if it exists."""
        return self._store.put_if_absent(layout.document_key(kind, name), encode_document(document))

    def append(self, table: str, columns: Mapping[str, engine.Array | engine.DictColumn]) -> int:
        """Write one segment and return its number of rows once it is durable; see `deferring_sync`.

        `columns` has every column of the table: strings as DictColumn, numbers as arrays, nulls in
        numbers as a masked array. A batch without rows writes nothing.
        """
        batch = engine.make_batch(engine.find_table(table), columns)
        if batch.row_count:
            with self._environment_errors():
                self._append(table, batch)
        return batch.row_count

    def compact(self, table: str) -> int:
        """Merge segments, sixteen of one width at a time; return the number of merges.

        Rows keep their order, except in tables with a clustering column. Each row is rewritten once
        per width, which takes about 300 ns, or up to 1000 ns if rows are reordered. The GIL is
        released meanwhile.
        """
        engine.find_table(table)
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

    def limit_size(self, max_bytes: int) -> bool:
        """Round the oldest segments, more and more coarsely, until the recorded tables of this node
        have at most this size.

        Segments that were not merged yet stay as they are.

        Returns:
            False if the tables are larger and nothing is left to round.
        """
        with self._environment_errors():
            while self._recorded_bytes() > max_bytes:
                candidates = [
                    segment
                    for table in rounding.ROUNDED_TABLES
                    for segment in layout.select_visible(self._segments(table))
                    if segment.width >= layout.FAN_IN
                    and segment.coarseness < rounding.MAX_COARSENESS
                    and segment not in self._unmergeable
                ]
                if not candidates:
                    return False
                self._round(min(candidates, key=lambda s: (s.coarseness, s.first, s.table)))
                self.close()  # DuckDB keeps the memory otherwise, as after a large merge
        return True

    def _recorded_bytes(self) -> int:
        """Return the size of the segments with records of this node."""
        total = 0
        for name, table in schema.TABLES.items():
            if table.key == schema.RECORD_KEY:
                for segment in layout.select_visible(self._segments(name)):
                    try:
                        total += self._store.local_path(segment.key).stat().st_size
                    except FileNotFoundError:  # another process has merged it
                        continue
        return total

    def _round(self, segment: Segment) -> None:
        """Replace a segment by a coarser one."""
        import _duckdb as duckdb

        target = segment._replace(coarseness=segment.coarseness + 1)
        source = engine.scan([self._store.local_path(segment.key)])
        staged: list[Path] = []
        try:
            row_count = self._engine().execute(engine.select("count(*)", source)).fetchall()[0][0]
            for first in range(0, row_count, _ROUNDED_ROWS):
                staged.append(self._store.staging_path(target.key))
                rows = f"({engine.select('*', source, f' LIMIT {_ROUNDED_ROWS} OFFSET {first}')})"
                self._round_rows(target, rows, staged[-1])
            self._write(target, engine.select("*", engine.scan(staged)), [])
        except duckdb.IOException:
            raise
        except duckdb.Error:
            self._unmergeable.add(segment)  # a torn or foreign file, which readers report
            return
        finally:
            for path in staged:
                path.unlink(missing_ok=True)
        self._store.delete(segment.key)

    def _round_rows(self, target: Segment, rows: str, path: Path) -> None:
        """Write the rows of a query to a file, rounded for a segment."""
        columns = (
            self._engine().execute(engine.select(_ROUNDED_COLUMNS[target.table], rows)).fetchnumpy()
        )
        if target.table == "spans":
            rounded = _round_span_columns(columns, rounding.SPAN_GRIDS[target.coarseness - 1])
            replaced = (
                "new_start AS start_ns, if(end_ns IS NULL, NULL, new_end) AS end_ns, "
                "new_value AS value"
            )
        else:
            share = rounding.METRIC_GRIDS[target.coarseness - 1]
            value = rounding.round_samples(columns["value"], series=columns["series"], share=share)
            rounded = {"new_value": value}
            replaced = "coalesce(new_value, 'NaN'::DOUBLE) AS value"
        self._engine().register("rounded", rounded)
        try:
            joined = f"{rows} AS rows POSITIONAL JOIN rounded"
            self._copy(engine.select(f"rows.* REPLACE ({replaced})", joined), path, [])
        finally:
            self._engine().unregister("rounded")

    def _append(self, table: str, batch: engine.Batch) -> None:
        query = engine.select(", ".join(batch.expressions), "batch")
        self._engine().register("batch", batch.arrays)
        try:
            with self._stage(self._next_segment(table), query, batch.dictionaries) as staged:
                while not self._store.put_file(self._next_segment(table).key, staged):
                    # Another writer of this node took the number: continue after it.
                    self._next.pop(table)
        finally:
            self._engine().unregister("batch")
        self._next[table] += 1

    def _next_segment(self, table: str) -> Segment:
        if table not in self._next:
            self._next[table] = self._first_free(table)
            if self._next[table] and schema.TABLES[table].key == schema.RECORD_KEY:
                self._store.put_if_absent(layout.continued_key(table, self.node), b"")
        return Segment(table, self.node, self._next[table], self._next[table])

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
        import _duckdb as duckdb

        rows = engine.scan(self._store.local_paths([source.key for source in merge.sources]))
        cluster_by = schema.TABLES[merge.target.table].cluster_by
        try:
            query = engine.select("*", rows)
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
        name = engine.identifier(column)
        values = (
            self._engine()
            .execute(engine.select(f"DISTINCT {name}", rows, " ORDER BY 1"))
            .fetchall()
        )
        parts = (
            engine.select("*", rows, f" WHERE {name} = {literal(value)}") for (value,) in values
        )
        return " UNION ALL ".join(parts)

    def _write(self, segment: Segment, query: str, parameters: list[str]) -> bool:
        """Write the rows of a query as a segment; return False if that segment exists."""
        with self._stage(segment, query, parameters) as staged:
            return self._store.put_file(segment.key, staged)

    @contextmanager
    def _stage(self, segment: Segment, query: str, parameters: list[str]) -> Iterator[Path]:
        """Write the rows of a query to a file beside a segment, removed unless it is published."""
        staged = self._store.staging_path(segment.key)
        try:
            self._copy(query, staged, parameters)
            yield staged
        finally:
            staged.unlink(missing_ok=True)

    def _copy(self, query: str, path: Path, parameters: list[str]) -> None:
        """Write the rows of a query to a file."""
        self._engine().execute(
            f"COPY ({query}) TO {literal(str(path))} (FORMAT parquet, PARQUET_VERSION v2, "
            f"COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP_ROWS}, USE_TMP_FILE false)",
            parameters,
        )

    def _segments(self, table: str) -> list[Segment]:
        keys = self._store.list(layout.table_prefix(table, self.node))
        return [segment for key in keys if (segment := layout.parse_segment(key)) is not None]

    def _engine(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = engine.connect(threads=1, memory_limit=_MEMORY_LIMIT, spill=False)
        return self._connection

    @contextmanager
    def _environment_errors(self) -> Iterator[None]:
        """Translate errors of DuckDB to OSError.

        Columns are checked before DuckDB gets them, so the cause is the disk or the memory rather
        than the caller.
        """
        import _duckdb as duckdb

        try:
            yield
        except duckdb.Error as error:
            self.close()  # after some errors a connection is unusable
            is_memory = isinstance(error, duckdb.OutOfMemoryException)
            code = errno.ENOMEM if is_memory else errno.EIO
            raise OSError(code, f"{os.strerror(code)}: {error}") from error


def _round_span_columns(columns: dict[str, engine.Array], share: float) -> dict[str, engine.Array]:
    """Round the times and values of spans.

    Those without a core end with a stack sample, by which readers find them, and so keep their
    times.
    """
    names = ("start", "end", "depth", "kind", "thread")
    rows = np.flatnonzero(~columns["is_fixed"])
    spans = {name: columns[name][rows] for name in names}
    grid_ns = rounding.find_grids(
        spans["start"], kind=spans["kind"], thread=spans["thread"], share=share
    )
    start, end, value = (columns[name].copy() for name in ("start", "end", "value"))
    start[rows], end[rows] = rounding.round_spans(**spans, grid_ns=grid_ns)
    series = columns["series"][rows]
    value[rows] = rounding.round_durations(value[rows], series=series, grid_ns=grid_ns)
    return {"new_start": start, "new_end": end, "new_value": value}
