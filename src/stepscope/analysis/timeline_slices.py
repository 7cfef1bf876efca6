"""Events as slices of a picture: what is too short to be seen is summed up.

    width   what a slice must last to be drawn by itself; buckets of so much time are laid from 0
    slice   one event of at least a width, or all shorter ones of a row that begin in one bucket

An event that is drawn by itself begins in a bucket and ends outside of it, so that nothing of its
row lies on both of its sides in one bucket: slices of a row never overlap unless its events do.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int

Whole = NDArray[Any]
"""Integers of any width: half the events of a run are small numbers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slices:
    """Slices of several lines, sorted by line, row and start."""

    line: Whole
    """Place of its track among those that were asked for."""
    row: Whole
    start: Whole
    duration: Whole
    """Of a summary, from the start of its first event to the end of its last."""
    count: Whole
    busy: Whole
    """Durations of its events, summed."""
    longest: Whole
    """Duration of its longest event."""
    name: Whole
    """Place in `names`; of a summary, of the name of its longest event."""
    event: Whole
    """Number of the event on its track; -1 for a summary."""
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.line)

    @property
    def size_bytes(self) -> int:
        """Memory of its columns; those that share theirs count once."""
        return sum({id(c): c.nbytes for c in (getattr(self, n) for n in _COLUMNS)}.values())

    def take(self, rows: NDArray[Any] | slice) -> Slices:
        """Some of them."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS})

    def overlap(self, begin: int, end: int) -> NDArray[np.bool_]:
        """Which of them lie in a range, at least in part."""
        found: NDArray[np.bool_] = (self.start < end) & (
            (self.start + self.duration > begin) | (self.start >= begin)
        )
        return found

    def overlapping(self, begin: int, end: int) -> Slices:
        """Those that lie in a range, at least in part."""
        return self.take(self.overlap(begin, end))

    def on(self, lines: NDArray[Any]) -> Slices:
        """Those of some lines, with new numbers.

        Args:
            lines: by old number the new one, -1 for those that are left out.
        """
        line = lines[self.line]
        kept = line >= 0
        return replace(self.take(kept), line=line[kept])

    def on_rows(self, row: Int) -> Slices:
        """The same on other rows, sorted again."""
        found = replace(self, row=row)
        return found.take(np.lexsort((found.start, found.row, found.line)))

    def moved(self, shift: int) -> Slices:
        """The same on a clock that shows so much more."""
        return replace(self, start=self.start + shift)


_COLUMNS = ("line", "row", "start", "duration", "count", "busy", "longest", "name", "event")
NONE = Slices(**{name: np.empty(0, dtype=np.int64) for name in _COLUMNS}, names=())


def joined(parts: Sequence[Slices]) -> Slices:
    """All slices of several collections, sorted again."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return NONE
    columns = {name: [getattr(part, name) for part in parts] for name in _COLUMNS}
    names = parts[0].names
    if any(part.names is not names for part in parts):
        before = itertools.accumulate((len(part.names) for part in parts), initial=0)
        columns["name"] = [
            part.name.astype(np.int64) + n for part, n in zip(parts, before, strict=False)
        ]
        names = list(itertools.chain.from_iterable(part.names for part in parts))
    found = Slices(**{k: np.concatenate(v) for k, v in columns.items()}, names=names)
    return found.take(np.lexsort((found.start, found.row, found.line)))


def summed_up(slices: Slices, width: int) -> Slices:
    """The same with what is shorter than `width` gathered in buckets of so much time."""
    if not len(slices):
        return slices
    bucket = slices.start // width
    # An event of its own opens a group, and so does what follows it.
    alone = (slices.count == 1) & (slices.duration >= width)
    opens = np.ones(len(slices), dtype=np.bool_)
    opens[1:] = alone[1:] | alone[:-1] | (bucket[1:] != bucket[:-1])
    opens[1:] |= (slices.line[1:] != slices.line[:-1]) | (slices.row[1:] != slices.row[:-1])
    first = np.flatnonzero(opens)
    if len(first) == len(slices):
        return slices
    group = np.cumsum(opens) - 1
    longest = np.maximum.reduceat(slices.longest, first)
    is_longest = np.flatnonzero(slices.longest == longest[group])
    named = np.empty(len(first), dtype=np.int64)
    named[group[is_longest][::-1]] = is_longest[::-1]  # the earliest of several
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
        name=slices.name[named],
        event=np.where(single, slices.event[first], -1),
        names=slices.names,
    )


def at_most(slices: Slices, most: int, width: int) -> Slices:
    """Summed up in buckets of `width`, or of as many times more as it takes for so few slices.

    A row that holds anything keeps a slice.
    """
    found = summed_up(slices, width)
    extent = int((slices.start + slices.duration).max(initial=0)) + 1
    while len(found) > most and width < 2 * extent:
        width *= 2
        found = summed_up(found, width)
    return found


def width_for(range_ns: int, pixels: int) -> int:
    """The power of two of nanoseconds that lies between one and two pixels.

    >>> width_for(1_500_000, 1500)
    1024
    """
    pixel = max(1, -(-range_ns // max(1, pixels)))
    return 1 << (pixel - 1).bit_length()
