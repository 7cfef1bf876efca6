"""Events within a range of time, summed by name and by path of names.

    clipped   an event counts with its portion inside the range
    total     time with at least one event of a name, where events nest: a function that calls
              itself counts once
    self      its clipped duration minus those of the events directly inside it, at least 0: an
              event may end slightly after the one around it
    count     events that start in the range, and those that were open at its start

A range is processed in chunks; sums over chunks are those of the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.timeline_slices import Slices
from stepscope.intervals import OVERHANG_NS, Int, depths, nesting_order, parents

ROOT = -1
"""Parent of the outermost calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedEvents:
    """Events clipped to a chunk, outer before inner."""

    line: Int
    start: Int
    end: Int
    added_ns: Int
    """Part of the clipped duration in which no earlier event of the same name runs on the line."""
    self_ns: Int
    parent: Int
    """Index of the event around each event, -1 for none."""
    depth: Int
    name: Int
    """Index into `names`."""
    counts: NDArray[np.bool_]
    """True if the event counts in this chunk: it starts there, or was open at the range's start."""
    names: Sequence[str]

    @property
    def duration(self) -> Int:
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
    slices = slices.rename(str)  # equal names get one number
    chunk_start, chunk_end = chunk
    start = np.maximum(slices.start, chunk_start)
    end = np.minimum(slices.start + slices.duration, chunk_end)
    # Lines are shifted to follow each other, so that they are nested in one pass. Each event of a
    # line without nesting gets a line of its own.
    spacing = chunk_end - chunk_start + 2 * OVERHANG_NS
    is_flat = ~nests[slices.line]
    line = np.where(is_flat, len(nests) + np.arange(len(slices)), slices.line)
    shifted = start - chunk_start + line * spacing
    order = nesting_order(shifted, shifted + (end - start))
    shifted, duration = shifted[order], (end - start)[order]
    parent = parents(shifted, shifted + duration, OVERHANG_NS)
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
        depth=depths(parent),
        name=ordered.name,
        counts=(ordered.start >= chunk_start) | is_first,
        names=slices.names,
    )


def _subtract_earlier(group: Int, start: Int, end: Int) -> Int:
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


@dataclass(slots=True)
class NameSums:
    """Sums over the events of one name."""

    count: int = 0
    total_ns: int = 0
    duration_ns: int = 0
    """Sum of the durations; more than `total_ns` if events of the name are nested."""
    self_ns: int = 0
    max_ns: int = 0


@dataclass(slots=True)
class LineSums:
    """Sums over the events of one line; chunks are added in order of time."""

    names: dict[str, NameSums] = field(default_factory=dict)
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

    def add_busy(self, start: Int, end: Int) -> None:
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


@dataclass(slots=True, eq=False)
class CallTree:
    """Calls by path of names; node `i` is called from node `parent[i]`, -1 for none."""

    parent: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    total_ns: list[int] = field(default_factory=list)
    self_ns: list[int] = field(default_factory=list)
    _nodes: dict[tuple[int, str], int] = field(default_factory=dict)

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
