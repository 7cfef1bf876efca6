"""Events within a range by name and by path of names.

    cut      an event counts as far as it lies in the range
    self     its cut duration less those of the events right inside it, at least 0: an event may
             end a little after the one around it
    count    events that begin in the range, and those that were open when it began

Ranges are looked at piece by piece; sums over pieces are those of the range.
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
"""What is around the outermost calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutEvents:
    """Events cut at the ends of a piece, those around others first."""

    line: Int
    start: Int
    end: Int
    self_ns: Int
    parent: Int
    """Place of the event around it, -1 for none."""
    depth: Int
    name: Int
    whole_ns: Int
    """Duration without the cut."""
    counts: NDArray[np.bool_]
    """Whether it counts here: it begins here, or was open when the range began."""
    names: Sequence[str]

    @property
    def duration(self) -> Int:
        """As far as it lies in the piece."""
        return self.end - self.start


def cut_events(
    slices: Slices, piece: tuple[int, int], *, first: bool, nests: NDArray[np.bool_]
) -> CutEvents:
    """Events of a piece with what is inside what.

    Args:
        slices: events that lie in the piece, at least in part.
        piece: begin and end.
        first: whether the range begins with it.
        nests: by line, whether its events nest; on the other lines none is inside another.
    """
    begin, end = piece
    start = np.maximum(slices.start, begin)
    until = np.minimum(slices.start + slices.duration, end)
    stretch = end - begin + 2 * OVERHANG_NS
    # A line whose events do not nest is taken for as many lines as it has events.
    flat = ~nests[slices.line]
    place = np.where(flat, len(nests) + np.arange(len(slices)), slices.line)
    at = start - begin + place * stretch
    order = nesting_order(at, at + (until - start))
    at, length = at[order], (until - start)[order]
    parent = parents(at, at + length, OVERHANG_NS)
    inside = np.zeros(len(order), dtype=np.int64)
    nested = parent >= 0
    np.add.at(inside, parent[nested], length[nested])
    taken = slices.take(order)
    return CutEvents(
        line=taken.line,
        start=start[order],
        end=until[order],
        self_ns=np.maximum(length - inside, 0),
        parent=parent,
        depth=depths(parent),
        name=taken.name,
        whole_ns=taken.duration,
        counts=(taken.start >= begin) | first,
        names=slices.names,
    )


@dataclass(slots=True)
class NameSums:
    """What the events of one name took."""

    count: int = 0
    total_ns: int = 0
    self_ns: int = 0
    max_ns: int = 0


@dataclass(slots=True)
class LineSums:
    """What happened on one line; pieces are added in the order of time."""

    names: dict[str, NameSums] = field(default_factory=dict)
    event_count: int = 0
    busy_ns: int = 0
    gap_count: int = 0
    longest_gap_ns: int = 0
    _busy_until: int | None = None

    def add_names(self, events: CutEvents, rows: NDArray[Any]) -> None:
        """Sums by name of some events."""
        codes, group = np.unique(events.name[rows], return_inverse=True)
        duration = events.duration[rows]
        counts = np.bincount(group, weights=events.counts[rows]).astype(np.int64)
        totals = np.bincount(group, weights=duration).astype(np.int64)
        selves = np.bincount(group, weights=events.self_ns[rows]).astype(np.int64)
        longest = np.zeros(len(codes), dtype=np.int64)
        np.maximum.at(longest, group, duration)
        for place, code in enumerate(codes.tolist()):
            sums = self.names.setdefault(events.names[code], NameSums())
            sums.count += int(counts[place])
            sums.total_ns += int(totals[place])
            sums.self_ns += int(selves[place])
            sums.max_ns = max(sums.max_ns, int(longest[place]))
        self.event_count += int(events.counts[rows].sum())

    def add_busy(self, start: Int, end: Int) -> None:
        """The time that a union covers, and the gaps in it."""
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
    """Calls by path of names. Node `i` is called from node `parent[i]` and has `name[i]`."""

    parent: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    total_ns: list[int] = field(default_factory=list)
    self_ns: list[int] = field(default_factory=list)
    _places: dict[tuple[int, str], int] = field(default_factory=dict)

    def add(self, events: CutEvents) -> None:
        """Adds the events of a piece."""
        node = np.full(len(events.line), ROOT, dtype=np.int64)
        for depth in range(int(events.depth.max(initial=-1)) + 1):
            rows = np.flatnonzero(events.depth == depth)
            above = node[events.parent[rows]] if depth else np.full(len(rows), ROOT)
            key = (above + 1) * len(events.names) + events.name[rows]
            distinct, group = np.unique(key, return_inverse=True)
            numbers = np.array(
                [
                    self._place(
                        int(each) // len(events.names) - 1, events.names[each % len(events.names)]
                    )
                    for each in distinct.tolist()
                ],
                dtype=np.int64,
            )
            node[rows] = numbers[group]
            counts = np.bincount(group, weights=events.counts[rows])
            totals = np.bincount(group, weights=events.duration[rows])
            selves = np.bincount(group, weights=events.self_ns[rows])
            for place, number in enumerate(numbers.tolist()):
                self.count[number] += int(counts[place])
                self.total_ns[number] += int(totals[place])
                self.self_ns[number] += int(selves[place])

    def _place(self, parent: int, name: str) -> int:
        place = self._places.setdefault((parent, name), len(self.name))
        if place == len(self.name):
            self.parent.append(parent)
            self.name.append(name)
            self.count.append(0)
            self.total_ns.append(0)
            self.self_ns.append(0)
        return place
