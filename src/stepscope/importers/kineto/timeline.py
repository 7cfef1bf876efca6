"""Levels of detail: any window of any trace can then be drawn from one small query.

    event        what the timeline draws of a linked slice: nested ranges of threads, work of
                 streams, shadows of host ranges (`drawing` in `schema.EVENT_KINDS`)
    line         a track, or the shadows on it
    row          of a line; an event inside others is in a row below them, and an event that
                 overlaps another one of its row gives way to a row below
    level        level L has buckets of 4^L microseconds; a bucket sums up the events of a row that
                 start in it and are shorter than the bucket
    longer ones  have rows of their own, with the coarsest level whose buckets they outlast

The finest level is the first one with at most an eighth as many rows as there are events, of
smaller traces a sixteenth; the coarsest spans the trace in at most 256 buckets per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.importers.kineto.arguments import OPERATOR, PYTHON_FUNCTION, Kind, OtherKind
from stepscope.importers.kineto.columns import Columns
from stepscope.importers.kineto.gather import DAY_NS, Bounds
from stepscope.importers.kineto.linking import Linked

Int = NDArray[np.int64]

BASE_NS = 1_000
FANOUT = 4
SMALL_EVENTS = 50_000
"""A smaller trace is drawn from its events; it needs no level of detail but the coarsest."""
_MEDIUM_EVENTS = 1_000_000
"""The events below the finest level of a smaller trace are read in a tenth of a second, once."""
_REDUCTION = 8
"""Minimum ratio of events to rows of a level."""
_MEDIUM_REDUCTION = 16
"""With the next finer level, windows of small operators take a fifth more space."""
_COARSEST_BUCKETS = 256
_MAX_ROWS = 1 << 15
"""Rows of a line; events that are nested deeper share the last one."""
_EXTENT = ("line", "start", "duration")
_EVENT = (*_EXTENT, "name", "id")
_SUMMARY = (*_EVENT, "count", "busy", "longest")
_NESTED = [kind for kind in schema.EVENT_KINDS if kind.drawing == "nested"]
_STREAM = [kind for kind in schema.EVENT_KINDS if kind.drawing == "stream"]
_SHADOWS = [kind for kind in schema.EVENT_KINDS if kind.drawing == "shadow"]
_CARRIED_BY_LINKER = (OPERATOR, PYTHON_FUNCTION)
"""Kinds whose open ranges the linker carries from slice to slice (`Linked.around`)."""


class Summariser:
    """Makes the levels of one trace, slice by slice.

    Args:
        bounds: possible times of the file.
        base_ns: nanoseconds to add to them.
        event_count: events of the trace; it decides which levels are made.
    """

    def __init__(self, bounds: Bounds, base_ns: int, *, event_count: int) -> None:
        self._bounds = bounds
        self._base_ns = base_ns
        self._coarsest = _level_of((bounds.last - bounds.first) // _COARSEST_BUCKETS)
        self._reduction = _REDUCTION if event_count >= _MEDIUM_EVENTS else _MEDIUM_REDUCTION
        self._finest = None if event_count >= SMALL_EVENTS else self._coarsest
        """The first slice decides for all."""
        self._nested_before: list[Columns] = []
        self._flat_before: list[Columns] = []
        """Extents of events that reach into the next slice, or may."""

    def summarise(self, linked: Linked) -> Columns:
        """Return rows of the table `timeline`; a bucket may have rows from two slices."""
        events = self._events(linked)
        if not len(events["id"]):
            return {}
        levels = list(self._levels(events))
        joined = {name: np.concatenate([part[name] for part in levels]) for name in levels[0]}
        line, row = np.divmod(joined["line"], _MAX_ROWS)
        return {
            "track": line // 2,
            "depth": np.where(line % 2, -1 - row, row),
            "level": joined["level"],
            "id": joined["id"],
            "start_ns": joined["start"] + self._base_ns,
            "duration_ns": joined["duration"],
            "count": joined["count"],
            "busy_ns": joined["busy"],
            "longest_ns": joined["longest"],
            "longest_name": joined["name"],
        }

    def _events(self, linked: Linked) -> Columns:
        """Return all events with their lines and rows, sorted by both and by start.

        The column `line` holds line and row; `gave_way` marks events that gave way to another one.
        """
        rows = linked.rows
        nested = {kind: _part(rows[kind]) for kind in _NESTED if kind in rows}
        ended = [part for kind, part in nested.items() if kind not in _CARRIED_BY_LINKER]
        rest = [self._other_events(kind, columns) for kind, columns in linked.other_events]
        rest += [_part(rows[kind], shadow=1) for kind in _SHADOWS]
        flat = [_part(rows[kind]) for kind in _STREAM]
        before = [_part(linked.around), *self._nested_before, *self._flat_before]
        events = _join([*nested.values(), *rest, *flat], _EVENT)
        extents = _join([*before, events], _EXTENT)
        line, start, end = extents["line"], extents["start"], extents["start"] + extents["duration"]
        context = len(line) - len(events["id"])
        is_nested = np.ones(len(line), dtype=np.bool_)
        is_nested[len(line) - sum(len(part["id"]) for part in flat) :] = False
        flat_context = sum(len(part["line"]) for part in self._flat_before)
        is_nested[context - flat_context : context] = False
        nesting = np.zeros(len(line), dtype=np.int64)
        nesting[is_nested] = intervals.nesting_rows(
            line[is_nested], start[is_nested], end[is_nested]
        )
        self._nested_before = _still_open([*self._nested_before, *ended, *rest])
        self._flat_before = _last_of_each([*self._flat_before, *flat])
        # Ranges that share the last row overlap in any order.
        order = intervals.order_by_row(line, np.minimum(nesting, _MAX_ROWS - 1), start)
        row = intervals.separate_overlaps(line, nesting, start, end, order)
        gave_way = row != nesting
        row = np.minimum(row, _MAX_ROWS - 1)
        if gave_way.any():
            order = intervals.order_by_row(line, row, start)
        order = order[order >= context]
        slot = line * _MAX_ROWS + row
        events |= {"line": slot[context:], "gave_way": gave_way[context:]}
        return _rows(events, order - context)

    def _other_events(self, kind: Kind, columns: Columns) -> Columns:
        """Return events of no other table with a possible start.

        Impossible durations count as none.
        """
        part = _part({"duration": np.zeros(len(columns["id"]), dtype=np.int64), **columns})
        start, duration = part["start"], part["duration"]
        has_duration = columns["has_duration"] > 0 if kind is OtherKind.OTHER else True
        is_possible = has_duration & (duration >= 0) & (duration <= DAY_NS)
        part["duration"] = np.where(is_possible, duration, 0)
        is_inside = (start >= self._bounds.first) & (start <= self._bounds.last)
        return {name: values[is_inside] for name, values in part.items()}

    def _levels(self, events: Columns) -> Iterator[Columns]:
        gave_way = events.pop("gave_way")
        outlasted = _outlasted_levels(events["duration"], self._coarsest)
        if self._finest is None:
            self._finest = self._finest_level(events["line"], events["start"], outlasted)
        separate = np.flatnonzero(gave_way | (outlasted >= self._finest))
        longer = _summaries(_rows(events, separate))
        # Events that gave way are drawn separately at every level: a summary has only one row.
        shown_at = np.where(gave_way, self._coarsest, outlasted)[separate]
        yield {**longer, "level": shown_at}
        # From here on, none of these is below any level.
        outlasted[gave_way] = self._coarsest
        short = _summaries(_rows(events, np.flatnonzero(outlasted < self._finest)))
        current, outlasted = self._merge(short, self._finest), outlasted[separate]
        yield {**current, "level": np.full(len(current["line"]), self._finest, dtype=np.int64)}
        for level in range(self._finest + 1, self._coarsest + 1):
            current = _join([current, _rows(longer, outlasted == level - 1)], _SUMMARY)
            order = np.lexsort((current["start"], current["line"]))
            current = self._merge(_rows(current, order), level)
            yield {**current, "level": np.full(len(current["line"]), level, dtype=np.int64)}

    def _finest_level(self, line: Int, start: Int, outlasted: Int) -> int:
        """Return the first level with few enough rows; events are sorted by line and start."""
        count = len(outlasted)
        lines = 1 + int(np.count_nonzero(np.diff(line)))
        span = int(np.ptp(start))
        # No level can be worth its rows before a bucket holds some events on average.
        for level in range(_level_of(span * lines // count), self._coarsest):
            is_short = outlasted < level
            short = {"line": line[is_short], "start": start[is_short]}
            buckets = self._opens_bucket(short, level).sum()
            if (count - is_short.sum() + buckets) * self._reduction <= count:
                return level
        return self._coarsest

    def _opens_bucket(self, rows: Columns, level: int) -> NDArray[np.bool_]:
        """Mark sorted rows that are the first ones of a bucket of their line."""
        bucket = (rows["start"] - self._bounds.first) // (BASE_NS * FANOUT**level)
        opens = np.ones(len(bucket), dtype=np.bool_)
        opens[1:] = (np.diff(rows["line"]) != 0) | (np.diff(bucket) != 0)
        return opens

    def _merge(self, rows: Columns, level: int) -> Columns:
        """Merge rows, sorted by line and start, into one per line and bucket."""
        opens = self._opens_bucket(rows, level)
        first = np.flatnonzero(opens)
        if not len(first):
            return rows
        group = np.cumsum(opens) - 1
        longest = np.maximum.reduceat(rows["longest"], first)
        is_longest = np.flatnonzero(rows["longest"] == longest[group])
        longest_row = np.empty(len(first), dtype=np.int64)
        longest_row[group[is_longest][::-1]] = is_longest[::-1]  # the earliest of several
        end = np.maximum.reduceat(rows["start"] + rows["duration"], first)
        return {
            "line": rows["line"][first],
            "start": rows["start"][first],
            "duration": end - rows["start"][first],
            "name": rows["name"][longest_row],
            "id": np.full(len(first), -1, dtype=np.int64),
            "count": np.add.reduceat(rows["count"], first),
            "busy": np.add.reduceat(rows["busy"], first),
            "longest": longest,
        }


def _part(columns: Columns, shadow: int = 0) -> Columns:
    """Return the drawn columns of some ranges."""
    track = columns.get("track", np.empty(0, dtype=np.int64))
    drawn = {name: columns[name] for name in _EVENT if name in columns}
    return {**drawn, "line": 2 * track.astype(np.int64) + shadow}


def _join(parts: list[Columns], names: tuple[str, ...]) -> Columns:
    none = np.empty(0, dtype=np.int64)
    return {name: np.concatenate([none, *(part[name] for part in parts)]) for name in names}


def _rows(columns: Columns, indices: NDArray[Any]) -> Columns:
    return {name: values[indices] for name, values in columns.items()}


def _still_open(parts: list[Columns]) -> list[Columns]:
    """Return ranges that end after the last start, all that later slices may start in."""
    ranges = _join(parts, _EXTENT)
    end = ranges["start"] + ranges["duration"]
    return [_rows(ranges, end > ranges["start"].max(initial=end.min(initial=0)))]


def _last_of_each(parts: list[Columns]) -> list[Columns]:
    """Return the work that ends last on each stream."""
    work = _join(parts, _EXTENT)
    order = np.lexsort((work["start"] + work["duration"], work["line"]))
    is_last = np.ones(len(order), dtype=np.bool_)
    is_last[:-1] = np.diff(work["line"][order]) != 0
    return [_rows(work, order[is_last])]


def _summaries(events: Columns) -> Columns:
    """Return each event as the summary of itself."""
    duration = events["duration"]
    return {**events, "count": np.ones_like(duration), "busy": duration, "longest": duration}


def _outlasted_levels(duration: Int, coarsest: int) -> Int:
    """Return the coarsest level whose buckets each event outlasts or equals, -1 for none."""
    widths = BASE_NS * np.power(FANOUT, np.arange(coarsest + 1), dtype=np.int64)
    return np.searchsorted(widths, duration, side="right").astype(np.int64) - 1


def _level_of(width_ns: int) -> int:
    """Return the finest level whose buckets are at least so wide."""
    return max(0, int(np.ceil(np.log2(max(1, width_ns / BASE_NS)) / np.log2(FANOUT))))
