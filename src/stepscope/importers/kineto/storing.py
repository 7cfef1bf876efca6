"""Storage of the rows of traces, in background threads.

A segment costs as much time as ten thousand rows, however few it has. So the traces of a group
share segments: when too many rows are in memory, the table with the most is stored, and the others
when the group is complete, in the order of the traces, the rows of `traces` last.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Self

from stepscope.importers.kineto.tables import Rows
from stepscope.store import RunWriter, join_columns

GROUP_ROWS = 600_000
"""Rows of the traces of a group."""
HELD_ROWS = 40_000
"""Rows in memory beyond which the largest table is stored."""
_SECOND_LANE = frozenset({"operators", "timeline", "quality"})
"""Tables that are written in parallel to all others."""


class Storing:
    """Appends rows in background threads, in lanes that take about the same time.

    Args:
        writer: writer of the run.
        group_rows: rows of the traces of a group; 0 to store rows immediately.
        held_rows: rows in memory beyond which the largest table is stored.
        lanes: number of tables that are written at once, 1 or 2.
    """

    def __init__(
        self, writer: RunWriter, group_rows: int = 0, held_rows: int = 0, *, lanes: int = 1
    ) -> None:
        self._ending = ExitStack()
        opened = self._ending.enter_context
        writers = [writer, *(opened(writer.clone()) for _ in range(1, lanes))]
        self._lanes = [(writer, opened(ThreadPoolExecutor(1))) for writer in writers]
        self._pending: list[Future[Any]] = []
        self._group_rows, self._held_rows = group_rows, held_rows
        self._row_count = 0
        """Rows of the group, stored or not."""
        self._held: dict[str, list[Rows]] = {}
        self._counts: Counter[str] = Counter()
        """Rows in memory of each table but `traces`."""
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
        """Add the rows of some tables, those of `traces` last of each trace.

        It starts to store a table when too many rows are held, and all when the group is complete.
        """
        for table, rows in tables:
            self._held.setdefault(table, []).append(rows)
            self._row_count += len(rows["trace"])
            if table == "traces":
                if self._row_count >= self._group_rows:
                    self._start_all()
                continue
            self._counts[table] += len(rows["trace"])
            while self._counts.total() > self._held_rows:
                self._start(max(self._counts, key=self._counts.__getitem__))

    def wait(self) -> None:
        """Wait until everything that has started is stored."""
        while self._pending:
            self._pending.pop(0).result()

    def finish(self) -> None:
        """Store all rows."""
        self._start_all()
        self.wait()

    def _start_all(self) -> None:
        for table in sorted(self._held, key="traces".__eq__):
            self._start(table)
        self._row_count = 0

    def _start(self, table: str) -> None:
        """Start to store the rows of a table that are held."""
        writer, thread = self._lanes[-1 if table in _SECOND_LANE else 0]
        # A row of `traces` means that everything else is stored.
        before = list(self._pending) if table == "traces" else []
        parts = self._held.pop(table)
        del self._counts[table]
        self._pending.append(thread.submit(_store, writer, table, parts, before))


def _store(writer: RunWriter, table: str, parts: list[Rows], before: Sequence[Future[Any]]) -> None:
    """Store the rows of a table, unless something before has failed."""
    for earlier in before:
        earlier.result()
    rows = join_columns(parts)
    parts.clear()
    writer.append(table, rows)
