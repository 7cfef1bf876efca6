"""The span table of one process as typed arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int, Intervals

T = TypeVar("T", bound=np.generic)
FLAG_NO_GRAD = 2
FLAG_NO_RESULT = 4
FEW = 4
"""Comparing every code with so many is faster than looking it up in a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Spans of one process, sorted by start, outer before inner.

    `kind` and `name` are positions in `kinds` and `names`. Spans that never ended have the end
    of the recording for their end and are marked in `unfinished`.
    """

    kind: NDArray[np.int32]
    kinds: Sequence[str]
    name: NDArray[np.int32]
    names: Sequence[str]
    thread: NDArray[np.int64]
    start: Int
    end: Int
    flags: NDArray[np.int64]
    value: Int
    unfinished: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.start)

    def is_kind(self, *wanted: str) -> NDArray[np.bool_]:
        """Which spans are of one of these kinds."""
        return _is_among(self.kind, self.kinds, wanted)

    def is_named(self, wanted: str) -> NDArray[np.bool_]:
        """Which spans have this name."""
        return _is_among(self.name, self.names, (wanted,))

    def take(self, which: NDArray[np.bool_] | Int) -> Spans:
        """The spans that a mask or an index array selects."""
        if which.dtype == np.bool_:
            if which.all():
                return self
            which = np.flatnonzero(which)  # found once for all columns
            if len(which) and which[-1] - which[0] + 1 == len(which):
                return self._stretch(int(which[0]), int(which[-1]) + 1)
        return Spans(
            kind=_taken(self.kind, which),
            kinds=self.kinds,
            name=_taken(self.name, which),
            names=self.names,
            thread=_taken(self.thread, which),
            start=self.start.take(which),
            end=self.end.take(which),
            flags=_taken(self.flags, which),
            value=_taken(self.value, which),
            unfinished=_taken(self.unfinished, which),
        )

    def _stretch(self, begin: int, stop: int) -> Spans:
        """Spans that follow each other: no column is copied."""
        return Spans(
            kind=self.kind[begin:stop],
            kinds=self.kinds,
            name=self.name[begin:stop],
            names=self.names,
            thread=self.thread[begin:stop],
            start=self.start[begin:stop],
            end=self.end[begin:stop],
            flags=self.flags[begin:stop],
            value=self.value[begin:stop],
            unfinished=self.unfinished[begin:stop],
        )

    def of(self, *wanted: str) -> Spans:
        """The spans of these kinds."""
        return self.take(self.is_kind(*wanted))

    @property
    def duration(self) -> Int:
        """Nanoseconds of each span."""
        return self.end - self.start

    @property
    def intervals(self) -> Intervals:
        """Their extents."""
        return Intervals(self.start, self.end)

    def has_flag(self, flag: int) -> NDArray[np.bool_]:
        """Which spans carry a flag."""
        carried: NDArray[np.bool_] = (self.flags & flag) != 0
        return carried

    def name_of(self, index: int) -> str:
        """Name of one span."""
        return str(self.names[int(self.name[index])])


def _is_among(
    codes: NDArray[np.int32], strings: Sequence[str], wanted: Sequence[str]
) -> NDArray[np.bool_]:
    """Which codes stand for one of the wanted strings."""
    places = [place for place, string in enumerate(strings) if string in wanted]
    if len(places) > FEW:
        table = np.zeros(len(strings), dtype=np.bool_)
        table[places] = True
        return table.take(codes)
    found = np.zeros(len(codes), dtype=np.bool_)
    for place in places:
        found |= codes == place
    return found


def _taken(column: NDArray[T], which: NDArray[np.bool_] | Int) -> NDArray[T]:
    """Rows of a column; one that repeats a single value in memory still does."""
    if len(column) and column.strides == (0,):
        return np.broadcast_to(column[0], len(which))
    return column.take(which)
