"""The span table of one process as typed arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.arrays.columns import narrow
from stepscope.intervals import Int, Intervals

FLAG_ASYNC = 1
FLAG_NO_GRAD = 2
FLAG_NO_RESULT = 4
FLAG_EVAL_MODE = 8
FLAG_SIZED = 32
FLAG_NO_OPTIMIZER = 64
FLAG_NEW_MODEL = 128
SIZE_BITS = 44
"""Bits of the value of a sized forward pass for the number of elements."""
_BLOCK_ROWS = 1 << 16


class SpanGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Columns that many spans have in common."""

    thread: int
    kind: str
    name: str
    flags: int
    unfinished: bool
    value: int = 0
    """0 where the spans have a value each."""


class Spans(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Spans of one process, sorted by start, outer before inner.

    A long run has millions: one takes 13 bytes, or 21 where values differ. A span without a
    recorded end is marked in `unfinished`; its `end` is the end of the span log.
    """

    start: Int
    length: NDArray[Any]
    """Duration of each span, nanoseconds, in the narrowest type."""
    group: NDArray[Any]
    """Index in `groups` of each span."""
    groups: Sequence[SpanGroup]
    values: Int | None = None
    """Value of each span; None where they are those of the groups."""

    @classmethod
    def of_columns(
        cls,
        *,
        start: Int,
        end: Int,
        kind: Sequence[str],
        name: Sequence[str],
        thread: Sequence[int],
        flags: Sequence[int],
        unfinished: Sequence[bool],
        value: Int,
    ) -> Spans:
        """Build spans of columns, which are in order."""
        codes: dict[SpanGroup, int] = {}
        rows = zip(thread, kind, name, flags, unfinished, strict=True)
        group = [
            codes.setdefault(SpanGroup(thread=t, kind=k, name=n, flags=f, unfinished=u), len(codes))
            for t, k, n, f, u in rows
        ]
        return cls(
            start=start,
            length=narrow(end - start),
            group=np.array(group, dtype=np.int64),
            groups=list(codes),
            values=value,
        )

    @classmethod
    def join(cls, parts: Iterable[Spans]) -> Spans:
        """Join the spans of consecutive ranges of time, of which there is at least one."""
        codes: dict[SpanGroup, int] = {}
        columns: list[tuple[Int, NDArray[Any], NDArray[Any], Int | None]] = []
        for part in parts:
            code = [codes.setdefault(group, len(codes)) for group in part.groups]
            table = np.array(code, dtype=np.min_scalar_type(len(codes)))
            columns.append((part.start, part.length, table.take(part.group), part.values))
        starts, lengths, groups, values = map(list, zip(*columns, strict=True))
        columns.clear()
        if any(value is not None for value in values):
            table = np.array([group.value for group in codes], dtype=np.int64)
            values = [
                table.take(group) if value is None else value
                for group, value in zip(groups, values, strict=True)
            ]
        else:
            values = []
        # Parts are dropped column by column: all of them would double the memory of the result.
        return cls(
            start=_drain(starts),
            length=_drain(lengths),
            group=_drain(groups),
            groups=list(codes),
            values=_drain(values) if values else None,
        )

    @cached_property
    def derived(self) -> dict[Any, Any]:
        """Figures of these spans that are needed again, by their keys."""
        return {}

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def kinds(self) -> list[str]:
        """Kinds in order; there may be some of which no span is."""
        return sorted({group.kind for group in self.groups})

    @cached_property
    def names(self) -> list[str]:
        """Names in order; there may be some that no span has."""
        return sorted({group.name for group in self.groups})

    @property
    def kind(self) -> NDArray[Any]:
        """Index in `kinds` of each span."""
        codes = {kind: code for code, kind in enumerate(self.kinds)}
        return self._spread(lambda group: codes[group.kind], np.min_scalar_type(len(codes)))

    @property
    def name(self) -> NDArray[Any]:
        """Index in `names` of each span."""
        codes = {name: code for code, name in enumerate(self.names)}
        return self._spread(lambda group: codes[group.name], np.int32)

    @property
    def value(self) -> Int:
        """Value of each span."""
        if self.values is not None:
            return self.values
        return self._spread(lambda group: group.value, np.int64)

    @property
    def unfinished(self) -> NDArray[np.bool_]:
        """Mask of the spans without a recorded end."""
        return self._spread(lambda group: group.unfinished, np.bool_)

    @cached_property
    def _sizes(self) -> list[int]:
        """Number of the spans of each group."""
        sizes = np.zeros(len(self.groups), dtype=np.int64)
        for rows in self._blocks():
            sizes += np.bincount(self.group[rows], minlength=len(self.groups))
        counts: list[int] = sizes.tolist()
        return counts

    @property
    def present(self) -> list[SpanGroup]:
        """Groups of which there are spans."""
        return [group for group, size in zip(self.groups, self._sizes, strict=True) if size]

    def has_kind(self, *kinds: str) -> bool:
        """Return True if a span is of any of these kinds."""
        return any(group.kind in kinds for group in self.present)

    def is_kind(self, *kinds: str) -> NDArray[np.bool_]:
        """Mask of the spans of any of these kinds."""
        return self._spread(lambda group: group.kind in kinds, np.bool_)

    def is_named(self, name: str) -> NDArray[np.bool_]:
        """Mask of the spans with this name."""
        return self._spread(lambda group: group.name == name, np.bool_)

    def has_flag(self, flag: int) -> NDArray[np.bool_]:
        """Mask of the spans with this flag."""
        return self._spread(lambda group: group.flags & flag != 0, np.bool_)

    def _spread(self, column: Callable[[SpanGroup], Any], dtype: Any) -> NDArray[Any]:
        """Return a column of the groups, by span."""
        table = np.array([column(group) for group in self.groups], dtype=dtype)
        if len(table) and (table == table[0]).all():
            return np.full(len(self), table[0]) if table[0] else np.zeros(len(self), dtype=dtype)
        values = np.empty(len(self), dtype=dtype)
        for rows in self._blocks():
            table.take(self.group[rows], out=values[rows], mode="clip")
        return values

    def _blocks(self) -> Iterator[slice]:
        """Yield rows whose groups become indices together, with eight times the memory."""
        for first in range(0, len(self), _BLOCK_ROWS):
            yield slice(first, first + _BLOCK_ROWS)

    def of(self, *kinds: str) -> Spans:
        """Select the spans of any of these kinds."""
        return self.take(self.is_kind(*kinds)) if self.has_kind(*kinds) else self.slice(0, 0)

    def on_thread(self, thread: int | None) -> Spans:
        """Select the spans of one thread."""
        return self.take(self._spread(lambda group: group.thread == thread, np.bool_))

    def count_threads(self, *kinds: str) -> dict[int, int]:
        """Count the spans of each thread, in the order of the threads; of all kinds without any."""
        counts: dict[int, int] = {}
        for group, size in zip(self.groups, self._sizes, strict=True):
            if size and (not kinds or group.kind in kinds):
                counts[group.thread] = counts.get(group.thread, 0) + size
        return dict(sorted(counts.items()))

    def take(self, rows: NDArray[np.bool_] | Int) -> Spans:
        """Select spans by a mask or an index array."""
        if rows.dtype == np.bool_:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)  # once for all columns
            if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
                return self.slice(int(rows[0]), int(rows[-1]) + 1)
        return self._select(lambda column: column.take(rows))

    def slice(self, start: int, stop: int) -> Spans:
        """Select consecutive spans without copying columns."""
        return self._select(lambda column: column[start:stop])

    def _select(self, select: Callable[[NDArray[Any]], NDArray[Any]]) -> Spans:
        return Spans(
            start=select(self.start),
            length=select(self.length),
            group=select(self.group),
            groups=self.groups,
            values=None if self.values is None else select(self.values),
        )

    @property
    def end(self) -> Int:
        """End of each span, epoch nanoseconds."""
        end: Int = self.start + self.length
        return end

    @property
    def duration(self) -> Int:
        """Duration of each span, nanoseconds."""
        return self.length.astype(np.int64)

    @property
    def intervals(self) -> Intervals:
        """Start and end of each span."""
        return Intervals(self.start, self.end)

    def name_of(self, index: int) -> str:
        """Name of one span."""
        return self.groups[int(self.group[index])].name


def _drain(parts: list[NDArray[Any]]) -> NDArray[Any]:
    joined = np.concatenate(parts)
    parts.clear()
    return joined
