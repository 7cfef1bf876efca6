"""The span table of one process as typed arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int, Intervals

T = TypeVar("T", bound=np.generic)
FLAG_ASYNC = 1
FLAG_NO_GRAD = 2
FLAG_NO_RESULT = 4
FLAG_EVAL_MODE = 8
FLAG_SIZED = 32
FLAG_NO_OPTIMIZER = 64
FLAG_NEW_MODEL = 128
SIZE_BITS = 44
"""Bits of the value of a sized forward pass for the number of elements."""
_MAX_COMPARISONS = 4
"""Comparing codes one value at a time is faster than a lookup table up to this many values."""


class Spans(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Spans of one process, sorted by start, outer before inner.

    `kind` and `name` index `kinds` and `names`. A span without a recorded end is marked in
    `unfinished`; its `end` is the end of the span log.
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

    @cached_property
    def derived(self) -> dict[Any, Any]:
        """Figures of these spans that are needed again, by their keys."""
        return {}

    def __len__(self) -> int:
        return len(self.start)

    def is_kind(self, *kinds: str) -> NDArray[np.bool_]:
        """Mask of the spans of any of these kinds."""
        return _is_any_of(self.kind, self.kinds, kinds)

    def is_named(self, name: str) -> NDArray[np.bool_]:
        """Mask of the spans with this name."""
        return _is_any_of(self.name, self.names, (name,))

    def take(self, rows: NDArray[np.bool_] | Int) -> Spans:
        """Select spans by a mask or an index array."""
        if rows.dtype == np.bool_:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)  # once for all columns
            if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
                return self._slice(int(rows[0]), int(rows[-1]) + 1)
        return Spans(
            kind=_take_rows(self.kind, rows),
            kinds=self.kinds,
            name=_take_rows(self.name, rows),
            names=self.names,
            thread=_take_rows(self.thread, rows),
            start=self.start.take(rows),
            end=self.end.take(rows),
            flags=_take_rows(self.flags, rows),
            value=_take_rows(self.value, rows),
            unfinished=_take_rows(self.unfinished, rows),
        )

    def _slice(self, start: int, end: int) -> Spans:
        """Select consecutive spans without copying columns."""
        return Spans(
            kind=self.kind[start:end],
            kinds=self.kinds,
            name=self.name[start:end],
            names=self.names,
            thread=self.thread[start:end],
            start=self.start[start:end],
            end=self.end[start:end],
            flags=self.flags[start:end],
            value=self.value[start:end],
            unfinished=self.unfinished[start:end],
        )

    def of(self, *kinds: str) -> Spans:
        """Select the spans of any of these kinds."""
        return self.take(self.is_kind(*kinds))

    @property
    def duration(self) -> Int:
        """Duration of each span, nanoseconds."""
        return self.end - self.start

    @property
    def intervals(self) -> Intervals:
        """Start and end of each span."""
        return Intervals(self.start, self.end)

    def has_flag(self, flag: int) -> NDArray[np.bool_]:
        """Mask of the spans with this flag."""
        flagged: NDArray[np.bool_] = (self.flags & flag) != 0
        return flagged

    def name_of(self, index: int) -> str:
        """Name of one span."""
        return str(self.names[int(self.name[index])])


def _is_any_of(
    codes: NDArray[np.int32], strings: Sequence[str], selection: Sequence[str]
) -> NDArray[np.bool_]:
    """Mask the codes whose string is in the selection."""
    selected_codes = [code for code, string in enumerate(strings) if string in selection]
    if len(selected_codes) > _MAX_COMPARISONS:
        table = np.zeros(len(strings), dtype=np.bool_)
        table[selected_codes] = True
        return table.take(codes)
    mask = np.zeros(len(codes), dtype=np.bool_)
    for code in selected_codes:
        mask |= codes == code
    return mask


def _take_rows(column: NDArray[T], rows: NDArray[np.bool_] | Int) -> NDArray[T]:
    """Select rows of a column; a broadcast column stays broadcast (one value in memory)."""
    if len(column) and column.strides == (0,):
        return np.broadcast_to(column[0], len(rows))
    return column.take(rows)
