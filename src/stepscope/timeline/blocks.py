"""Events of recordings, read from the store in blocks of time, with the rows they are drawn on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import Slices
from stepscope.intervals import OVERHANG_NS, Int, nesting_rows, separate_overlaps
from stepscope.run import Trace
from stepscope.schema import NESTED_TABLES, STREAM_TABLES
from stepscope.timeline.levels import Levels, Names

EVENT_TABLES = (*NESTED_TABLES, *STREAM_TABLES)
"""Tables of drawn events. Of ranges with the same extent, those of the first table enclose the
others."""
DAY_NS = 86_400_000_000_000
DURATIONS = {
    "other_events": f"CASE WHEN duration_ns BETWEEN 0 AND {DAY_NS} THEN duration_ns ELSE 0 END"
}
"""How long an event takes, where that is not plainly its duration: impossible ones count as none,
and so does an instant."""
MARGIN_NS = 64 * OVERHANG_NS
"""What is around an event may end so much earlier, at each of so many levels."""
EVERYTHING = (-(2**62), 2**62)
_ID_BITS = 56
"""Ids are smaller than two to this power."""


def event_query(
    columns: Sequence[str], condition: str, tables: Collection[str] = EVENT_TABLES
) -> str:
    """SQL for events of recordings; `place` is that of their table.

    Args:
        columns: of all of the tables; `duration` is how long it is drawn, `shadow` 1 for the shadow
            of a host range on a device's stream, else 0, and `named` a hash of the name.
        condition: in SQL; the same words stand in braces, since it looks at stored columns.
        tables: those to look into, at least one.
    """
    parts = []
    for place, table in enumerate(EVENT_TABLES):
        if table not in tables:
            continue
        said = {
            "place": str(place),
            "shadow": "on_device" if table == "annotations" else "0",
            "duration": DURATIONS.get(table, "duration_ns"),
            "named": "hash(name)",
        }
        chosen = ", ".join(f"{said.get(name, name)} AS {name}" for name in columns)
        limits = condition.format(**said)
        parts.append(f"SELECT {chosen} FROM {table} WHERE {limits}")  # noqa: S608 - no values
    return " UNION ALL ".join(parts)


_BLOCK_COLUMNS = ("line", "row", "start", "duration", "name", "event")
_COLUMNS = ("place", "shadow", "track", "id", "named", "start_ns", "duration")
_IN_BLOCK = "trace = $1 AND start_ns >= $2 AND start_ns < $3 AND {duration} < $4"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Events that begin within a range, sorted by line, row and start: half the room of `Slices`.

    Lines are as in `Levels`.
    """

    line: NDArray[np.int32]
    row: NDArray[np.int16]
    start: NDArray[Any]
    """After `begin`."""
    duration: NDArray[Any]
    name: NDArray[np.int32]
    event: NDArray[Any]
    begin: int
    names: Names

    @property
    def size_bytes(self) -> int:
        """Memory of the columns."""
        return sum(getattr(self, column).nbytes for column in _BLOCK_COLUMNS)

    def cut(self, begin: int, width: int, count: int) -> list[Block]:
        """So many blocks that begin one `width` after another."""
        if count == 1:
            return [self]
        number = (self.start.astype(np.int64) + (self.begin - begin)) // width
        return [self._take(np.flatnonzero(number == each)) for each in range(count)]

    def _take(self, rows: Int) -> Block:
        return replace(self, **{column: getattr(self, column)[rows] for column in _BLOCK_COLUMNS})

    def overlapping(self, begin: int, end: int) -> Slices:
        """Those that lie in a range, at least in part."""
        start = self.start.astype(np.int64) + self.begin
        duration = self.duration.astype(np.int64)
        rows = np.flatnonzero((start < end) & ((start + duration > begin) | (start >= begin)))
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
    """All events that begin within a range, but for those that the levels hold by themselves.

    Rows are the same whatever the range: all that is around an event is among what is read, or in
    the levels.
    """
    limit = levels.finest_ns if levels else EVERYTHING[1]
    first = max(extent[0] - limit - MARGIN_NS, trace.start_ns)
    last = min(extent[1], trace.end_ns + DAY_NS)

    def read(query: str) -> dict[str, Any]:
        given = [trace.trace, first, last, limit]
        return trace.reader.sql(query, given, within=(first, last), traces=(trace.trace,))

    def look_up() -> dict[str, Any]:
        rows = event_query(("named", "name"), _IN_BLOCK, tables)
        return read(f"SELECT DISTINCT named AS hash, name FROM ({rows})")  # noqa: S608

    found = read(event_query(_COLUMNS, _IN_BLOCK, tables))
    start = found["start_ns"].astype(np.int64)
    duration = found["duration"].astype(np.int64)
    line = 2 * found["track"].astype(np.int64) + found["shadow"]
    on_host = found["place"] < len(NESTED_TABLES)
    tie = (found["place"].astype(np.int64) << _ID_BITS) + found["id"]
    # What gave way has its row there, yet of those with one extent it may be around others here.
    events = _Extents(line, start, start + duration, on_host, tie)
    row = _rows(events) if levels is None else _rows_within(levels.long(first, last), events)
    mine = start >= extent[0]
    if levels is not None:
        mine &= ~np.isin(found["id"], levels.short_alone)
    own = np.flatnonzero(mine)
    own = own[np.lexsort((start[own], row[own], line[own]))]
    begin = int(start.min(initial=first))
    return Block(
        line=line[own].astype(np.int32),
        row=row[own].astype(np.int16),
        start=_small(start[own] - begin),
        duration=_small(duration[own]),
        name=names.places(found["named"][own], look_up),
        event=_small(found["id"][own]),
        begin=begin,
        names=names,
    )


def _small(values: Any) -> NDArray[Any]:
    """Integers, none of them negative, in half the room where they fit."""
    fits = not len(values) or int(values.max()) < 1 << 32
    found: NDArray[Any] = values.astype(np.uint32 if fits else np.int64)
    return found


class _Extents(NamedTuple):
    """When events of any kind are, and where."""

    line: Int
    start: Int
    end: Int
    on_host: NDArray[np.bool_]
    tie: Int
    """Of host ranges with one extent, the one with the least is around the others."""


def _rows(events: _Extents) -> Int:
    """The rows of all events."""
    order = np.argsort(events.tie, kind="stable")
    line, start, end = events.line[order], events.start[order], events.end[order]
    on_host = events.on_host[order]
    row = np.zeros(len(line), dtype=np.int64)
    row[on_host] = nesting_rows(line[on_host], start[on_host], end[on_host])
    found = np.empty_like(row)
    found[order] = separate_overlaps(line, row, start, end)
    return found


def _rows_within(long: Slices, events: _Extents) -> Int:
    """The rows of short events, given longer ones."""
    line, start, end, on_host, tie = events
    around = np.isin(long.line, line[on_host])  # what is long on a stream is around nothing
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
