"""Levels of detail, made once, so that any window of any trace is one small query.

Events of a track and row that are shorter than a bucket of a level are gathered in such buckets,
of a power of four microseconds; longer ones have rows of their own. The finest level is the first
one with at most an eighth as many rows as there are events, of smaller traces a sixteenth, and the
coarsest spans the trace in at most 256 buckets per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.importers.kineto.decode import Columns
from stepscope.importers.kineto.gather import DAY_NS, Bounds
from stepscope.importers.kineto.kinds import Kind
from stepscope.importers.kineto.linking import Linked
from stepscope.intervals import MAX_KEY, nesting_rows, separate_overlaps

Int = NDArray[np.int64]

BASE_NS = 1_000
FANOUT = 4
SMALL_EVENTS = 50_000
"""A smaller trace is drawn from its events; it needs no level of detail but the coarsest."""
_MIDDLING_EVENTS = 1_000_000
"""What lies below the finest level of a smaller trace is read in a tenth of a second, once."""
_SPARE = 8
"""A level is fine enough when it has so many times fewer rows than there are events."""
_SPARE_OF_MIDDLING = 16
"""With the next finer level, windows of small operators take a fifth more room."""
_COARSEST_BUCKETS = 256
_ROWS = 1 << 15
"""Rows of a track, at most; what is nested deeper shares the last one."""
_EXTENT = ("line", "start", "duration")
_EVENT = (*_EXTENT, "name", "id")
_SUMMARY = (*_EVENT, "count", "busy", "longest")


class Summariser:
    """Makes the levels of one trace, slice by slice.

    Args:
        bounds: of the times of the file.
        base_ns: what they are relative to.
        event_count: events of the trace; it decides which levels are made.
    """

    def __init__(self, bounds: Bounds, base_ns: int, *, event_count: int) -> None:
        self._bounds = bounds
        self._base_ns = base_ns
        self._coarsest = _level_of((bounds.last - bounds.first) // _COARSEST_BUCKETS)
        self._spare = _SPARE if event_count >= _MIDDLING_EVENTS else _SPARE_OF_MIDDLING
        self._finest = None if event_count >= SMALL_EVENTS else self._coarsest
        """The first slice decides for all."""
        self._nested_before: list[Columns] = []
        self._flat_before: list[Columns] = []
        """Extents of what reaches into the next slice, or may."""

    def summarise(self, linked: Linked) -> Columns:
        """Rows of the table `timeline`; a bucket may have rows from two slices."""
        events = self._events(linked)
        if not len(events["id"]):
            return {}
        levels = list(self._levels(events))
        joined = {name: np.concatenate([part[name] for part in levels]) for name in levels[0]}
        line, row = np.divmod(joined["line"], _ROWS)
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
        """All events with their lines, sorted by line and start; `gave_way` to another of its row.

        A line is a row of a track, or of the shadows on it.
        """
        # Of ranges with one extent, those of the first kind are around the others.
        host = [linked.annotations, linked.python, linked.operators, linked.calls]
        closed = [_part(linked.calls), *(self._others(*each) for each in linked.others)]
        closed.append(_part(linked.device_annotations, shadow=1))
        nested = [*map(_part, host[:3]), *closed]
        flat = [_part(each) for each in linked.device.values()]
        before = [_part(linked.around), *self._nested_before, *self._flat_before]
        events = _joined([*nested, *flat], _EVENT)
        extents = _joined([*before, events], _EXTENT)
        line, start, end = extents["line"], extents["start"], extents["start"] + extents["duration"]
        context = len(line) - len(events["id"])
        is_nested = np.ones(len(line), dtype=np.bool_)
        is_nested[len(line) - sum(len(each["id"]) for each in flat) :] = False
        last_before = sum(len(each["line"]) for each in self._flat_before)
        is_nested[context - last_before : context] = False
        nesting = np.zeros(len(line), dtype=np.int64)
        nesting[is_nested] = nesting_rows(line[is_nested], start[is_nested], end[is_nested])
        self._nested_before = _still_open([*self._nested_before, *closed])
        self._flat_before = _last_of_each([*self._flat_before, *flat])
        row = nesting
        place, order = _in_order(line, row, start)
        if _overlap(place[order], start[order], end[order]):
            row = separate_overlaps(line, nesting, start, end)
            place, order = _in_order(line, row, start)
        order = order[order >= context]
        events |= {"line": place[context:], "gave_way": (row != nesting)[context:]}
        return _rows(events, order - context)

    def _others(self, kind: Kind, columns: Columns) -> Columns:
        """Events of no other table, but for those that began at no possible time; impossible
        durations count as none."""
        found = _part({"duration": np.zeros(len(columns["id"]), dtype=np.int64), **columns})
        start, duration = found["start"], found["duration"]
        known = columns["has_duration"] > 0 if kind is Kind.OTHER else True
        found["duration"] = np.where(known & (duration >= 0) & (duration <= DAY_NS), duration, 0)
        possible = (start >= self._bounds.first) & (start <= self._bounds.last)
        return {name: values[possible] for name, values in found.items()}

    def _levels(self, events: Columns) -> Iterator[Columns]:
        gave_way = events.pop("gave_way")
        outlasts = _outlasted(events["duration"], self._coarsest)
        if self._finest is None:
            self._finest = self._finest_of(events["line"], events["start"], outlasts)
        alone = np.flatnonzero(gave_way | (outlasts >= self._finest))
        longer = _summaries(_rows(events, alone))
        # What gave way is drawn by itself at every level, since a summary has but one row.
        shown_at = np.where(gave_way, self._coarsest, outlasts)[alone]
        yield {**longer, "level": shown_at}
        # From here on, none of these is below any level.
        outlasts[gave_way] = self._coarsest
        short = _summaries(_rows(events, np.flatnonzero(outlasts < self._finest)))
        current, outlasts = self._merged(short, self._finest), outlasts[alone]
        yield {**current, "level": np.full(len(current["line"]), self._finest, dtype=np.int64)}
        for level in range(self._finest + 1, self._coarsest + 1):
            current = _joined([current, _rows(longer, outlasts == level - 1)], _SUMMARY)
            order = np.lexsort((current["start"], current["line"]))
            current = self._merged(_rows(current, order), level)
            yield {**current, "level": np.full(len(current["line"]), level, dtype=np.int64)}

    def _finest_of(self, line: Int, start: Int, outlasts: Int) -> int:
        """The first level with few enough rows. Events are sorted by line and start."""
        count = len(outlasts)
        lines = 1 + int(np.count_nonzero(np.diff(line)))
        span = int(np.ptp(start))
        # No level can be worth its rows before a bucket holds some events on average.
        for level in range(_level_of(span * lines // count), self._coarsest):
            short = outlasts < level
            buckets = self._opens({"line": line[short], "start": start[short]}, level).sum()
            if (count - short.sum() + buckets) * self._spare <= count:
                return level
        return self._coarsest

    def _opens(self, rows: Columns, level: int) -> NDArray[np.bool_]:
        """Which sorted rows are the first ones of a bucket of their line."""
        bucket = (rows["start"] - self._bounds.first) // (BASE_NS * FANOUT**level)
        opens = np.ones(len(bucket), dtype=np.bool_)
        opens[1:] = (np.diff(rows["line"]) != 0) | (np.diff(bucket) != 0)
        return opens

    def _merged(self, rows: Columns, level: int) -> Columns:
        """One row per line and bucket; rows come sorted by line and start."""
        opens = self._opens(rows, level)
        first = np.flatnonzero(opens)
        if not len(first):
            return rows
        group = np.cumsum(opens) - 1
        longest = np.maximum.reduceat(rows["longest"], first)
        is_longest = np.flatnonzero(rows["longest"] == longest[group])
        named = np.empty(len(first), dtype=np.int64)
        named[group[is_longest][::-1]] = is_longest[::-1]  # the earliest of several
        end = np.maximum.reduceat(rows["start"] + rows["duration"], first)
        return {
            "line": rows["line"][first],
            "start": rows["start"][first],
            "duration": end - rows["start"][first],
            "name": rows["name"][named],
            "id": np.full(len(first), -1, dtype=np.int64),
            "count": np.add.reduceat(rows["count"], first),
            "busy": np.add.reduceat(rows["busy"], first),
            "longest": longest,
        }


def _part(columns: Columns, shadow: int = 0) -> Columns:
    """What is drawn of some ranges."""
    track = columns.get("track", np.empty(0, dtype=np.int64))
    named = {name: columns[name] for name in _EVENT if name in columns}
    return {**named, "line": 2 * track.astype(np.int64) + shadow}


def _joined(parts: list[Columns], names: tuple[str, ...]) -> Columns:
    none = np.empty(0, dtype=np.int64)
    return {name: np.concatenate([none, *(part[name] for part in parts)]) for name in names}


def _rows(columns: Columns, chosen: NDArray[Any]) -> Columns:
    return {name: values[chosen] for name, values in columns.items()}


def _in_order(line: Int, row: Int, start: Int) -> tuple[Int, Int]:
    """Lines with their rows in them, and what sorts ranges by these and start."""
    row = np.minimum(row, _ROWS - 1)
    if not len(line):
        return line, line
    # Parts come by line and start already; of few rows, small numbers are sorted without comparing.
    stretch = int(np.ptp(start)) + 1
    if int(line.max()) < MAX_KEY // stretch:
        order = np.argsort(line * stretch + (start - start.min()), kind="stable")
    else:
        order = np.lexsort((start, line))
    narrow = line * (int(row.max()) + 1) + row
    narrow = narrow.astype(np.min_scalar_type(int(narrow.max())))
    return line * _ROWS + row, order[np.argsort(narrow[order], kind="stable")]


def _overlap(place: Int, start: Int, end: Int) -> bool:
    """Whether any of some sorted ranges begins before another one of its row ends."""
    return bool(((place[1:] == place[:-1]) & (start[1:] < end[:-1])).any())


def _still_open(parts: list[Columns]) -> list[Columns]:
    """Ranges that end after the last start: all that later slices may begin in."""
    ranges = _joined(parts, _EXTENT)
    end = ranges["start"] + ranges["duration"]
    return [_rows(ranges, end > ranges["start"].max(initial=end.min(initial=0)))]


def _last_of_each(parts: list[Columns]) -> list[Columns]:
    """What ends last on each stream."""
    work = _joined(parts, _EXTENT)
    order = np.lexsort((work["start"] + work["duration"], work["line"]))
    is_last = np.ones(len(order), dtype=np.bool_)
    is_last[:-1] = np.diff(work["line"][order]) != 0
    return [_rows(work, order[is_last])]


def _summaries(events: Columns) -> Columns:
    """Each event as the summary of itself."""
    duration = events["duration"]
    return {**events, "count": np.ones_like(duration), "busy": duration, "longest": duration}


def _outlasted(duration: Int, coarsest: int) -> Int:
    """The coarsest level whose buckets each event is at least as long as, -1 for none."""
    widths = BASE_NS * np.power(FANOUT, np.arange(coarsest + 1), dtype=np.int64)
    return np.searchsorted(widths, duration, side="right").astype(np.int64) - 1


def _level_of(width_ns: int) -> int:
    """The finest level whose buckets are at least so wide."""
    return max(0, int(np.ceil(np.log2(max(1, width_ns / BASE_NS)) / np.log2(FANOUT))))
