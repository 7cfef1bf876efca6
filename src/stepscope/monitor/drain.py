"""Drain of a spool: new records of span logs become rows of tables, exactly once.

A record is emitted when it is closed, or when its process has ended. It is marked as emitted only
after the store has it durably, and its file is removed only after that, so that a crash at any
point repeats and loses nothing: a new drain looks up which records of the remaining files the store
already has.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import schema, spool, store
from stepscope.monitor import process_logs, row_files
from stepscope.monitor.process_logs import (
    JOURNAL_FILE,
    LogSegment,
    NewCalls,
    ProcessLogs,
    SharedFile,
)
from stepscope.monitor.row_files import NewRows, RowColumns, StoredSequences, open_row_file

Words = NDArray[np.uint64]
TABLE_OF_KIND = {
    spool.Kind.STACK: "stacks",
    spool.Kind.SCALAR: "scalars",
    spool.Kind.METRIC: "metrics",
}
SPAN_LOG_TABLES = ("spans", "stacks", "scalars", "metrics")
TABLES = (*SPAN_LOG_TABLES, *row_files.TABLES, process_logs.TABLE)
KIND_NAMES = {
    number: name.lower()
    for name, number in vars(spool.Kind).items()
    if name.isupper() and isinstance(number, int)
}


_PROCESS_NAME = re.compile(r"\d+-\d+-\d+(@.+)?")
_MAX_SEQUENCE = 2**62


class _NameLine(msgspec.Struct):
    id: int
    text: str
    labels: str | None


class _ProcessLine(msgspec.Struct):
    parent_pid: int = 0
    role: str = ""
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    started_ns: int = 0
    started_monotonic_ns: int = 0
    launched_monotonic_ns: int | None = None
    ready_monotonic_ns: int | None = None
    python: str = ""
    command: list[str] = []


class _FactLine(msgspec.Struct):
    fact: str
    text: str = ""


class _NoteLine(msgspec.Struct):
    text: str


class _EndLine(msgspec.Struct):
    exception: str | None
    t_ns: int | None = None


class NewRecords(msgspec.Struct):
    """New records of one segment for one table."""

    process: ProcessLogs
    segment: LogSegment
    indices: NDArray[np.int64]
    words: Words

    def commit(self) -> None:
        """Note that they are stored; remove the file when all of its records are."""
        self.segment.emitted[self.indices] = True
        _remove_if_finished(self.process, self.segment)


Chunk = NewRecords | NewRows | NewCalls


class SpoolDrain:
    """Drain of one spool: `collect` finds new records; call `commit` once they are stored."""

    def __init__(
        self, tree: spool.SpoolTree, *, node: str, epoch_offset_ns: int, stored: StoredSequences
    ) -> None:
        self._tree = tree
        self._node = node
        self._offset = epoch_offset_ns
        self._stored = stored
        self._end_ns = spool.read_recording_end(tree.root)
        self.processes: dict[str, ProcessLogs] = {}

    def collect(self, *, final: bool = False) -> dict[str, list[Chunk]]:
        """Find new records by table.

        Args:
            final: all processes have ended; open records are emitted without an end.
        """
        self.find_processes()
        records: dict[str, list[Chunk]] = {table: [] for table in TABLES}
        for process in self.processes.values():
            if not process.drained:
                self._collect_process(process, records, final=final)
        return records

    def prepare(self) -> None:
        """Open what is in the spool by now, so that it can be read even if it is deleted before the
        first `collect`."""
        self.find_processes()
        for process in self.processes.values():
            self._open_segments(process)
            self.read_journal(process)

    def restore(self) -> bool:
        """Create what somebody has deleted from the spool: the directories of running processes,
        and the end of the recording.

        Returns:
            True if a directory was missing.

        Raises:
            OSError: the spool cannot be written.
        """
        missing = [
            process
            for process in self.processes.values()
            if not process.ended and not process.directory.is_dir() and process.is_alive()
        ]
        if missing and self._end_ns is not None:
            spool.write_recording_end(self._tree.root, self._end_ns)
        for process in missing:
            process.restore()
        return bool(missing)

    def columns(self, table: str, chunks: Sequence[Chunk]) -> dict[str, Any]:
        """Convert records to columns of the table, in the form that the store appends."""
        if table in row_files.TABLES:
            rows = [chunk for chunk in chunks if isinstance(chunk, NewRows)]
            return RowColumns(self._node, self._offset, rows).make()
        if table == process_logs.TABLE:
            calls = [chunk for chunk in chunks if isinstance(chunk, NewCalls)]
            return process_logs.join_columns(
                [chunk.make_columns(self._node, self._offset) for chunk in calls]
            )
        records = [chunk for chunk in chunks if isinstance(chunk, NewRecords)]
        return _COLUMNS[table](_ColumnBuilder(self._node, self._offset, records))

    def elements(self, table: str, chunks: Sequence[Chunk]) -> Iterator[tuple[str, bytes]]:
        """Yield the files that the rows name, as key and content; they are stored before."""
        if table == spool.TENSOR_ELEMENTS:
            rows = [chunk for chunk in chunks if isinstance(chunk, NewRows)]
            yield from RowColumns(self._node, self._offset, rows).read_elements()

    @staticmethod
    def commit(chunks: Iterable[Chunk]) -> None:
        """Mark stored records as emitted, and remove files of which all records are stored."""
        for chunk in chunks:
            chunk.commit()

    def remove_drained(self) -> None:
        """Remove the directories of ended processes whose records are all in the store."""
        for process in self.processes.values():
            if process.drained and not process.has_captures:
                process.close()
                shutil.rmtree(process.directory, ignore_errors=True)

    def find_processes(self) -> None:
        """Find the processes that have started to record."""
        for name, path in self._tree.process_directories().items():
            if name not in self.processes and _PROCESS_NAME.fullmatch(name):
                self.processes[name] = ProcessLogs(name, Path(path))

    def _collect_process(
        self, process: ProcessLogs, records: dict[str, list[Chunk]], *, final: bool
    ) -> None:
        if not process.ended and (final or not process.is_alive()):
            process.ended = process.changed = True
            process.read_last_words()
        contents = [(segment, _read(segment.file)) for segment in self._open_segments(process)]
        self.read_journal(process)  # after the segments: a name is journalled before its use
        process.read_drops()
        for segment, words in contents:
            if words is not None:
                self._collect_segment(process, segment, words, records)
        process.row_files = {n: file for n, file in process.row_files.items() if file.missing}
        for file in process.row_files.values():
            for table in file.missing:
                records[table].append(NewRows(process.name, process.names, file, table))
        chunks = process.dumps.collect(self._stored, has_ended=process.ended)
        records[process_logs.TABLE] += chunks

    def _open_segments(self, process: ProcessLogs) -> list[LogSegment]:
        try:
            files = sorted(process.directory.iterdir())
        except FileNotFoundError:
            return []
        self._read_dumps(process, files)
        process.open_collective_page()
        for path in files:
            name = spool.LogName.parse(path.name)
            if name is None or not path.is_file():
                continue
            if name.log_class == spool.ROWS:
                self._open_rows(process, name, path)
            elif path.name not in process.segments:
                segment = self._open(process, name, path)
                if segment is not None:
                    process.segments[path.name] = segment
        return list(process.segments.values())

    @staticmethod
    def _read_dumps(process: ProcessLogs, files: Iterable[Path]) -> None:
        notes = process.dumps.read(files)
        if notes:
            process.notes += notes
            process.changed = True

    def _open_rows(self, process: ProcessLogs, name: spool.LogName, path: Path) -> None:
        if path.name in process.row_files or path.name in process.unreadable:
            return
        file = open_row_file(path, process.name, name.log, self._stored)
        if file is None:
            process.unreadable.add(path.name)
            process.notes.append(f"the statistics of tensors in {path.name} cannot be read")
            process.changed = True
        elif file.missing and (self._end_ns is None or file.header.t_ns < self._end_ns):
            process.row_files[path.name] = file
        else:  # stored before a crash, or later than the end of the recording
            path.unlink(missing_ok=True)

    def _open(self, process: ProcessLogs, name: spool.LogName, path: Path) -> LogSegment | None:
        try:
            file = SharedFile(path, spool.SEGMENT_BYTES)
        except FileNotFoundError:
            return None
        words = _read(file)
        if words is None:
            return None
        first = int(words[spool.FIRST_SEQUENCE_WORD])
        if first > _MAX_SEQUENCE:
            return None
        emitted = np.zeros(spool.SEGMENT_RECORDS, dtype=np.bool_)
        for table in SPAN_LOG_TABLES:
            stored = self._stored(table, process.name, name.log, first, spool.SEGMENT_RECORDS)
            emitted[stored - first] = True
        return LogSegment(file, name.log, first, emitted)

    def _collect_segment(
        self,
        process: ProcessLogs,
        segment: LogSegment,
        words: Words,
        records: dict[str, list[Chunk]],
    ) -> None:
        rows = words[spool.HEADER_WORDS :].reshape(-1, spool.RECORD_WORDS)
        start, end, meta = rows[:, 0], rows[:, 1], rows[:, 2]
        is_new = (start != 0) & (meta != 0) & ~segment.emitted
        if not process.ended:
            is_new &= (end != 0) | ((meta >> np.uint64(16)) & np.uint64(spool.Flag.MARK) != 0)
        if self._end_ns is not None:
            is_late = (
                is_new & (start >= np.uint64(self._end_ns)) & (_kinds(meta) != spool.Kind.METRIC)
            )
            segment.emitted[is_late] = True
            is_new &= ~is_late
        indices = np.flatnonzero(is_new)
        if process.ended:  # the rest of this file stays empty
            segment.emitted[(start == 0) | (meta == 0)] = True
        if not len(indices):
            _remove_if_finished(process, segment)
            return
        kinds = _kinds(meta[indices])
        is_span = np.ones(len(indices), dtype=np.bool_)
        for kind, table in TABLE_OF_KIND.items():
            is_kind = kinds == kind
            if is_kind.any():
                is_span &= ~is_kind
                kind_rows = indices[is_kind]
                records[table].append(NewRecords(process, segment, kind_rows, rows[kind_rows]))
        if is_span.any():
            span_rows = indices[is_span]
            records["spans"].append(NewRecords(process, segment, span_rows, rows[span_rows]))

    @staticmethod
    def read_journal(process: ProcessLogs) -> None:
        """Read the lines of the journal that are new. A name is journalled before its use."""
        try:
            lines, process.journal_offset = spool.read_journal(
                str(process.directory / JOURNAL_FILE), process.journal_offset
            )
        except FileNotFoundError:
            return
        for line in lines:
            try:
                _apply_line(process, line)
            except msgspec.ValidationError:  # not written by stepscope, or damaged
                continue


def _apply_line(process: ProcessLogs, line: dict[str, Any]) -> None:
    """Add a line of the journal to the state of its process.

    Raises:
        msgspec.ValidationError: a field of the line is missing or has another type.
    """
    kind = line.pop("k", None)
    if kind == "name":
        name = msgspec.convert(line, _NameLine)
        process.names[name.id] = (name.text, name.labels)
        return
    process.changed = True
    if kind == "process":
        msgspec.convert(line, _ProcessLine)
        process.description = line
    elif kind == "fact":
        msgspec.convert(line, _FactLine)
        process.facts.append(line)
    elif kind == "note":
        process.notes.append(msgspec.convert(line, _NoteLine).text)
    elif kind == "end":
        msgspec.convert(line, _EndLine)
        process.end = line


def _kinds(meta: Words) -> Words:
    return (meta >> np.uint64(24)) & np.uint64(0xFF)


def _remove_if_finished(process: ProcessLogs, segment: LogSegment) -> None:
    if segment.finished:
        segment.file.path.unlink(missing_ok=True)
        segment.file.close()
        process.segments.pop(segment.file.path.name, None)


def _read(file: SharedFile) -> Words | None:
    """Read the words of a segment; None if the file is missing or has another format."""
    data = file.read()
    if len(data) != spool.SEGMENT_BYTES:
        return None
    words = np.frombuffer(data, dtype=np.uint64)
    return words if int(words[0]) == spool.MAGIC else None


class _ColumnBuilder:
    """Columns that the tables share, from records of several segments."""

    def __init__(self, node: str, offset: int, records: Sequence[NewRecords]) -> None:
        self.node = node
        self.records = records
        self._offset = np.int64(offset)
        words = np.concatenate([chunk.words for chunk in records])
        self.start = words[:, 0].astype(np.int64)
        self.end = words[:, 1].astype(np.int64)
        self.meta = words[:, 2]
        self.value = words[:, 3]

    def provenance(self) -> dict[str, Any]:
        sizes = [len(chunk.indices) for chunk in self.records]
        return {
            "node": store.DictColumn.constant(self.node, sum(sizes)),
            "process": _repeat([chunk.process.name for chunk in self.records], sizes),
            "log": _repeat([chunk.segment.log for chunk in self.records], sizes),
            "seq": np.concatenate([chunk.indices + chunk.segment.first for chunk in self.records]),
        }

    def epoch(self, monotonic: NDArray[np.int64]) -> NDArray[np.int64]:
        return monotonic + self._offset

    def bits(self, shift: int, width: int) -> NDArray[np.int64]:
        mask = np.uint64((1 << width) - 1)
        return ((self.meta >> np.uint64(shift)) & mask).astype(np.int64)

    def names(self, choose: Callable[[tuple[str, str | None]], str | None]) -> store.DictColumn:
        """Look up the interned names of the records, and choose the text or the labels of each."""
        numbers = self.bits(32, 32)
        codes = np.empty(len(numbers), dtype=np.int32)
        values: dict[str | None, int] = {}
        start = 0
        for chunk in self.records:
            end = start + len(chunk.indices)
            unique, inverse = np.unique(numbers[start:end], return_inverse=True)
            names = [chunk.process.names.get(int(number), ("", None)) for number in unique]
            table = [values.setdefault(choose(name), len(values)) for name in names]
            codes[start:end] = np.array(table, dtype=np.int32)[inverse]
            start = end
        return store.DictColumn(codes, list(values))


def _repeat(texts: Sequence[str], sizes: Sequence[int]) -> store.DictColumn:
    values: dict[str, int] = {}
    codes = [values.setdefault(text, len(values)) for text in texts]
    return store.DictColumn(np.repeat(np.array(codes, dtype=np.int32), sizes), list(values))


def _text(name: tuple[str, str | None]) -> str:
    return name[0]


def _labels(name: tuple[str, str | None]) -> str | None:
    return name[1]


def _device(name: tuple[str, str | None]) -> str:
    try:
        return msgspec.json.decode(name[1] or '""', type=str)
    except schema.MALFORMED_JSON:
        return ""


def _span_columns(builder: _ColumnBuilder) -> dict[str, Any]:
    kinds, inverse = np.unique(builder.bits(24, 8), return_inverse=True)
    flags = builder.bits(16, 8)
    open_ended = (builder.end == 0) & (flags & spool.Flag.MARK == 0)
    end = np.where(builder.end == 0, builder.start, builder.end)
    return {
        **builder.provenance(),
        "kind": store.DictColumn(
            inverse.astype(np.int32), [KIND_NAMES.get(int(kind), "unknown") for kind in kinds]
        ),
        "name": builder.names(_text),
        "labels": builder.names(_labels),
        "start_ns": builder.epoch(builder.start),
        "end_ns": np.ma.MaskedArray(builder.epoch(end), mask=open_ended),
        "depth": builder.bits(0, 16).astype(np.int16),
        "flags": (flags & ~spool.Flag.MARK).astype(np.int16),
        "value": builder.value.view(np.int64),
    }


def _stack_columns(builder: _ColumnBuilder) -> dict[str, Any]:
    value = builder.value
    return {
        **builder.provenance(),
        "t_ns": builder.epoch(builder.start),
        "stack": builder.names(_text),
        "line": (value & np.uint64(0xFFFF_FFFF)).astype(np.int32),
        "user_line": (value >> np.uint64(32)).astype(np.int32),
    }


def _scalar_columns(builder: _ColumnBuilder) -> dict[str, Any]:
    return {
        **builder.provenance(),
        "t_ns": builder.epoch(builder.start),
        "name": builder.names(_text),
        "step": np.ma.MaskedArray(builder.end.astype(np.int64) - 1, mask=builder.end == 0),
        "value": builder.value.view(np.float64),
    }


def _metric_columns(builder: _ColumnBuilder) -> dict[str, Any]:
    return {
        **builder.provenance(),
        "t_ns": builder.epoch(builder.start),
        "metric": builder.names(lambda name: name[0]),
        "device": builder.names(_device),
        "value": builder.value.view(np.float64),
    }


_COLUMNS: dict[str, Callable[[_ColumnBuilder], dict[str, Any]]] = {
    "spans": _span_columns,
    "stacks": _stack_columns,
    "scalars": _scalar_columns,
    "metrics": _metric_columns,
}
