"""Timeline slices: events that are too short to be visible are summarized.

    width   minimum duration of an event that is drawn individually; also the length of buckets,
            which start at time 0
    slice   one event of at least a width, or all shorter events of a row that start in one bucket

An event that is drawn individually starts in a bucket and ends outside of it, so no events of its
row before and after it share a bucket: slices of a row never overlap unless its events do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int

Integers = NDArray[Any]
"""Integers of any width: many columns only hold small numbers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slices:
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

    def place_on_rows(self, row: Int) -> Slices:
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
