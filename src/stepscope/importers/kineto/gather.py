"""All events of a file, kind by kind, until they can be linked.

Chunks arrive in the order of the file. What they hold lies in memory as long as it is small, and
then in a temporary file, so that a trace of any size takes the same memory. It is read back in
slices of time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from stepscope.importers.kineto.decode import Chunk, Columns
from stepscope.importers.kineto.kinds import Kind
from stepscope.importers.times import INVALID

Int = NDArray[np.int64]

MEMORY_BYTES = 96 << 20
"""Columns beyond this go to a temporary file."""
DAY_NS = 86_400_000_000_000
HOST_LIMIT_NS = 600_000_000_000
DEVICE_LIMIT_NS = 10_000_000_000
"""Shorter durations are possible in any file: a step may compile for minutes, a kernel not."""
_SAMPLE = 64
_STRING_COLUMNS = frozenset(
    {
        "name",
        "args",
        "collective",
        "phase",
        "category",
        "input_dims",
        "input_types",
        "input_strides",
        "concrete_inputs",
        "call_stack",
    }
)


@dataclass(slots=True)
class _Part:
    """The columns of one kind in one chunk, in memory or in the temporary file."""

    columns: dict[str, NDArray[Any] | tuple[int, np.dtype[Any], tuple[int, ...]]]
    rows: int
    first: int
    """Bounds of `when`, the time by which rows are taken out again."""
    last: int


@dataclass(slots=True)
class Bounds:
    """What times are possible in a file, relative to its base."""

    first: int = 0
    last: int = 0
    """Plausible starts lie between these."""
    host_limit: int = 0
    """No range of a host thread takes longer."""
    device_limit: int = 0
    """No work of a device takes longer."""


@dataclass(slots=True)
class Gathered:
    """The events of one file."""

    directory: Path
    """Where a temporary file may be made."""
    sharers: int = 1
    """Processes that gather at the same time and have `MEMORY_BYTES` together."""
    strings: list[str] = field(default_factory=list)
    tracks: list[tuple[int | str, int | str]] = field(default_factory=list)
    metadata: list[tuple[str, int | str, int | str, Any]] = field(default_factory=list)
    event_count: int = 0
    flow_counts: tuple[int, int] = (0, 0)
    repaired: int = 0
    lost_events: int = 0
    lost_bytes: int = 0
    bounds: Bounds = field(default_factory=Bounds)
    _string_places: dict[str, int] = field(default_factory=dict)
    _track_places: dict[tuple[int | str, int | str], int] = field(default_factory=dict)
    _parts: dict[Kind, list[_Part]] = field(default_factory=dict)
    _samples: list[tuple[Int, int]] = field(default_factory=list)
    _held_bytes: int = 0
    _file: BinaryIO | None = None

    def close(self) -> None:
        """Gives the temporary file back."""
        if self._file is not None:
            self._file.close()

    def add(self, chunk: Chunk, ids: Int | None = None) -> None:
        """The next chunk of the file; with `ids`, events that were counted before."""
        strings = self._remap(chunk.strings, self.strings, self._string_places)
        # Some recorders write one thread as a number and as a string, by kind of event.
        same = [(_as_number(pid), _as_number(tid)) for pid, tid in chunk.tracks]
        tracks = self._remap(same, self.tracks, self._track_places)
        for kind, columns in chunk.columns.items():
            for name, values in columns.items():
                if name in _STRING_COLUMNS:
                    columns[name] = strings[values]
            columns["track"] = tracks[columns["track"]]
            order = columns.pop("order")
            columns["id"] = order + self.event_count if ids is None else ids[order]
            self.keep(kind, columns)
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

    def keep(self, kind: Kind, columns: Columns) -> None:
        """Columns of a kind, with strings and tracks of this file."""
        start = columns["start"]
        rows = len(start)
        if not rows:
            return
        known = np.sort(start[start != INVALID])
        if len(known):
            self._samples.append((known[:: max(1, rows // _SAMPLE)], rows))
        part = _Part(
            columns={name: self._stored(values) for name, values in columns.items()},
            rows=rows,
            first=int(start.min()),
            last=int(start.max()),
        )
        self._parts.setdefault(kind, []).append(part)

    def place(self, text: str) -> int:
        """The code of a string."""
        place = self._string_places.setdefault(text, len(self.strings))
        if place == len(self.strings):
            self.strings.append(text)
        return place

    def count(self, *kinds: Kind) -> int:
        """Events of some kinds."""
        return sum(part.rows for kind in kinds for part in self._parts.get(kind, ()))

    def find_bounds(self) -> Bounds:
        """What times are possible: decided by the bulk of the events, not by the outermost.

        A start more than a day from the median is impossible; so is a duration of more than
        twice the time between the first and the last plausible start, and a limit of its kind.
        """
        if not self._samples:
            return self.bounds
        starts = np.concatenate([sample for sample, _ in self._samples])
        middle = int(np.median(starts))
        near = [
            part
            for parts in self._parts.values()
            for part in parts
            if part.last >= middle - DAY_NS and part.first <= middle + DAY_NS
        ]
        first = last = middle
        for part in near:
            inside = part.first >= middle - DAY_NS and part.last <= middle + DAY_NS
            if not inside:
                when = self._column(part, "start")
                when = when[(when >= middle - DAY_NS) & (when <= middle + DAY_NS)]
                if len(when):
                    first, last = min(first, int(when.min())), max(last, int(when.max()))
            else:
                first, last = min(first, part.first), max(last, part.last)
        span = 2 * (last - first)
        self.bounds = Bounds(first, last, max(span, HOST_LIMIT_NS), max(span, DEVICE_LIMIT_NS))
        return self.bounds

    def names_with(self, parts: Iterable[str]) -> list[int]:
        """Codes of the strings that contain one of some texts."""
        wanted = tuple(parts)
        return [
            code for code, name in enumerate(self.strings) if any(part in name for part in wanted)
        ]

    def columns(self, kind: Kind, *names: str) -> Columns:
        """Whole columns of a kind, rows in the order of the file."""
        parts = self._parts.get(kind, [])
        return {
            name: _concatenate([self._column(part, name) for part in parts], name) for name in names
        }

    def take(self, kind: Kind, *names: str) -> Columns:
        """Whole columns of a kind, which is no longer among those held."""
        columns = self.columns(kind, *names)
        self._parts.pop(kind, None)
        return columns

    def select(self, kind: Kind, names: Sequence[str], keep: str) -> Columns:
        """Columns of those rows of a kind where the column `keep` is not absent."""
        found: list[Columns] = []
        for part in self._parts.get(kind, []):
            if keep in part.columns:
                chosen = np.flatnonzero(self._column(part, keep) != -1)
                if len(chosen):
                    found.append({name: self._column(part, name)[chosen] for name in names})
        return {name: _joined(found, name) for name in names}

    def extend(self, kind: Kind, name: str, values: NDArray[Any]) -> None:
        """Gives all rows of a kind one more column. The column `when` is the time by which
        `between` takes them, in place of their start."""
        at = 0
        for part in self._parts.get(kind, []):
            mine = values[at : at + part.rows]
            at += part.rows
            part.columns[name] = self._stored(mine)
            if name == "when":
                part.first, part.last = int(mine.min()), int(mine.max())

    def between(self, kind: Kind, start: int, end: int) -> Columns:
        """Rows of a kind whose time lies in [start, end), in the order of the file."""
        found: list[Columns] = []
        for part in self._parts.get(kind, []):
            if part.first >= end or part.last < start:
                continue
            columns = {name: self._column(part, name) for name in part.columns}
            when = columns.pop("when", columns["start"])
            if part.first < start or part.last >= end:
                chosen = (when >= start) & (when < end)
                columns = {name: values[chosen] for name, values in columns.items()}
            found.append(columns)
        if len(found) == 1:
            return found[0]
        names = dict.fromkeys(name for columns in found for name in columns)
        return {name: _joined(found, name) for name in names}

    def cuts(self, rows: int) -> list[int]:
        """Times that part the file into slices of about so many rows, both ends included."""
        first, last = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        total = self.count(*self._parts)
        wanted = -(-total // rows)
        if wanted < 2 or not self._samples:
            return [first, last]
        samples = np.concatenate([sample for sample, _ in self._samples])
        weights = np.concatenate([np.full(len(s), w / len(s)) for s, w in self._samples])
        order = np.argsort(samples, kind="stable")
        passed = np.cumsum(weights[order])
        at = np.searchsorted(passed, passed[-1] * np.arange(1, wanted) / wanted)
        inner = np.unique(samples[order][np.minimum(at, len(order) - 1)])
        return [first, *inner.tolist(), last]

    # --- inside ------------------------------------------------------------------------------

    @staticmethod
    def _remap(theirs: Iterable[Any], ours: list[Any], places: dict[Any, int]) -> NDArray[np.int32]:
        codes = []
        for each in theirs:
            place = places.setdefault(each, len(ours))
            if place == len(ours):
                ours.append(each)
            codes.append(place)
        return np.array([*codes, -1], dtype=np.int32)  # the last one serves code -1

    def _stored(
        self, values: NDArray[Any]
    ) -> NDArray[Any] | tuple[int, np.dtype[Any], tuple[int, ...]]:
        self._held_bytes += values.nbytes
        if self._held_bytes * self.sharers <= MEMORY_BYTES:
            return values
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self.directory)  # noqa: SIM115
        self._file.seek(0, 2)
        offset = self._file.tell()
        self._file.write(np.ascontiguousarray(values).data)
        return offset, values.dtype, values.shape

    def _column(self, part: _Part, name: str) -> NDArray[Any]:
        if name not in part.columns:
            return absent(name, part.rows)
        held = part.columns[name]
        if isinstance(held, np.ndarray):
            return held
        assert self._file is not None  # noqa: S101 - something was stored in it
        offset, dtype, shape = held
        self._file.seek(offset)
        return np.fromfile(self._file, dtype=dtype, count=int(np.prod(shape))).reshape(shape)


def _as_number(name: int | str) -> int | str:
    return int(name) if isinstance(name, str) and name.isdecimal() else name


def absent(name: str, rows: int) -> NDArray[Any]:
    """A column that a chunk has not."""
    if name in {"blocks", "warps", "occupancy"}:
        return np.full(rows, np.nan)
    if name in {"grid", "block"}:
        return np.full((rows, 3), -1, dtype=np.int32)
    dtype = np.int32 if name in _STRING_COLUMNS else np.int64
    return np.full(rows, -1, dtype=dtype)


def _joined(found: list[Columns], name: str) -> NDArray[Any]:
    return _concatenate([c[name] if name in c else absent(name, len(c["id"])) for c in found], name)


def _concatenate(arrays: list[NDArray[Any]], name: str) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else absent(name, 0)


def impossible(columns: Mapping[str, NDArray[Any]], bounds: Bounds) -> NDArray[np.bool_]:
    """Rows whose start or duration cannot be; those of a device have a launch, or none."""
    start = columns["start"]
    wrong: NDArray[np.bool_] = (start == INVALID) | (start < bounds.first) | (start > bounds.last)
    if "duration" in columns:
        limit = bounds.device_limit if "launch" in columns else bounds.host_limit
        wrong = wrong | (columns["duration"] < 0) | (columns["duration"] > limit)
    return wrong
