"""From span logs to rows: reads what is new in a spool and gives it to the store, once.

A record is emitted when it is closed, or when its process has ended. It is remembered as
emitted only after the store has it durably, and its file is removed only after that, so a crash
at any point repeats nothing and loses nothing: a new drain asks the store which records of the
files still present it holds already.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.spool import (
    DROPPED_WORD,
    FIRST_SEQUENCE_WORD,
    HEADER_WORDS,
    MAGIC,
    RECORD_WORDS,
    SEGMENT_BYTES,
    SEGMENT_RECORDS,
    Flag,
    Kind,
    LogName,
    SpoolTree,
    process_is_alive,
    read_journal,
)
from stepscope.store import DictColumn

Words = NDArray[np.uint64]
StoredSequences = Callable[[str, str, str, int, int], NDArray[np.int64]]
"""(table, process, log, first, count) -> sequence numbers the store holds already."""

TABLE_OF_KIND = {Kind.STACK: "stacks", Kind.SCALAR: "scalars", Kind.METRIC: "metrics"}
TABLES = ("spans", "stacks", "scalars", "metrics")
KIND_NAMES = {
    number: name.lower()
    for name, number in vars(Kind).items()
    if name.isupper() and isinstance(number, int)
}


@dataclass(slots=True)
class Segment:
    """One segment file and which of its records the store has."""

    path: Path
    log: str
    first: int
    emitted: NDArray[np.bool_]

    @property
    def finished(self) -> bool:
        """True when every record of the file is in the store."""
        return bool(self.emitted.all())


@dataclass(slots=True)
class ProcessLogs:
    """What is known of one process's directory."""

    name: str
    directory: Path
    journal_offset: int = 0
    names: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    description: dict[str, Any] = field(default_factory=dict)
    facts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    segments: dict[str, Segment] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    changed: bool = True
    over: bool = False

    @property
    def drained(self) -> bool:
        """True when the process has ended and the store has everything of it."""
        return self.over and not self.segments

    @property
    def pid(self) -> int:
        """Process id, from the directory's name."""
        return int(self.name.split("-")[0])

    def alive(self) -> bool:
        """True while the very process that made the directory runs, and is not replaced."""
        return process_is_alive(str(self.directory))


@dataclass(slots=True)
class Rows:
    """New records of one segment that belong to one table."""

    process: ProcessLogs
    segment: Segment
    indices: NDArray[np.int64]
    words: Words


class SpoolDrain:
    """Reads one spool. `collect` finds what is new; `commit` is called once it is stored."""

    def __init__(
        self, tree: SpoolTree, *, node: str, epoch_offset_ns: int, stored: StoredSequences
    ) -> None:
        self._tree = tree
        self._node = node
        self._offset = epoch_offset_ns
        self._stored = stored
        self.processes: dict[str, ProcessLogs] = {}

    def collect(self, *, final: bool = False) -> dict[str, list[Rows]]:
        """New records by table.

        Args:
            final: every process is over; records still open are emitted without an end.
        """
        for name, path in self._tree.process_directories().items():
            if name not in self.processes:
                self.processes[name] = ProcessLogs(name, Path(path))
        found: dict[str, list[Rows]] = {table: [] for table in TABLES}
        for process in self.processes.values():
            if not process.drained:
                self._collect_process(process, found, final=final)
        return found

    def columns(self, table: str, rows: Sequence[Rows]) -> dict[str, Any]:
        """The rows as columns of the table, in the form that the store appends."""
        return _COLUMNS[table](_Builder(self._node, self._offset, rows))

    @staticmethod
    def commit(rows: Iterable[Rows]) -> None:
        """The store has these rows: remember it, and remove files that are read to the end."""
        for part in rows:
            part.segment.emitted[part.indices] = True
            _remove_if_finished(part.process, part.segment)

    def forget_ended(self) -> None:
        """Remove what ended processes left in the spool, once everything of it is in the store."""
        for process in self.processes.values():
            if process.drained and not any(process.directory.glob("window-*")):
                shutil.rmtree(process.directory, ignore_errors=True)

    def _collect_process(
        self, process: ProcessLogs, found: dict[str, list[Rows]], *, final: bool
    ) -> None:
        if not process.over and (final or not process.alive()):
            process.over = process.changed = True
        read = [(segment, _read(segment.path)) for segment in self._segments(process)]
        self._read_journal(process)  # after the segments: a name is journalled before its use
        for segment, words in read:
            if words is None:
                continue
            dropped = int(words[DROPPED_WORD])
            if dropped > process.dropped.get(segment.log, 0):
                process.dropped[segment.log] = dropped
                process.changed = True
            self._collect_segment(process, segment, words, found)

    def _segments(self, process: ProcessLogs) -> list[Segment]:
        try:
            files = sorted(process.directory.iterdir())
        except FileNotFoundError:
            return []
        for path in files:
            name = LogName.parse(path.name)
            if name is not None and path.name not in process.segments:
                segment = self._open(process, name, path)
                if segment is not None:
                    process.segments[path.name] = segment
        return list(process.segments.values())

    def _open(self, process: ProcessLogs, name: LogName, path: Path) -> Segment | None:
        words = _read(path)
        if words is None:
            return None
        first = int(words[FIRST_SEQUENCE_WORD])
        emitted = np.zeros(SEGMENT_RECORDS, dtype=np.bool_)
        for table in TABLES:
            held = self._stored(table, process.name, name.log, first, SEGMENT_RECORDS)
            emitted[held - first] = True
        return Segment(path, name.log, first, emitted)

    def _collect_segment(
        self,
        process: ProcessLogs,
        segment: Segment,
        words: Words,
        found: dict[str, list[Rows]],
    ) -> None:
        records = words[HEADER_WORDS:].reshape(-1, RECORD_WORDS)
        start, end, meta = records[:, 0], records[:, 1], records[:, 2]
        new = (start != 0) & (meta != 0) & ~segment.emitted
        if not process.over:
            new &= (end != 0) | ((meta >> np.uint64(16)) & np.uint64(Flag.MARK) != 0)
        indices = np.flatnonzero(new)
        if process.over:  # nobody will write the rest of this file
            segment.emitted[(start == 0) | (meta == 0)] = True
        if not len(indices):
            _remove_if_finished(process, segment)
            return
        kinds = (meta[indices] >> np.uint64(24)) & np.uint64(0xFF)
        in_spans = np.ones(len(indices), dtype=np.bool_)
        for kind, table in TABLE_OF_KIND.items():
            here = kinds == kind
            if here.any():
                in_spans &= ~here
                found[table].append(Rows(process, segment, indices[here], records[indices[here]]))
        if in_spans.any():
            kept = indices[in_spans]
            found["spans"].append(Rows(process, segment, kept, records[kept]))

    def _read_journal(self, process: ProcessLogs) -> None:
        try:
            lines, process.journal_offset = read_journal(
                str(process.directory / "journal.jsonl"), process.journal_offset
            )
        except FileNotFoundError:
            return
        for line in lines:
            kind = line.pop("k", None)
            if kind == "name":
                process.names[line["id"]] = (line["text"], line["labels"])
                continue
            process.changed = True
            if kind == "process":
                process.description = line
            elif kind == "fact":
                process.facts.append(line)
            elif kind == "note":
                process.notes.append(line["text"])


def _remove_if_finished(process: ProcessLogs, segment: Segment) -> None:
    if segment.finished:
        segment.path.unlink(missing_ok=True)
        process.segments.pop(segment.path.name, None)


def _read(path: Path) -> Words | None:
    """The words of a segment; None when the file is gone or is none of ours."""
    try:
        words = np.fromfile(path, dtype=np.uint64)
    except FileNotFoundError:
        return None
    if len(words) * 8 != SEGMENT_BYTES or int(words[0]) != MAGIC:
        return None
    return words


class _Builder:
    """Columns that the tables share, from rows of several segments."""

    def __init__(self, node: str, offset: int, rows: Sequence[Rows]) -> None:
        self.node = node
        self.rows = rows
        self._offset = np.int64(offset)
        words = np.concatenate([part.words for part in rows])
        self.start = words[:, 0].astype(np.int64)
        self.end = words[:, 1].astype(np.int64)
        self.meta = words[:, 2]
        self.value = words[:, 3]

    def provenance(self) -> dict[str, Any]:
        sizes = [len(part.indices) for part in self.rows]
        return {
            "node": DictColumn.constant(self.node, sum(sizes)),
            "process": _repeat([part.process.name for part in self.rows], sizes),
            "log": _repeat([part.segment.log for part in self.rows], sizes),
            "seq": np.concatenate([part.indices + part.segment.first for part in self.rows]),
        }

    def epoch(self, monotonic: NDArray[np.int64]) -> NDArray[np.int64]:
        return monotonic + self._offset

    def bits(self, shift: int, width: int) -> NDArray[np.int64]:
        mask = np.uint64((1 << width) - 1)
        return ((self.meta >> np.uint64(shift)) & mask).astype(np.int64)

    def names(self, choose: Callable[[tuple[str, str | None]], str | None]) -> DictColumn:
        """A text made from each record's interned name."""
        numbers = self.bits(32, 32)
        codes = np.empty(len(numbers), dtype=np.int32)
        values: dict[str | None, int] = {}
        begin = 0
        for part in self.rows:
            stop = begin + len(part.indices)
            unique, inverse = np.unique(numbers[begin:stop], return_inverse=True)
            table = [
                values.setdefault(choose(part.process.names.get(int(n), ("", None))), len(values))
                for n in unique
            ]
            codes[begin:stop] = np.array(table, dtype=np.int32)[inverse]
            begin = stop
        return DictColumn(codes, list(values))


def _repeat(texts: Sequence[str], sizes: Sequence[int]) -> DictColumn:
    values: dict[str, int] = {}
    codes = [values.setdefault(text, len(values)) for text in texts]
    return DictColumn(np.repeat(np.array(codes, dtype=np.int32), sizes), list(values))


def _text(name: tuple[str, str | None]) -> str:
    return name[0]


def _labels(name: tuple[str, str | None]) -> str | None:
    return name[1]


def _span_columns(build: _Builder) -> dict[str, Any]:
    kinds, inverse = np.unique(build.bits(24, 8), return_inverse=True)
    flags = build.bits(16, 8)
    open_ended = (build.end == 0) & (flags & Flag.MARK == 0)
    end = np.where(build.end == 0, build.start, build.end)
    return {
        **build.provenance(),
        "kind": DictColumn(
            inverse.astype(np.int32), [KIND_NAMES.get(int(kind), "unknown") for kind in kinds]
        ),
        "name": build.names(_text),
        "labels": build.names(_labels),
        "start_ns": build.epoch(build.start),
        "end_ns": np.ma.MaskedArray(build.epoch(end), mask=open_ended),
        "depth": build.bits(0, 16).astype(np.int16),
        "flags": (flags & ~Flag.MARK).astype(np.int16),
        "value": build.value.view(np.int64),
    }


def _stack_columns(build: _Builder) -> dict[str, Any]:
    value = build.value
    return {
        **build.provenance(),
        "t_ns": build.epoch(build.start),
        "stack": build.names(_text),
        "line": (value & np.uint64(0xFFFF_FFFF)).astype(np.int32),
        "user_line": (value >> np.uint64(32)).astype(np.int32),
    }


def _scalar_columns(build: _Builder) -> dict[str, Any]:
    return {
        **build.provenance(),
        "t_ns": build.epoch(build.start),
        "name": build.names(_text),
        "value": build.value.view(np.float64),
    }


def _metric_columns(build: _Builder) -> dict[str, Any]:
    return {
        **build.provenance(),
        "t_ns": build.epoch(build.start),
        "metric": build.names(lambda name: name[0]),
        "device": build.names(lambda name: json.loads(name[1] or '""')),
        "value": build.value.view(np.float64),
    }


_COLUMNS: dict[str, Callable[[_Builder], dict[str, Any]]] = {
    "spans": _span_columns,
    "stacks": _stack_columns,
    "scalars": _scalar_columns,
    "metrics": _metric_columns,
}
