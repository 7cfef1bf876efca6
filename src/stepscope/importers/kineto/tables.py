"""Rows of the trace tables, made from a linked slice, and their storage.

The columns of a table are those of its declaration in `schema`. Each comes from the event itself
(place, name, times), from an argument, from a link or from a constant of the kind.

Storage of the rows of traces, usually in background threads. A segment costs as much time as ten
thousand rows, however few it has. So the traces of a group share segments: when too many rows are
in memory, the table with the most is stored, and the others when the group is complete, in the
order of the traces, the rows of `traces` last.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from stepscope import schema, store
from stepscope.importers.kineto.arguments import COLLECTIVE_KINDS, Kind, OtherKind, collective_rows
from stepscope.importers.kineto.columns import Columns
from stepscope.importers.kineto.gather import Gathered, absent
from stepscope.importers.kineto.linking import LINKED_COLUMNS, Linked

Rows = Mapping[str, Any]
_TIMES = {"start_ns": "start", "t_ns": "start", "duration_ns": "duration"}
_EVENT_COLUMNS = frozenset({"trace", "id", "track", "name", "args", *_TIMES})
_AXES = {
    column: (argument.column, axis)
    for kind in schema.EVENT_KINDS
    for argument in kind.stored_arguments
    if argument.type == "sizes"
    for axis, column in enumerate(argument.table_columns)
}
"""Column in memory and index in it of the columns that hold one of several sizes."""


class TableMaker:
    """Makes the rows of one trace.

    Args:
        trace: number of the trace.
        base_ns: nanoseconds to add to the times of the file.
        gathered: the events, for their strings.
    """

    def __init__(self, trace: int, base_ns: int, gathered: Gathered) -> None:
        self._trace = trace
        self._base_ns = base_ns
        self._gathered = gathered
        self._values: list[str] = []

    def tables(self, linked: Linked) -> Iterator[tuple[str, Rows]]:
        """Yield the tables with at least one row."""
        for table in schema.EVENT_TABLES:
            kinds = [kind for kind in linked.rows if kind.table is table]
            if any(len(linked.rows[kind]["id"]) for kind in kinds):
                yield table.name, self.complete(table.name, self._events(table, linked, kinds))
        collectives = list(self._collectives(linked))
        if collectives:
            yield "collectives", self.complete("collectives", collective_rows(collectives))
        parts = [self._other_events(kind, columns) for kind, columns in linked.other_events]
        if any(len(part["id"]) for part in parts):
            yield "other_events", self.complete("other_events", store.join_columns(parts))

    def complete(self, table: str, columns: Rows) -> Rows:
        """Return columns as the store takes them: all declared ones, -1 as null where allowed."""
        rows = len(next(iter(columns.values())))
        stored: dict[str, Any] = {}
        for column in schema.TABLES[table].columns:
            values = columns.get(column.name)
            if column.name == "trace":
                stored["trace"] = np.full(rows, self._trace, dtype=np.int64)
            elif column.type == "VARCHAR":
                stored[column.name] = self._strings(values, rows)
            elif values is None:
                stored[column.name] = np.ma.MaskedArray(np.zeros(rows, dtype=np.int64), mask=True)
            elif column.type == "DOUBLE":
                is_absent = np.isnan(values) & column.nullable
                stored[column.name] = np.ma.MaskedArray(values, mask=is_absent)
            else:
                stored[column.name] = _fit(column, values)
        return stored

    def _strings(self, values: Any, rows: int) -> store.DictColumn:
        if values is None:
            return store.DictColumn(np.full(rows, -1, dtype=np.int32), [])
        if isinstance(values, store.DictColumn):
            return values
        if len(self._values) != len(self._gathered.strings):
            # A copy: rows are stored in parallel to the next slice, which may add strings.
            self._values = list(self._gathered.strings)
        return store.DictColumn(values, self._values)

    def _events(
        self, table: schema.Table, linked: Linked, kinds: Sequence[schema.EventKind]
    ) -> Rows:
        """Return the rows of a table, kind by kind."""
        names = [name for name in table.column_names if name != "trace"]
        parts = [
            {name: self._column(name, kind, linked.rows[kind]) for name in names} for kind in kinds
        ]
        return store.join_columns(parts)

    def _column(self, name: str, kind: schema.EventKind, columns: Columns) -> Any:
        rows = len(columns["id"])
        if name in columns:
            return columns[name]
        if name in _TIMES:
            values = columns[_TIMES[name]]
            return values if name == "duration_ns" else values + self._base_ns
        if name in _AXES:
            sizes, axis = _AXES[name]
            return columns[sizes][:, axis]
        if name in kind.constants:
            value = kind.constants[name]
            if isinstance(value, str):
                return np.full(rows, self._gathered.code_of(value), dtype=np.int32)
            return np.full(rows, value, dtype=np.int64)
        return absent(name, rows)  # a column of another kind of the table

    def _collectives(self, linked: Linked) -> Iterator[tuple[int, bool, str]]:
        """Yield id, device flag and description of events that describe a collective."""
        for kind in COLLECTIVE_KINDS:
            columns = linked.rows[kind]
            rows = np.flatnonzero(columns["collective"] >= 0)
            codes = columns["collective"][rows].tolist()
            for number, code in zip(columns["id"][rows].tolist(), codes, strict=True):
                yield number, kind.on_device, self._gathered.strings[code]

    def _other_events(self, kind: Kind, columns: Columns) -> Rows:
        """Return rows of events without a table of their own, or with impossible times."""
        rows = len(columns["id"])
        duration = columns.get("duration", np.zeros(rows, dtype=np.int64))
        is_instant = np.full(rows, "duration" not in columns)
        if kind is OtherKind.OTHER:
            is_instant = columns["has_duration"] == 0
            duration = np.where(is_instant, -1, duration)
        texts: dict[str, Any] = {name: columns.get(name) for name in ("phase", "category", "args")}
        if isinstance(kind, schema.EventKind):
            phase = "X" if kind.is_range else "i"
            for name, text in (("phase", phase), ("category", kind.categories[0])):
                texts[name] = np.full(rows, self._gathered.code_of(text), dtype=np.int32)
        return {
            "id": columns["id"],
            "track": columns["track"],
            "name": columns["name"],
            "start_ns": columns["start"] + self._base_ns,
            "duration_ns": np.ma.MaskedArray(duration, mask=is_instant),
            **{
                name: absent(name, rows) if values is None else values
                for name, values in texts.items()
            },
        }


def _fit(column: schema.Column, values: Any) -> Any:
    """Return integers as their column takes them: absent and too large ones are null, or -1."""
    is_masked = isinstance(values, np.ma.MaskedArray)
    data = np.ma.getdata(values)
    is_absent = np.ma.getmaskarray(values) if is_masked else values == -1
    limits = np.iinfo(store.NUMPY_TYPES[column.type])
    if np.iinfo(data.dtype).bits > limits.bits and len(data):
        is_wrong = (data < limits.min) | (data > limits.max)
        if is_wrong.any():
            data, is_absent = np.where(is_wrong, -1, data), is_absent | is_wrong
    return np.ma.MaskedArray(data, mask=is_absent) if column.nullable else data


def check_sources(kinds: Sequence[schema.EventKind]) -> None:
    """Check that the importer fills every column of the tables of kinds.

    Raises:
        ValueError: the sentence names the file and the column.
    """
    for table in dict.fromkeys(kind.table for kind in kinds):
        sharers = [kind for kind in kinds if kind.table is table]
        sources = [_sources(kind) for kind in sharers]
        for column in table.columns:
            filled = [column.name in names for names in sources]
            if not (any(filled) if column.nullable else all(filled)):
                names = ", ".join(kind.name for kind in sharers)
                raise ValueError(
                    f"schema/tables/{table.name}.py: no argument, constant or link of {names} in "
                    f"schema/event_kinds.py fills the column {column.name}"
                )


def _sources(kind: schema.EventKind) -> set[str]:
    """Return the columns that the importer fills for a kind."""
    arguments = [name for a in kind.stored_arguments for name in a.table_columns]
    return {*_EVENT_COLUMNS, *arguments, *kind.constants, *LINKED_COLUMNS[kind.linking]}


check_sources(schema.EVENT_KINDS)


GROUP_ROWS = 600_000
"""Rows of the traces of a group."""
HELD_ROWS = 40_000
"""Rows in memory beyond which the largest table is stored."""


class Storing:
    """Appends rows, in lanes that take about the same time.

    Args:
        writer: writer of the run.
        group_rows: rows of the traces of a group; 0 for one trace in each.
        held_rows: rows in memory beyond which the largest table is stored; 0 to store rows
            immediately.
        lanes: number of background threads, each of which writes one table at once: 1 or 2, or 0
            to write in the thread that appends, where no core is free.
        defers_sync: make segments durable together. A power loss before may leave some that are cut
            short, and compaction may merge some: not for the run of a job that goes on.
    """

    def __init__(
        self,
        writer: store.RunWriter,
        group_rows: int = 0,
        held_rows: int = 0,
        *,
        lanes: int = 1,
        defers_sync: bool = False,
    ) -> None:
        self._ending = ExitStack()
        opened = self._ending.enter_context
        writers = [writer, *(opened(writer.clone()) for _ in range(1, lanes))]
        for lane_writer in writers if defers_sync else ():
            opened(lane_writer.deferring_sync())
        threads = [opened(ThreadPoolExecutor(1)) if lanes else None for _ in writers]
        self._lanes = list(zip(writers, threads, strict=True))
        self._loads = [0] * len(self._lanes)
        """Number of values that went to each lane."""
        self._lane_of: dict[str, int] = {"traces": 0}
        """Lane of each table, which stores all its rows, in their order."""
        self._pending: list[Future[None]] = []
        self._group_rows, self._held_rows = group_rows, held_rows
        self._row_count = 0
        """Rows of the group, stored or not."""
        self._held: dict[str, list[Rows]] = {}
        self._counts: Counter[str] = Counter()
        """Rows in memory of each table but `traces`."""
        # Consecutive, so that segments and row groups of several traces have narrow extents.
        self._traces = itertools.count(secrets.randbits(48))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._ending:
            if kind is None:
                self.finish()

    def next_trace(self) -> int:
        """Return the number of the next trace."""
        return next(self._traces)

    def prepare(self) -> None:
        """Make the first append as fast as the others."""
        for writer, thread in self._lanes:
            self._submit(thread, writer.prepare)

    def append(self, tables: Iterable[tuple[str, Rows]]) -> None:
        """Add the rows of some tables, those of `traces` last of each trace.

        It starts to store a table when too many rows are held, and all when the group is complete.
        """
        for table, rows in tables:
            self._held.setdefault(table, []).append(rows)
            self._row_count += len(rows["trace"])
            if table == "traces":
                if self._row_count >= self._group_rows:
                    self._start_all()
                continue
            self._counts[table] += len(rows["trace"])
            while self._counts.total() > self._held_rows:
                self._start(max(self._counts, key=self._counts.__getitem__))

    def wait(self) -> None:
        """Wait until everything that has started is stored."""
        while self._pending:
            self._pending.pop(0).result()

    def finish(self) -> None:
        """Store all rows."""
        self._start_all()
        self.wait()

    def _start_all(self) -> None:
        for table in sorted(self._held, key="traces".__eq__):
            self._start(table)
        self._row_count = 0

    def _start(self, table: str) -> None:
        """Start to store the rows of a table that are held."""
        parts = self._held.pop(table)
        lane = self._lane_of.setdefault(table, self._loads.index(min(self._loads)))
        self._loads[lane] += sum(len(rows) * len(rows["trace"]) for rows in parts)
        writer, thread = self._lanes[lane]
        del self._counts[table]
        if table == "traces":
            self._submit(thread, self._store_last, parts, list(self._pending))
        else:
            self._submit(thread, _store, writer, table, parts)

    def _submit(
        self, thread: ThreadPoolExecutor | None, work: Callable[..., None], *arguments: Any
    ) -> None:
        """Call a function in the thread of a lane, or here where it has none."""
        if thread is None:
            work(*arguments)
        else:
            self._pending.append(thread.submit(work, *arguments))

    def _store_last(self, parts: list[Rows], before: Sequence[Future[Any]]) -> None:
        """Store rows of `traces`, which mean that everything else is stored, unless it is not."""
        for earlier in before:
            earlier.result()
        for writer, _ in self._lanes:
            writer.sync()
        writer, _ = self._lanes[0]
        _store(writer, "traces", parts)
        writer.sync()


def _store(writer: store.RunWriter, table: str, parts: list[Rows]) -> None:
    rows = store.join_columns(parts)
    parts.clear()
    writer.append(table, rows)
