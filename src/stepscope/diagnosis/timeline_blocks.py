"""Events of recordings, read from the store in blocks of time, with the rows they are drawn on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.timeline_slices import Slices
from stepscope.diagnosis.timeline_levels import Levels, Names
from stepscope.diagnosis.traces import Trace
from stepscope.intervals import OVERHANG_NS, Int, nesting_rows, without_overlaps

HOST_TABLES = ("annotations", "python_functions", "operators", "runtime_calls", "other_events")
"""Of ranges with one extent, those of the first table are around the others."""
DEVICE_TABLES = ("kernels", "copies")
EVENT_TABLES = (*HOST_TABLES, *DEVICE_TABLES)
DAY_NS = 86_400_000_000_000
DURATIONS = {
    "other_events": f"CASE WHEN duration_ns BETWEEN 0 AND {DAY_NS} THEN duration_ns ELSE 0 END"
}
"""How long an event takes, where that is not plainly its duration: impossible ones count as none,
and so does an instant."""
MARGIN_NS = 64 * OVERHANG_NS
"""What is around an event may end so much earlier, at each of so many levels."""
EVERYTHING = (-(2**62), 2**62)


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
        columns = (self.line, self.row, self.start, self.duration, self.name, self.event)
        return sum(column.nbytes for column in columns)

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
    order = np.lexsort((found["id"], found["place"]))
    found = {name: values[order] for name, values in found.items()}
    start = found["start_ns"].astype(np.int64)
    duration = found["duration"].astype(np.int64)
    line = 2 * found["track"].astype(np.int64) + found["shadow"]
    around = levels.long(first, last) if levels else None
    # What gave way has its row there, yet of those with one extent it may be around others here.
    row = _rows(line, found["place"] < len(HOST_TABLES), start, start + duration, around)
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


def _rows(
    line: Any, on_host: NDArray[np.bool_], start: Any, end: Any, around: Slices | None
) -> Int:
    """The rows of events, given longer ones that have theirs."""
    if around is None:
        row = np.zeros(len(line), dtype=np.int64)
        row[on_host] = nesting_rows(line[on_host], start[on_host], end[on_host])
        return without_overlaps(line, row, start, end)
    known = len(around)
    line = np.concatenate([around.line, line]).astype(np.int64)
    start = np.concatenate([around.start, start])
    end = np.concatenate([around.start + around.duration, end])
    # What is long lies on one row of a stream, or around what is on the host.
    nested = np.concatenate([np.isin(line[:known], line[known:][on_host]), on_host])
    row = np.concatenate([around.row, np.zeros(len(on_host), dtype=np.int64)])
    deep = nesting_rows(line[nested], start[nested], end[nested])
    row[nested] = np.where(np.flatnonzero(nested) < known, row[nested], deep)
    found: Int = row[known:]
    return found
