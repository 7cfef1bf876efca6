"""Events within a range of time: summed by name and by path, or as slices of a picture.

    clipped   an event counts with its portion inside the range
    total     time with at least one event of a name, where events nest: a function that calls
              itself counts once
    self      its clipped duration minus those of the events directly inside it, at least 0: an
              event may end slightly after the one around it
    count     events that start in the range, and those that were open at its start
    marks     steps, fetches that a DataLoader brackets, and the bracket of the profiler itself mark
              time and are no work: they are left out

A range is processed in chunks; sums over chunks are those of the range.

Timeline slices: events that are too short to be visible are summarized.

    width   minimum duration of an event that is drawn individually; also the length of buckets,
            which start at time 0
    slice   one event of at least a width, or all shorter events of a row that start in one bucket

An event that is drawn individually starts in a bucket and ends outside of it, so no events of its
row before and after it share a bucket: slices of a row never overlap unless its events do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.kernel_classes import fold_number, is_time_mark

ROOT = -1
"""Parent of the outermost calls."""


class ClippedEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Events clipped to a chunk, outer before inner."""

    line: intervals.Int
    start: intervals.Int
    end: intervals.Int
    added_ns: intervals.Int
    """Part of the clipped duration in which no earlier event of the same name runs on the line."""
    self_ns: intervals.Int
    parent: intervals.Int
    """Index of the event around each event, -1 for none."""
    depth: intervals.Int
    name: intervals.Int
    """Index into `names`."""
    counts: NDArray[np.bool_]
    """True if the event counts in this chunk: it starts there, or was open at the range's start."""
    names: Sequence[str]

    @property
    def duration(self) -> intervals.Int:
        """Clipped duration of each event."""
        return self.end - self.start


def clip_events(
    slices: Slices, chunk: tuple[int, int], *, is_first: bool, nests: NDArray[np.bool_]
) -> ClippedEvents:
    """Clip events to a chunk of time and nest them.

    Args:
        slices: events that overlap the chunk.
        chunk: start and end.
        is_first: true for the first chunk of a range.
        nests: true for lines whose events nest; events of other lines have no parent.
    """
    marks = [number for number, name in enumerate(slices.names) if is_time_mark(name)]
    if marks:
        slices = slices.take(~np.isin(slices.name, marks))
    slices = slices.rename(fold_number)  # equal names get one number
    chunk_start, chunk_end = chunk
    start = np.maximum(slices.start, chunk_start)
    end = np.minimum(slices.start + slices.duration, chunk_end)
    # Lines are shifted to follow each other, so that they are nested in one pass. Each event of a
    # line without nesting gets a line of its own.
    spacing = chunk_end - chunk_start + 2 * intervals.OVERHANG_NS
    is_flat = ~nests[slices.line]
    line = np.where(is_flat, len(nests) + np.arange(len(slices)), slices.line)
    shifted = start - chunk_start + line * spacing
    order = intervals.nesting_order(shifted, shifted + (end - start))
    shifted, duration = shifted[order], (end - start)[order]
    parent = intervals.parents(shifted, shifted + duration, intervals.OVERHANG_NS)
    inside_ns = np.zeros(len(order), dtype=np.int64)
    nested = parent >= 0
    np.add.at(inside_ns, parent[nested], duration[nested])
    ordered = slices.take(order)
    return ClippedEvents(
        line=ordered.line,
        start=start[order],
        end=end[order],
        added_ns=_subtract_earlier(ordered.name, shifted, shifted + duration),
        self_ns=np.maximum(duration - inside_ns, 0),
        parent=parent,
        depth=intervals.depths(parent),
        name=ordered.name,
        counts=(ordered.start >= chunk_start) | is_first,
        names=slices.names,
    )


def _subtract_earlier(
    group: intervals.Int, start: intervals.Int, end: intervals.Int
) -> intervals.Int:
    """Measure the part of each interval after the ends of all earlier ones of its group.

    Args:
        group: number of the group of each interval.
        start, end: intervals, by start.
    """
    count = len(start)
    order = np.argsort(group, kind="stable")
    ends = np.sort(end)
    # Ranks of the ends are small enough to be offset by group, so one pass keeps groups apart.
    rank = np.searchsorted(ends, end[order])
    group_number = np.cumsum(np.diff(group[order], prepend=group[order][:1]) != 0)
    reach = np.maximum.accumulate(rank + group_number * count)
    is_first = np.diff(group_number, prepend=-1) != 0
    earlier_end = ends[np.roll(reach, 1) % max(1, count)]
    free_from = np.where(is_first, start[order], np.maximum(start[order], earlier_end))
    added = np.empty(count, dtype=np.int64)
    added[order] = np.maximum(end[order] - free_from, 0)
    return added


class NameSums(msgspec.Struct):
    """Sums over the events of one name."""

    count: int = 0
    total_ns: int = 0
    duration_ns: int = 0
    """Sum of the durations; more than `total_ns` if events of the name are nested."""
    self_ns: int = 0
    max_ns: int = 0


class LineSums(msgspec.Struct):
    """Sums over the events of one line; chunks are added in order of time."""

    names: dict[str, NameSums] = msgspec.field(default_factory=dict)
    event_count: int = 0
    busy_ns: int = 0
    gap_count: int = 0
    longest_gap_ns: int = 0
    _busy_until: int | None = None

    def add_names(self, events: ClippedEvents, rows: NDArray[Any]) -> None:
        """Add events to the sums of their names."""
        codes, group = np.unique(events.name[rows], return_inverse=True)
        duration = events.duration[rows]
        added = events.added_ns[rows]
        counts = np.bincount(group, weights=events.counts[rows]).astype(np.int64)
        totals = np.bincount(group, weights=added).astype(np.int64)
        sums_ns = np.bincount(group, weights=duration).astype(np.int64)
        selves = np.bincount(group, weights=events.self_ns[rows]).astype(np.int64)
        maxima = np.zeros(len(codes), dtype=np.int64)
        np.maximum.at(maxima, group, duration)
        for index, code in enumerate(codes.tolist()):
            sums = self.names.setdefault(events.names[code], NameSums())
            sums.count += int(counts[index])
            sums.total_ns += int(totals[index])
            sums.duration_ns += int(sums_ns[index])
            sums.self_ns += int(selves[index])
            sums.max_ns = max(sums.max_ns, int(maxima[index]))
        self.event_count += int(events.counts[rows].sum())

    def add_busy(self, start: intervals.Int, end: intervals.Int) -> None:
        """Add a union of busy time, and the gaps in it."""
        if not len(start):
            return
        self.busy_ns += int((end - start).sum())
        gaps = start[1:] - end[:-1]
        if self._busy_until is not None:
            gaps = np.append(gaps, start[0] - self._busy_until)
        gaps = gaps[gaps > 0]
        self.gap_count += len(gaps)
        self.longest_gap_ns = max(self.longest_gap_ns, int(gaps.max(initial=0)))
        self._busy_until = int(end[-1])


class CallTree(msgspec.Struct, eq=False):
    """Calls by path of names; node `i` is called from node `parent[i]`, -1 for none."""

    parent: list[int] = msgspec.field(default_factory=list)
    name: list[str] = msgspec.field(default_factory=list)
    count: list[int] = msgspec.field(default_factory=list)
    total_ns: list[int] = msgspec.field(default_factory=list)
    self_ns: list[int] = msgspec.field(default_factory=list)
    _nodes: dict[tuple[int, str], int] = msgspec.field(default_factory=dict)

    def add(self, events: ClippedEvents) -> None:
        """Add the events of a chunk."""
        node = np.full(len(events.line), ROOT, dtype=np.int64)
        name_count = len(events.names)
        for depth in range(int(events.depth.max(initial=-1)) + 1):
            rows = np.flatnonzero(events.depth == depth)
            parent = node[events.parent[rows]] if depth else np.full(len(rows), ROOT)
            keys, group = np.unique(
                (parent + 1) * name_count + events.name[rows], return_inverse=True
            )
            nodes = [
                self._find_or_add(key // name_count - 1, events.names[key % name_count])
                for key in keys.tolist()
            ]
            node[rows] = np.array(nodes, dtype=np.int64)[group]
            counts = np.bincount(group, weights=events.counts[rows])
            totals = np.bincount(group, weights=events.duration[rows])
            selves = np.bincount(group, weights=events.self_ns[rows])
            for index, number in enumerate(nodes):
                self.count[number] += int(counts[index])
                self.total_ns[number] += int(totals[index])
                self.self_ns[number] += int(selves[index])

    def _find_or_add(self, parent: int, name: str) -> int:
        node = self._nodes.setdefault((parent, name), len(self.name))
        if node == len(self.name):
            self.parent.append(parent)
            self.name.append(name)
            self.count.append(0)
            self.total_ns.append(0)
            self.self_ns.append(0)
        return node


Integers = NDArray[Any]
"""Integers of any width: many columns only hold small numbers."""


class Slices(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Slices of several lines, sorted by line, row and start."""

    line: Integers
    """Index of the track among those requested."""
    row: Integers
    start: Integers
    duration: Integers
    """Duration; of a summary, from the start of its first event to the end of its last."""
    count: Integers
    """Number of events."""
    busy: Integers
    """Sum of the durations of its events."""
    longest: Integers
    """Duration of its longest event."""
    name: Integers
    """Index into `names`; of a summary, the name of its longest event."""
    event: Integers
    """Number of the event on its track; -1 for a summary."""
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.line)

    @property
    def size_bytes(self) -> int:
        """Memory of the columns; columns that share memory count once."""
        return sum({id(c): c.nbytes for c in (getattr(self, n) for n in _COLUMNS)}.values())

    def take(self, rows: NDArray[Any] | slice) -> Slices:
        """Select slices by a mask, an index array or a slice."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS})

    def overlaps(self, start: int, end: int) -> NDArray[np.bool_]:
        """Mask of the slices that overlap a range of time."""
        mask: NDArray[np.bool_] = (self.start < end) & (
            (self.start + self.duration > start) | (self.start >= start)
        )
        return mask

    def overlapping(self, start: int, end: int) -> Slices:
        """Select the slices that overlap a range of time."""
        return self.take(self.overlaps(start, end))

    def rename(self, rename: Callable[[str], str]) -> Slices:
        """Replace the names, and keep only those of these slices, each once."""
        codes, code_index = np.unique(self.name, return_inverse=True)
        indices: dict[str, int] = {}  # several names may become one
        renamed = [
            indices.setdefault(rename(self.names[code]), len(indices)) for code in codes.tolist()
        ]
        name = np.asarray(renamed, dtype=np.int64)[code_index]
        return replace(self, name=name, names=list(indices))

    def renumber_lines(self, lines: NDArray[Any]) -> Slices:
        """Select slices by line and renumber the lines.

        Args:
            lines: new number by old number, -1 to drop a line.
        """
        line = lines[self.line]
        selected = line >= 0
        return replace(self.take(selected), line=line[selected])

    def place_on_rows(self, row: intervals.Int) -> Slices:
        """Assign rows, and sort again."""
        slices = replace(self, row=row)
        return slices.take(np.lexsort((slices.start, slices.row, slices.line)))

    def shift(self, offset_ns: int) -> Slices:
        """Shift all slices in time."""
        return replace(self, start=self.start + offset_ns)


_COLUMNS = ("line", "row", "start", "duration", "count", "busy", "longest", "name", "event")
NO_SLICES = Slices(**{name: np.empty(0, dtype=np.int64) for name in _COLUMNS}, names=())


def merge_slices(parts: Sequence[Slices]) -> Slices:
    """Merge several collections of slices, and sort again."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return NO_SLICES
    columns = {name: [getattr(part, name) for part in parts] for name in _COLUMNS}
    names = parts[0].names
    if any(part.names is not names for part in parts):
        offsets = itertools.accumulate((len(part.names) for part in parts), initial=0)
        columns["name"] = [
            part.name.astype(np.int64) + offset
            for part, offset in zip(parts, offsets, strict=False)
        ]
        names = list(itertools.chain.from_iterable(part.names for part in parts))
    slices = Slices(**{k: np.concatenate(v) for k, v in columns.items()}, names=names)
    return slices.take(np.lexsort((slices.start, slices.row, slices.line)))


def summarize_slices(slices: Slices, width: int) -> Slices:
    """Summarize slices shorter than `width` in buckets of that width."""
    if not len(slices):
        return slices
    bucket = slices.start // width
    # An individually drawn event starts a group, and so does the slice after it.
    individual = (slices.count == 1) & (slices.duration >= width)
    is_first = np.ones(len(slices), dtype=np.bool_)
    is_first[1:] = individual[1:] | individual[:-1] | (bucket[1:] != bucket[:-1])
    is_first[1:] |= (slices.line[1:] != slices.line[:-1]) | (slices.row[1:] != slices.row[:-1])
    first = np.flatnonzero(is_first)
    if len(first) == len(slices):
        return slices
    group = np.cumsum(is_first) - 1
    longest = np.maximum.reduceat(slices.longest, first)
    is_longest = np.flatnonzero(slices.longest == longest[group])
    longest_row = np.empty(len(first), dtype=np.int64)
    longest_row[group[is_longest][::-1]] = is_longest[::-1]  # on a tie, the earliest
    single = np.diff(np.append(first, len(slices))) == 1
    end = np.maximum.reduceat(slices.start + slices.duration, first)
    return Slices(
        line=slices.line[first],
        row=slices.row[first],
        start=slices.start[first],
        duration=end - slices.start[first],
        count=np.add.reduceat(slices.count, first),
        busy=np.add.reduceat(slices.busy, first),
        longest=longest,
        name=slices.name[longest_row],
        event=np.where(single, slices.event[first], -1),
        names=slices.names,
    )


def limit_slices(slices: Slices, max_count: int, width: int) -> Slices:
    """Summarize slices in buckets of `width`, doubled until at most `max_count` slices remain.

    A row that has events keeps at least one slice.
    """
    summary = summarize_slices(slices, width)
    extent = int((slices.start + slices.duration).max(initial=0)) + 1
    while len(summary) > max_count and width < 2 * extent:
        width *= 2
        summary = summarize_slices(summary, width)
    return summary


def choose_width(range_ns: int, pixels: int) -> int:
    """Choose the power of two nanoseconds between one and two pixels.

    >>> choose_width(1_500_000, 1500)
    1024
    """
    pixel = max(1, -(-range_ns // max(1, pixels)))
    return 1 << (pixel - 1).bit_length()
