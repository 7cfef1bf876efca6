"""Blocks of trace events, read by time range, and the levels of detail of a trace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope import analysis, intervals, run, schema

BASE_NS = 1_000
FANOUT = 4
_LEVEL_COLUMNS = (
    "track",
    "depth",
    "level",
    "id",
    "start_ns",
    "duration_ns",
    "count",
    "busy_ns",
    "longest_ns",
    "hash(longest_name) AS name_hash",
)


class Names:
    """Unique strings by index.

    Rows are read with hashes made by DuckDB, as reading one string per row would dominate the time.
    """

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._hashes = np.empty(0, dtype=np.uint64)
        self._indices = np.empty(0, dtype=np.int32)
        """Index of the string of each hash; hashes are in ascending order."""

    def indices(
        self, hashes: NDArray[np.uint64], look_up: Callable[[], Mapping[str, Any]]
    ) -> NDArray[np.int32]:
        """Return the index of each string.

        Args:
            hashes: hashes of the strings, by DuckDB's `hash`.
            look_up: reads `hash` and `name` of the strings; called if there are new ones.
        """
        positions = self._find(hashes)
        if not len(self._hashes) or (self._hashes[positions] != hashes).any():
            self._add(look_up())
            positions = self._find(hashes)
        return self._indices[positions]

    def _find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        positions = np.searchsorted(self._hashes, hashes)
        return np.minimum(positions, max(0, len(self._hashes) - 1))

    def _add(self, new_names: Mapping[str, Any]) -> None:
        hashes, first = np.unique(new_names["hash"].astype(np.uint64), return_index=True)
        new = ~np.isin(hashes, self._hashes)
        indices = len(self.strings) + np.arange(new.sum(), dtype=np.int32)
        self.strings.extend(new_names["name"][first[new]].tolist())
        all_hashes = np.concatenate([self._hashes, hashes[new]])
        order = np.argsort(all_hashes)
        self._hashes = all_hashes[order]
        self._indices = np.concatenate([self._indices, indices])[order]


class Levels:
    """Levels of detail, each read on first use.

    The line of a slice is twice the number of its track, plus one for shadows.

    Args:
        trace: the trace.
        names: names of its events.
        levels: stored levels in ascending order; at least one.
    """

    def __init__(self, trace: run.Trace, names: Names, levels: Sequence[int]) -> None:
        self._trace = trace
        self._names = names
        self._levels = levels
        self._summaries: dict[int, analysis.Slices] = {}
        alone, level = _read_rows(trace, names, "id IS NOT NULL")
        self.alone = alone
        """Events stored individually, by start."""
        self.level = level
        """Coarsest level at which each of them is still individual."""

    @property
    def finest_ns(self) -> int:
        """Bucket width of the finest level: events of at least this duration are in `alone`."""
        return get_bucket_width(self._levels[0])

    def select_long(self, start: int, end: int) -> analysis.Slices:
        """Select events of `alone` that have at least this duration and overlap a range."""
        rows = self.alone.overlaps(start, end) & (self.alone.duration >= self.finest_ns)
        return self.alone.take(rows)

    @cached_property
    def short_alone(self) -> NDArray[np.int64]:
        """Ids of the shorter events of `alone`, in ascending order."""
        return np.sort(self.alone.event[self.alone.duration < self.finest_ns])

    @property
    def size_bytes(self) -> int:
        """Cached memory in bytes."""
        return sum(slices.size_bytes for slices in (self.alone, *self._summaries.values()))

    def coarsest_below(self, width: int) -> int | None:
        """Find the coarsest level with buckets of at most `width`; None if there is none."""
        return max(
            (level for level in self._levels if get_bucket_width(level) <= width), default=None
        )

    @cached_property
    def end_ns(self) -> int:
        """End of the last event."""
        parts = (self.alone, self._summaries_of(self._levels[-1]))
        return max(int((part.start + part.duration).max(initial=0)) for part in parts)

    def read_ahead(self) -> Iterator[None]:
        """Read every level, the coarsest first; yields after each."""
        for level in reversed(self._levels):
            self._summaries_of(level)
            yield

    def select(self, level: int, start: int, end: int) -> list[analysis.Slices]:
        """Select individual events and summaries of a level within a range."""
        alone = self.alone.take((self.level >= level) & self.alone.overlaps(start, end))
        summaries = self._summaries_of(level)
        # A summary extends less than one bucket beyond its own bucket.
        reach = [start - 2 * get_bucket_width(level), end]
        first, last = np.searchsorted(summaries.start, reach).tolist()
        return [alone, summaries.take(slice(first, last)).overlapping(start, end)]

    def _summaries_of(self, level: int) -> analysis.Slices:
        if level not in self._summaries:
            condition = f"id IS NULL AND level = {level}"
            self._summaries[level], _ = _read_rows(self._trace, self._names, condition)
        return self._summaries[level]


def get_bucket_width(level: int) -> int:
    """Return the bucket width of a level in nanoseconds."""
    return int(BASE_NS * FANOUT**level)


def _read_rows(
    trace: run.Trace, names: Names, condition: str
) -> tuple[analysis.Slices, NDArray[np.int16]]:
    """Read rows of the table, sorted by start, and their levels."""
    source = f"FROM timeline WHERE trace = {trace.trace} AND {condition}"
    rows = trace.reader.sql(f"SELECT {', '.join(_LEVEL_COLUMNS)} {source}", traces=(trace.trace,))

    def look_up() -> Mapping[str, Any]:
        query = f"SELECT DISTINCT hash(longest_name) AS hash, longest_name AS name {source}"
        return trace.reader.sql(query, traces=(trace.trace,))

    order = np.argsort(rows["start_ns"], kind="stable")
    rows = {name: np.ma.filled(values, -1)[order] for name, values in rows.items()}
    track, depth = rows["track"].astype(np.int32), rows["depth"].astype(np.int16)
    return analysis.Slices(
        line=2 * track + (depth < 0),
        row=np.where(depth < 0, -1 - depth, depth),
        start=rows["start_ns"].astype(np.int64),
        duration=rows["duration_ns"].astype(np.int64),
        count=rows["count"].astype(np.int32),
        busy=rows["busy_ns"].astype(np.int64),
        longest=rows["longest_ns"].astype(np.int64),
        name=names.indices(rows["name_hash"], look_up),
        event=rows["id"].astype(np.int64),
        names=names.strings,
    ), rows["level"]


MARGIN_NS = 64 * intervals.OVERHANG_NS
"""Time by which enclosing events may end early: one overhang for each of 64 levels."""
UNBOUNDED = (-(2**62), 2**62)
_ID_BITS = 56
"""Ids are smaller than 2 to this power."""


def build_event_query(
    columns: Sequence[str], condition: str, tables: Collection[str] = run.EVENT_TABLES
) -> str:
    """Build SQL for trace events; `table_index` is the index of their table in `EVENT_TABLES`.

    Args:
        columns: columns of all tables; `duration` is the drawn duration, `shadow` is 1 for the
            shadow of a host range on a device stream, else 0, `name_hash` is a hash of the name.
        condition: SQL condition; these column names are in braces, as it applies to stored columns.
        tables: tables to read, at least one.
    """
    parts = []
    for index, table in enumerate(run.EVENT_TABLES):
        if table not in tables:
            continue
        expressions = {
            "table_index": str(index),
            "shadow": "on_device" if table == "annotations" else "0",
            "duration": run.DURATIONS.get(table, "duration_ns"),
            "name_hash": "hash(name)",
        }
        selected = ", ".join(f"{expressions.get(name, name)} AS {name}" for name in columns)
        conditions = condition.format(**expressions)
        parts.append(f"SELECT {selected} FROM {table} WHERE {conditions}")  # noqa: S608 - no values
    return " UNION ALL ".join(parts)


_BLOCK_COLUMNS = ("line", "row", "start", "duration", "name", "event")
_COLUMNS = ("table_index", "shadow", "track", "id", "name_hash", "start_ns", "duration")
_IN_BLOCK = "trace = $1 AND start_ns >= $2 AND start_ns < $3 AND {duration} < $4"


class Block(msgspec.Struct, frozen=True, kw_only=True, eq=False):
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

    def _take(self, rows: intervals.Int) -> Block:
        return replace(self, **{column: getattr(self, column)[rows] for column in _BLOCK_COLUMNS})

    def overlapping(self, extent_start: int, extent_end: int) -> analysis.Slices:
        """Select the events that overlap a range."""
        start = self.start.astype(np.int64) + self.base_ns
        duration = self.duration.astype(np.int64)
        rows = np.flatnonzero(
            (start < extent_end) & ((start + duration > extent_start) | (start >= extent_start))
        )
        duration = duration[rows]
        return analysis.Slices(
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
    trace: run.Trace,
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
    last = min(extent[1], trace.end_ns + run.DAY_NS)

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
    on_host = columns["table_index"] < len(schema.NESTED_TABLES)
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

    line: intervals.Int
    start: intervals.Int
    end: intervals.Int
    on_host: NDArray[np.bool_]
    tie: intervals.Int
    """Of host ranges of equal extent, the one with the smallest value encloses the others."""


def _assign_rows(events: _Extents) -> intervals.Int:
    """Assign rows to all events."""
    order = np.argsort(events.tie, kind="stable")
    line, start, end = events.line[order], events.start[order], events.end[order]
    on_host = events.on_host[order]
    row = np.zeros(len(line), dtype=np.int64)
    row[on_host] = intervals.nesting_rows(line[on_host], start[on_host], end[on_host])
    rows = np.empty_like(row)
    rows[order] = intervals.separate_overlaps(line, row, start, end)
    return rows


def _assign_nested_rows(long: analysis.Slices, events: _Extents) -> intervals.Int:
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
    nested = intervals.nesting_rows(*(np.concatenate(part).astype(np.int64) for part in parts))
    row[on_host] = nested[around.sum() :]
    return row
