"""Storage of the rows of traces, in background threads.

A segment costs as much time as ten thousand rows, however few it has. So the rows of small traces
are stored together: with their tables, in the order of the traces, and the rows of `traces` last.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Self

from stepscope.importers.kineto.tables import Rows
from stepscope.store import RunWriter, join_columns

GROUP_ROWS = 150_000
"""Rows of small traces that are stored together: twice as many save no measurable time."""
_SECOND_LANE = frozenset({"operators", "timeline", "quality"})
"""Tables that are written in parallel to all others."""


class Storing:
    """Appends rows in background threads, in lanes that take about the same time.

    Args:
        writer: writer of the run.
        lanes: number of tables that are written at once, 1 or 2.
        group_rows: rows that are stored together; rows of several traces only with one lane, so
            that those of `traces` come last.
    """

    def __init__(self, writer: RunWriter, *, lanes: int = 1, group_rows: int = 0) -> None:
        self._ending = ExitStack()
        opened = self._ending.enter_context
        writers = [writer, *(opened(writer.clone()) for _ in range(1, lanes))]
        self._lanes = [(writer, opened(ThreadPoolExecutor(1))) for writer in writers]
        self._pending: list[Future[Any]] = []
        self._group_rows = group_rows
        self._group: dict[str, list[Rows]] = {}
        self._row_count = 0
        # Consecutive, so that segments and row groups of several traces have narrow extents.
        self._traces = itertools.count(secrets.randbits(48))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._ending:
            if kind is None:
                self.finish()

    def next_trace(self) -> int:
        """Return the number of the next trace."""
        return next(self._traces)

    def prepare(self) -> None:
        """Make the first append as fast as the others."""
        self._pending += [thread.submit(writer.prepare) for writer, thread in self._lanes]

    def append(self, tables: Iterable[tuple[str, Rows]]) -> None:
        """Add the rows of some tables, and start to store the group if it is complete."""
        for table, rows in tables:
            self._group.setdefault(table, []).append(rows)
            self._row_count += len(rows["trace"])
            if self._row_count >= self._group_rows:
                self._start()

    def wait(self) -> None:
        """Wait until all complete groups are stored."""
        while self._pending:
            self._pending.pop(0).result()

    def finish(self) -> None:
        """Store all rows."""
        self.wait()
        self._start()
        self.wait()

    def _start(self) -> None:
        """Start to store the rows of the group."""
        group, self._group, self._row_count = self._group, {}, 0
        tables = sorted(group, key="traces".__eq__)
        for lane, (writer, thread) in enumerate(self._lanes):
            parts = {t: group[t] for t in tables if lane == _lane_of(t, len(self._lanes))}
            self._pending.append(thread.submit(_store_tables, writer, parts))


def _lane_of(table: str, lane_count: int) -> int:
    return lane_count - 1 if table in _SECOND_LANE else 0


def _store_tables(writer: RunWriter, parts: Mapping[str, Sequence[Rows]]) -> None:
    """Store tables in this order; after an error, none of the following ones."""
    for table, rows in parts.items():
        writer.append(table, join_columns(rows))
