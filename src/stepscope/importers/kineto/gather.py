"""Events of a file, kind by kind, until they are linked.

Chunks arrive in the order of the file. Their columns stay in memory while they are small, and go
to a temporary file afterwards, so that a trace of any size takes the same memory. They are read
back in slices of time.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from io import BufferedRandom
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import schema
from stepscope.importers.content import INVALID
from stepscope.importers.kineto.arguments import WORK_KINDS, Kind
from stepscope.importers.kineto.columns import Chunk, Columns

Int = NDArray[np.int64]
Codes = NDArray[np.int32]

MEMORY_BYTES = 96 << 20
"""Columns beyond this go to a temporary file."""
PART_BYTES = 512 << 10
"""Size from which columns of several chunks are one part of a larger file: small ones take long to
read. Of a file that fits into memory, each kind is one part, which is never copied."""
DAY_NS = 86_400_000_000_000
HOST_LIMIT_NS = 600_000_000_000
DEVICE_LIMIT_NS = 10_000_000_000
"""Shorter durations are possible in any file: a step may compile for minutes, a kernel cannot."""
MAX_TEXT_CHARACTERS = 64 << 10
"""Length of a text beyond which only its start is kept. Longer ones tell a reader no more, and some
of them would fill the memory of the tables' writer."""
_SAMPLE_COUNT = 64
_GROWTH = 4
"""Room for rows, relative to those present: memory that is never written to costs nothing."""


def _argument_columns(*types: str) -> frozenset[str]:
    return frozenset(
        argument.column
        for kind in schema.EVENT_KINDS
        for argument in kind.stored_arguments
        if argument.type in types
    )


STRING_COLUMNS = _argument_columns("string", "json") | {
    "name", "args", "collective", "phase", "category",
}  # fmt: skip
_NUMBER_COLUMNS = _argument_columns("number")
_SIZES_COLUMNS = _argument_columns("sizes")


class _Part(msgspec.Struct):
    """Columns of one kind in some chunks, in memory or in the temporary file."""

    columns: dict[str, NDArray[Any] | tuple[int, np.dtype[Any], tuple[int, ...]]]
    rows: int
    first: int
    """Bounds of `when`, the time by which rows are selected later."""
    last: int


class _Pending(msgspec.Struct):
    """Columns of one kind that will be one part, in arrays with room for more rows."""

    columns: Columns = msgspec.field(default_factory=dict)
    rows: int = 0
    size: int = 0
    """Of the rows, in bytes."""

    def append(self, columns: Columns, codes: Mapping[str, Codes]) -> None:
        """Append rows; they and those before may lack columns of each other.

        Args:
            columns: the rows.
            codes: code in the file by code of the rows, by column; the last one is for code -1.
        """
        first, self.rows = self.rows, self.rows + len(columns["id"])
        for name in dict.fromkeys([*self.columns, *columns]):
            values = columns[name] if name in columns else absent(name, self.rows - first)
            room = self.columns[name] if name in self.columns else absent(name, first)
            if self.rows > len(room):
                larger = np.empty((_GROWTH * self.rows, *values.shape[1:]), dtype=values.dtype)
                larger[:first] = room[:first]
                room = self.columns[name] = larger
            if name in codes:
                np.take(codes[name], values, out=room[first : self.rows], mode="wrap")
            else:
                room[first : self.rows] = values
            self.size += values.nbytes

    def finish(self) -> Columns:
        """Return the columns, and keep nothing."""
        columns, self.columns = self.columns, {}
        for values in columns.values():
            values.resize((self.rows, *values.shape[1:]), refcheck=False)
        return columns


class Bounds(msgspec.Struct):
    """Possible times in a file, relative to its base."""

    first: int = 0
    last: int = 0
    """Plausible starts lie between these."""
    host_limit: int = 0
    """Longest possible range of a host thread."""
    device_limit: int = 0
    """Longest possible work of a device."""


class Gathered(msgspec.Struct):
    """Events of one file."""

    directory: Path
    """Directory for a temporary file."""
    sharers: int = 1
    """Number of processes that gather at the same time and share `MEMORY_BYTES`."""
    strings: list[str] = msgspec.field(default_factory=list)
    tracks: list[tuple[int | str, int | str]] = msgspec.field(default_factory=list)
    metadata: list[tuple[str, int | str, int | str, Any]] = msgspec.field(default_factory=list)
    event_count: int = 0
    flow_counts: tuple[int, int] = (0, 0)
    repaired: int = 0
    shortened: int = 0
    """Texts of blocks of which only the start was kept."""
    lost_events: int = 0
    lost_bytes: int = 0
    bounds: Bounds = msgspec.field(default_factory=Bounds)
    _string_codes: dict[str, int] = msgspec.field(default_factory=dict)
    _track_numbers: dict[tuple[int | str, int | str], int] = msgspec.field(default_factory=dict)
    _parts: dict[Kind, list[_Part]] = msgspec.field(default_factory=dict)
    _pending: dict[Kind, _Pending] = msgspec.field(default_factory=dict)
    _samples: list[tuple[Int, int]] = msgspec.field(default_factory=list)
    _pending_bytes: int = 0
    _stored_bytes: int = 0
    _file: BufferedRandom | None = None

    def close(self) -> None:
        """Delete the temporary file."""
        if self._file is not None:
            self._file.close()

    def add(self, chunk: Chunk, ids: Int | None = None) -> None:
        """Add the next chunk of the file.

        Args:
            chunk: the chunk.
            ids: ids of its events, if these were counted before.
        """
        texts = chunk.strings
        if max(map(len, texts), default=0) > MAX_TEXT_CHARACTERS:
            texts = [self._shorten(text) for text in texts]
        strings = self._remap(texts, self.strings, self._string_codes)
        # Some recorders write one thread as a number and as a string, by kind of event.
        plain_tracks = [(_as_number(pid), _as_number(tid)) for pid, tid in chunk.tracks]
        tracks = self._remap(plain_tracks, self.tracks, self._track_numbers)
        codes = {**dict.fromkeys(STRING_COLUMNS, strings), "track": tracks}
        for kind, columns in chunk.columns.items():
            order = columns.pop("order")
            columns["id"] = order + self.event_count if ids is None else ids[order]
            self.keep(kind, columns, codes)
        self.metadata += [
            (name, _as_number(pid), _as_number(tid), value)
            for name, pid, tid, value in chunk.metadata
        ]
        self.event_count += chunk.event_count if ids is None else 0
        self.flow_counts = (
            self.flow_counts[0] + chunk.flow_counts[0],
            self.flow_counts[1] + chunk.flow_counts[1],
        )
        self.repaired += chunk.repaired
        self.lost_events += chunk.lost_events
        self.lost_bytes += chunk.lost_bytes

    def _shorten(self, text: str) -> str:
        """Return the text, or what is kept of a very long one: objects stay objects."""
        if len(text) <= MAX_TEXT_CHARACTERS:
            return text
        self.shortened += 1
        start = text[:MAX_TEXT_CHARACTERS] + "…"
        if text.startswith("{"):
            return msgspec.json.encode({"shortened": start}).decode()
        return msgspec.json.encode(start).decode() if text.startswith("[") else start

    def keep(
        self, kind: Kind, columns: Columns, codes: Mapping[str, Codes] = MappingProxyType({})
    ) -> None:
        """Add columns of a kind, without `codes` such that have the strings and tracks of the file;
        see `_Pending.append`."""
        start = columns["start"]
        rows = len(start)
        if not rows:
            return
        valid = np.sort(start[start != INVALID])
        if len(valid):
            self._samples.append((valid[:: max(1, rows // _SAMPLE_COUNT)], rows))
        pending = self._pending.setdefault(kind, _Pending())
        self._pending_bytes -= pending.size
        pending.append(columns, codes)
        self._pending_bytes += pending.size
        if pending.size >= PART_BYTES and self._is_over(self._pending_bytes):
            self._parts_of(kind)

    def code_of(self, text: str) -> int:
        """Return the code of a string; a new string gets the next one."""
        code = self._string_codes.setdefault(text, len(self.strings))
        if code == len(self.strings):
            self.strings.append(text)
        return code

    def count(self, *kinds: Kind) -> int:
        """Count the events of some kinds."""
        return sum(part.rows for kind in kinds for part in self._parts_of(kind))

    def find_bounds(self) -> Bounds:
        """Find the possible times, which the bulk of the events decides, not the outermost ones.

        A start more than a day from the median is impossible; so is a duration of more than
        twice the time between the first and the last plausible start, and a limit of its kind.
        """
        if not self._samples:
            return self.bounds
        median = int(np.median(np.concatenate([sample for sample, _ in self._samples])))
        low, high = median - DAY_NS, median + DAY_NS
        first = last = median
        for part in (part for kind in self._kinds() for part in self._parts_of(kind)):
            if part.last < low or part.first > high:
                continue
            if part.first >= low and part.last <= high:
                first, last = min(first, part.first), max(last, part.last)
                continue
            start = self._column(part, "start")
            start = start[(start >= low) & (start <= high)]
            if len(start):
                first, last = min(first, int(start.min())), max(last, int(start.max()))
        span = 2 * (last - first)
        self.bounds = Bounds(first, last, max(span, HOST_LIMIT_NS), max(span, DEVICE_LIMIT_NS))
        return self.bounds

    def names_with(self, parts: Iterable[str]) -> list[int]:
        """Return the codes of strings that contain one of some texts."""
        texts = tuple(parts)
        return [
            code for code, name in enumerate(self.strings) if any(text in name for text in texts)
        ]

    def columns(self, kinds: Kind | tuple[Kind, ...], *names: str) -> Columns:
        """Return columns of all events of a kind, in the order of the file, or of one kind after
        the other."""
        parts = self._parts_of_all(kinds)
        return {
            name: _concatenate([self._column(part, name) for part in parts], name) for name in names
        }

    def take(self, kind: Kind, *names: str) -> Columns:
        """Return columns of all events of a kind, and forget the kind."""
        columns = self.columns(kind, *names)
        self._parts.pop(kind, None)
        return columns

    def select(self, kinds: Kind | tuple[Kind, ...], names: Sequence[str], present: str) -> Columns:
        """Return columns of those events of kinds whose column `present` is not absent."""
        parts: list[tuple[_Part, Any]] = []
        for part in self._parts_of_all(kinds):
            rows = np.flatnonzero(self._column(part, present) != -1)
            parts.append((part, rows if len(rows) < part.rows else slice(None)))
        return {  # one after the other: the parts of all columns take as much memory again
            name: _concatenate([self._column(part, name)[rows] for part, rows in parts], name)
            for name in names
        }

    def extend(self, kind: Kind, name: str, values: NDArray[Any]) -> None:
        """Give all events of a kind another column.

        The column `when` is the time by which `between` selects them, instead of their start.
        """
        offset = 0
        for part in self._parts_of(kind):
            part_values = values[offset : offset + part.rows]
            offset += part.rows
            part.columns[name] = self._store(part_values)
            if name == "when":
                part.first, part.last = int(part_values.min()), int(part_values.max())

    def column_names(self, kind: Kind) -> list[str]:
        """Return the names of the columns that some events of a kind have."""
        return list(dict.fromkeys(name for part in self._parts_of(kind) for name in part.columns))

    def leave_out(self, kind: Kind, is_out: NDArray[np.bool_]) -> None:
        """Forget some events of a kind."""
        parts, offset = [], 0
        for part in self._parts_of(kind):
            rows = np.flatnonzero(~is_out[offset : offset + part.rows])
            offset += part.rows
            if len(rows):
                columns = {name: self._column(part, name)[rows] for name in part.columns}
                parts.append(
                    _Part(
                        columns={name: self._store(values) for name, values in columns.items()},
                        rows=len(rows),
                        first=int(columns["start"].min()),
                        last=int(columns["start"].max()),
                    )
                )
        self._parts[kind] = parts

    def between(self, kind: Kind, start: int, end: int) -> Columns:
        """Return the events of a kind with a time in [start, end), in the order of the file."""
        parts: list[Columns] = []
        for part in self._parts_of(kind):
            if part.first >= end or part.last < start:
                continue
            columns = {name: self._column(part, name) for name in part.columns}
            when = columns.pop("when", columns["start"])
            if part.first < start or part.last >= end:
                rows: Any = np.flatnonzero((when >= start) & (when < end))
                if len(rows) and len(rows) == rows[-1] - rows[0] + 1:  # no copies, then
                    rows = slice(rows[0], rows[-1] + 1)
                columns = {name: values[rows] for name, values in columns.items()}
            parts.append(columns)
        return _join_all(parts)

    def cuts(self, rows: int) -> list[int]:
        """Return times that divide the file into slices of about `rows` events, ends included."""
        first, last = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        slices = -(-self.count(*self._kinds()) // rows)
        if slices < 2 or not self._samples:
            return [first, last]
        samples = np.concatenate([sample for sample, _ in self._samples])
        weights = np.concatenate([np.full(len(s), w / len(s)) for s, w in self._samples])
        order = np.argsort(samples, kind="stable")
        cumulative = np.cumsum(weights[order])
        at = np.searchsorted(cumulative, cumulative[-1] * np.arange(1, slices) / slices)
        inner = np.unique(samples[order][np.minimum(at, len(order) - 1)])
        return [first, *inner.tolist(), last]

    # --- inside ------------------------------------------------------------------------------

    @staticmethod
    def _remap(keys: Sequence[Any], values: list[Any], indices: dict[Any, int]) -> Codes:
        """Return the index in `values` of each key; new keys are appended."""
        for key in [key for key in keys if key not in indices]:  # few: blocks are alike
            if indices.setdefault(key, len(values)) == len(values):
                values.append(key)
        # The last one serves code -1.
        return np.array([*map(indices.__getitem__, keys), -1], dtype=np.int32)

    def _kinds(self) -> list[Kind]:
        return list({**self._parts, **self._pending})

    def _parts_of_all(self, kinds: Kind | tuple[Kind, ...]) -> list[_Part]:
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        return [part for kind in kinds for part in self._parts_of(kind)]

    def _parts_of(self, kind: Kind) -> list[_Part]:
        """Return the parts of a kind, after those columns that were pending became one."""
        pending = self._pending.pop(kind, None)
        if pending is not None:
            self._pending_bytes -= pending.size
            columns = pending.finish()
            part = _Part(
                columns={name: self._store(values) for name, values in columns.items()},
                rows=len(columns["id"]),
                first=int(columns["start"].min()),
                last=int(columns["start"].max()),
            )
            self._parts.setdefault(kind, []).append(part)
        return self._parts.get(kind, [])

    def _store(
        self, values: NDArray[Any]
    ) -> NDArray[Any] | tuple[int, np.dtype[Any], tuple[int, ...]]:
        self._stored_bytes += values.nbytes
        if not self._is_over(0):
            return values
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self.directory)  # noqa: SIM115
        self._file.seek(0, 2)
        offset = self._file.tell()
        self._file.write(np.ascontiguousarray(values).data)
        return offset, values.dtype, values.shape

    def _is_over(self, more_bytes: int) -> bool:
        """Return True if what is stored and some more bytes exceed the memory."""
        return (self._stored_bytes + more_bytes) * self.sharers > MEMORY_BYTES

    def _column(self, part: _Part, name: str) -> NDArray[Any]:
        if name not in part.columns:
            return absent(name, part.rows)
        stored = part.columns[name]
        if isinstance(stored, np.ndarray):
            return stored
        assert self._file is not None  # noqa: S101 - the column was stored in it
        offset, dtype, shape = stored
        values = np.empty(shape, dtype=dtype)
        self._file.seek(offset)
        if self._file.readinto(values.data.cast("B")) != values.nbytes:
            raise OSError(errno.EIO, "its temporary file was cut short", self.directory)
        return values


def _as_number(name: int | str) -> int | str:
    return int(name) if isinstance(name, str) and name.isdecimal() else name


def absent(name: str, rows: int) -> NDArray[Any]:
    """Return a column without any value."""
    if name in _NUMBER_COLUMNS:
        return np.full(rows, np.nan)
    if name in _SIZES_COLUMNS:
        return np.full((rows, 3), -1, dtype=np.int32)
    dtype = np.int32 if name in STRING_COLUMNS else np.int64
    return np.full(rows, -1, dtype=dtype)


def _join_all(parts: list[Columns]) -> Columns:
    """Concatenate columns, some of which not all parts have."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for columns in parts for name in columns)
    return {name: _join(parts, name) for name in names}


def _join(parts: list[Columns], name: str) -> NDArray[Any]:
    return _concatenate([c[name] if name in c else absent(name, len(c["id"])) for c in parts], name)


def _concatenate(arrays: list[NDArray[Any]], name: str) -> NDArray[Any]:
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else absent(name, 0)


def impossible(columns: Mapping[str, NDArray[Any]], bounds: Bounds) -> NDArray[np.bool_]:
    """Mark rows with an impossible start or duration; those of a device have a column `launch`."""
    start = columns["start"]
    is_wrong: NDArray[np.bool_] = (
        (start == INVALID) | (start < bounds.first) | (start > bounds.last)
    )
    if "duration" in columns:
        limit = bounds.device_limit if "launch" in columns else bounds.host_limit
        is_wrong = is_wrong | (columns["duration"] < 0) | (columns["duration"] > limit)
    return is_wrong


def name_tracks(gathered: Gathered) -> list[tuple[str, str, str]]:
    """Return the names of process and thread, and the label of the process, by track."""
    texts: dict[tuple[str, Any], str] = {}
    for name, pid, tid, value in gathered.metadata:
        key = (pid, tid) if name == "thread_name" else pid
        texts[name, key] = value if isinstance(value, str) else ""
    return [
        (
            texts.get(("process_name", pid), pid if isinstance(pid, str) else ""),
            texts.get(("thread_name", (pid, tid)), tid if isinstance(tid, str) else ""),
            texts.get(("process_labels", pid), ""),
        )
        for pid, tid in gathered.tracks
    ]


def number_devices(gathered: Gathered, *, by_process: bool) -> None:
    """Give device work that does not state its device that of its stream, else that of its process.

    Args:
        by_process: the number of a process is that of a device where no work states another.
    """
    parts = [gathered.columns(kind, "device", "track") for kind in WORK_KINDS]
    if not any((part["device"] < 0).any() for part in parts):
        return
    numbers = dict[tuple[Any, ...], int]()
    for part in parts:
        is_stated = part["device"] >= 0
        for track, row in zip(*np.unique(part["track"][is_stated], return_index=True), strict=True):
            pid, tid = gathered.tracks[track]
            device = int(part["device"][is_stated][row])
            numbers[pid, tid] = numbers[pid,] = device
    of_track = [
        numbers.get(track, numbers.get(track[:1], _process_number(track[0]) if by_process else -1))
        for track in gathered.tracks
    ]
    for kind, part in zip(WORK_KINDS, parts, strict=True):
        if len(part["device"]):
            stated, of_work = part["device"], np.array(of_track, dtype=np.int64)[part["track"]]
            gathered.extend(kind, "device", np.where(stated < 0, of_work, stated))


def _process_number(pid: int | str) -> int:
    return pid if isinstance(pid, int) else -1
