"""Chunks of events, filled kind by kind, and what is known of the whole file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope import schema
from stepscope.importers.kineto import Chunk, OtherKind
from stepscope.importers.nsys.database import ABSENT, Database, Int, Rows

Codes = NDArray[np.int32]
THREAD_BITS = 24
LOW_BITS = (1 << THREAD_BITS) - 1


class Facts(NamedTuple):
    """Facts of the whole file that its events need."""

    database: Database
    by_process: bool
    """False where device work states no process: all events are one process then."""
    multiprocessors: Mapping[int, Mapping[int, int]]
    """Multiprocessors of a device, by pid and number."""
    marks: dict[tuple[int, int, int], str]
    """Names of domains by process, number and -1, and of their categories by those and number."""
    records: dict[tuple[int, int], tuple[int, int]]
    """Stream and correlation of the record of an event, by process and number of the record."""
    contexts: dict[tuple[int, int], int]
    """Device of a context, by process and number, as work states it: waits state 0 for any."""


def pid_of(process: int) -> int:
    """Return the pid of a process.

    >>> pid_of(281476838981632)
    111
    """
    return process >> THREAD_BITS & LOW_BITS


class Builder:
    """Chunk of some rows, filled kind by kind.

    Args:
        rows: the rows, with `start` and `duration`.
        tracks: process and thread, or device and stream, of each row.
    """

    def __init__(self, rows: Rows, tracks: tuple[Sequence[Any], Codes]) -> None:
        self._rows = rows
        self._texts: dict[str, int] = {}
        labels, self._track = tracks
        self._chunk = Chunk(tracks=list(labels), event_count=len(rows["start"]))

    def code(self, text: str | None) -> int:
        """Return the code of a text, -1 for None."""
        return ABSENT if text is None else self._texts.setdefault(text, len(self._texts))

    def distinct(self, keys: Any, name: Callable[[Any], str | None]) -> Codes:
        """Return the code of the text of each key; equal keys share one call of `name`."""
        values, inverse = np.unique(keys, return_inverse=True)
        codes = np.array([self.code(name(key)) for key in values.tolist()], dtype=np.int32)
        return codes[inverse]

    def add(
        self,
        kind: schema.EventKind | OtherKind,
        names: Codes,
        rows: Any = slice(None),
        **columns: Any,
    ) -> None:
        """Add the events of some rows: all values are those of these rows."""
        order = np.arange(self._chunk.event_count, dtype=np.int64)[rows]
        if len(order):
            self._chunk.columns[kind] = {
                "order": order,
                "track": self._track[rows],
                "name": names,
                "start": self._rows["start"][rows],
                "duration": self._rows["duration"][rows],
                **columns,
            }

    def finish(self) -> Chunk:
        """Return the complete chunk."""
        self._chunk.strings = list(self._texts)
        return self._chunk


def on_thread(rows: Rows) -> Builder:
    threads, track = np.unique(rows["thread"], return_inverse=True)
    labels = [(pid_of(number), number & LOW_BITS) for number in threads.tolist()]
    return Builder(rows, (labels, track.astype(np.int32)))


def on_stream(rows: Rows) -> Builder:
    devices, device = np.unique(rows["deviceId"], return_inverse=True)
    streams, stream = np.unique(rows["streamId"], return_inverse=True)
    pairs, track = np.unique(device * len(streams) + stream, return_inverse=True)
    labels = [
        (f"GPU {devices[pair // len(streams)]}", f"stream {streams[pair % len(streams)]}")
        for pair in pairs.tolist()
    ]
    return Builder(rows, (labels, track.astype(np.int32)))


def device_columns(rows: Rows) -> dict[str, Any]:
    names = {"device": "deviceId", "stream": "streamId", "correlation": "correlationId"}
    return {name: rows[column] for name, column in names.items()}


def name_codes(builder: Builder, ids: Int, facts: Facts) -> Codes:
    """Return the codes of names of StringIds; what has none is called `unnamed`."""
    values, inverse = np.unique(ids, return_inverse=True)
    names = facts.database.names_of(values.tolist())
    codes = np.array([builder.code(name or "unnamed") for name in names], dtype=np.int32)
    return codes[inverse]


def texts_of(rows: Rows, database: Database) -> list[str]:
    """Return the text of each row: its own, or that of StringIds."""
    texts = rows["text"].tolist()
    numbers = zip(texts, rows["textId"].tolist(), strict=True)
    names = database.names_of([ABSENT if text is not None else id_ for text, id_ in numbers])
    pairs = zip(texts, names, strict=True)
    return [str(name or "unnamed") if text is None else str(text) for text, name in pairs]
