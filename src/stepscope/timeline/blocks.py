"""Blocks of trace events: read from the store by time range, with the row of each event."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import Slices
from stepscope.intervals import OVERHANG_NS, Int, nesting_rows, separate_overlaps
from stepscope.run import DAY_NS, DURATIONS, EVENT_TABLES, Trace
from stepscope.schema import NESTED_TABLES
from stepscope.timeline.levels import Levels, Names

MARGIN_NS = 64 * OVERHANG_NS
"""Time by which enclosing events may end early: one overhang for each of 64 levels."""
UNBOUNDED = (-(2**62), 2**62)
_ID_BITS = 56
"""Ids are smaller than 2 to this power."""


def build_event_query(
    columns: Sequence[str], condition: str, tables: Collection[str] = EVENT_TABLES
) -> str:
    """Build SQL for trace events; `table_index` is the index of their table in `EVENT_TABLES`.

    Args:
        columns: columns of all tables; `duration` is the drawn duration, `shadow` is 1 for the
            shadow of a host range on a device stream, else 0, `name_hash` is a hash of the name.
        condition: SQL condition; these column names are in braces, as it applies to stored columns.
        tables: tables to read, at least one.
    """
    parts = []
    for index, table in enumerate(EVENT_TABLES):
        if table not in tables:
            continue
        expressions = {
            "table_index": str(index),
            "shadow": "on_device" if table == "annotations" else "0",
            "duration": DURATIONS.get(table, "duration_ns"),
            "name_hash": "hash(name)",
        }
        selected = ", ".join(f"{expressions.get(name, name)} AS {name}" for name in columns)
        conditions = condition.format(**expressions)
        parts.append(f"SELECT {selected} FROM {table} WHERE {conditions}")  # noqa: S608 - no values
    return " UNION ALL ".join(parts)


_BLOCK_COLUMNS = ("line", "row", "start", "duration", "name", "event")
_COLUMNS = ("table_index", "shadow", "track", "id", "name_hash", "start_ns", "duration")
_IN_BLOCK = "trace = $1 AND start_ns >= $2 AND start_ns < $3 AND {duration} < $4"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Events that start within a range, sorted by line, row and start: half the size of `Slices`.

    Lines are as in `Levels`.
    """

    line: NDArray[np.int32]
    row: NDArray[np.int16]
    start: NDArray[Any]
    """Nanoseconds after `base_ns`."""
    duration: NDArray[Any]
    name: NDArray[np.int32]
    event: NDArray[Any]
    base_ns: int
    names: Names

    @property
    def size_bytes(self) -> int:
        """Memory of the columns in bytes."""
        return sum(getattr(self, column).nbytes for column in _BLOCK_COLUMNS)

    def split(self, start: int, width: int, count: int) -> list[Block]:
        """Split into `count` blocks; each starts one `width` after the previous one."""
        if count == 1:
            return [self]
        numbers = (self.start.astype(np.int64) + (self.base_ns - start)) // width
        return [self._take(np.flatnonzero(numbers == index)) for index in range(count)]

    def _take(self, rows: Int) -> Block:
        return replace(self, **{column: getattr(self, column)[rows] for column in _BLOCK_COLUMNS})

    def overlapping(self, extent_start: int, extent_end: int) -> Slices:
        """Select the events that overlap a range."""
        start = self.start.astype(np.int64) + self.base_ns
        duration = self.duration.astype(np.int64)
        rows = np.flatnonzero(
            (start < extent_end) & ((start + duration > extent_start) | (start >= extent_start))
        )
        duration = duration[rows]
        return Slices(
            line=self.line[rows],
            row=self.row[rows],
            start=start[rows],
            duration=duration,
            count=np.ones(len(rows), dtype=np.int32),
            busy=duration,
            longest=duration,
            name=self.name[rows],
            event=self.event[rows].astype(np.int64),
            names=self.names.strings,
        )


def read_block(
    trace: Trace,
    extent: tuple[int, int],
    levels: Levels | None,
    names: Names,
    tables: Collection[str],
) -> Block:
    """Read the events that start within a range, except those stored individually in the levels.

    Rows do not depend on the range: every event that encloses another is read too, or is in the
    levels.
    """
    limit = levels.finest_ns if levels else UNBOUNDED[1]
    first = max(extent[0] - limit - MARGIN_NS, trace.start_ns)
    last = min(extent[1], trace.end_ns + DAY_NS)

    def read(query: str) -> dict[str, Any]:
        parameters = [trace.trace, first, last, limit]
        return trace.reader.sql(query, parameters, within=(first, last), traces=(trace.trace,))

    def look_up() -> dict[str, Any]:
        rows = build_event_query(("name_hash", "name"), _IN_BLOCK, tables)
        return read(f"SELECT DISTINCT name_hash AS hash, name FROM ({rows})")  # noqa: S608

    columns = read(build_event_query(_COLUMNS, _IN_BLOCK, tables))
    start = columns["start_ns"].astype(np.int64)
    duration = columns["duration"].astype(np.int64)
    line = 2 * columns["track"].astype(np.int64) + columns["shadow"]
    on_host = columns["table_index"] < len(NESTED_TABLES)
    tie = (columns["table_index"].astype(np.int64) << _ID_BITS) + columns["id"]
    # Short events that the levels moved to another row keep it there, but they may enclose events
    # of equal extent here.
    events = _Extents(line, start, start + duration, on_host, tie)
    row = (
        _assign_rows(events)
        if levels is None
        else _assign_nested_rows(levels.select_long(first, last), events)
    )
    is_in_block = start >= extent[0]
    if levels is not None:
        is_in_block &= ~np.isin(columns["id"], levels.short_alone)
    selected = np.flatnonzero(is_in_block)
    selected = selected[np.lexsort((start[selected], row[selected], line[selected]))]
    base_ns = int(start.min(initial=first))
    return Block(
        line=line[selected].astype(np.int32),
        row=row[selected].astype(np.int16),
        start=_downcast(start[selected] - base_ns),
        duration=_downcast(duration[selected]),
        name=names.indices(columns["name_hash"][selected], look_up),
        event=_downcast(columns["id"][selected]),
        base_ns=base_ns,
        names=names,
    )


def _downcast(values: Any) -> NDArray[Any]:
    """Convert non-negative integers to 32 bits if they fit."""
    fits = not len(values) or int(values.max()) < 1 << 32
    result: NDArray[Any] = values.astype(np.uint32 if fits else np.int64)
    return result


class _Extents(NamedTuple):
    """Lines and extents of events."""

    line: Int
    start: Int
    end: Int
    on_host: NDArray[np.bool_]
    tie: Int
    """Of host ranges of equal extent, the one with the smallest value encloses the others."""


def _assign_rows(events: _Extents) -> Int:
    """Assign rows to all events."""
    order = np.argsort(events.tie, kind="stable")
    line, start, end = events.line[order], events.start[order], events.end[order]
    on_host = events.on_host[order]
    row = np.zeros(len(line), dtype=np.int64)
    row[on_host] = nesting_rows(line[on_host], start[on_host], end[on_host])
    rows = np.empty_like(row)
    rows[order] = separate_overlaps(line, row, start, end)
    return rows


def _assign_nested_rows(long: Slices, events: _Extents) -> Int:
    """Assign rows to short events, nested in the long ones."""
    line, start, end, on_host, tie = events
    around = np.isin(long.line, line[on_host])  # a long event on a stream encloses nothing
    parts = (
        (long.line[around], line[on_host]),
        (long.start[around], start[on_host]),
        ((long.start + long.duration)[around], end[on_host]),
        (np.zeros(around.sum(), dtype=np.int64), tie[on_host]),
    )
    row = np.zeros(len(line), dtype=np.int64)
    nested = nesting_rows(*(np.concatenate(part).astype(np.int64) for part in parts))
    row[on_host] = nested[around.sum() :]
    return row
