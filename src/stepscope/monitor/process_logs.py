"""The directory of one process in the spool, with its dumps of collectives.

Dumps of the recorder of collectives in the directory of a process become rows, exactly once.
Successive dumps overlap. A call becomes a row when it has ended; if it has not when its process
ends, or when the recorder has overwritten it, it becomes one in the last state that was seen. The
number that the recorder gives to a call is the sequence number of the row, so that a monitor that
starts again finds in the store what is there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import importers, schema, spool, store
from stepscope.monitor.row_files import RowFile, StoredSequences

TABLE = "collective_calls"
MAX_KEPT_CALLS = 48
"""Latest calls of each process group, and as many between two ranks, that are kept for the account
of a stuck job."""


class ThreadStack(msgspec.Struct):
    """Python stack of one thread."""

    thread: str
    is_main: bool
    frames: list[tuple[str, int, str]] = []
    """File, line and function, innermost first."""
    native_id: int | None = None
    """Id of the thread in the kernel."""


class StartedTransfer(msgspec.Struct):
    """Send or receive between two ranks that the process has started."""

    number: int
    kind: str
    peer: int
    group: str
    sizes: str
    dtypes: str
    has_ended: bool
    t_ns: int
    """Monotonic."""


class DumpHeader(msgspec.Struct):
    """First line of a dump; see `stepscope.spool.collective_dump`."""

    number: int
    recorder: str
    reason: str
    t_ns: int
    """Monotonic."""
    clock_ns: int
    """Monotonic time minus that of the wall clock."""
    rank: int | None = None
    groups: dict[str, list[int]] = {}
    question: int | None = None
    stacks: list[ThreadStack] = []
    transfers: list[StartedTransfer] = []
    """The latest, where the process was asked or has ended."""


class _Recorder(msgspec.Struct):
    """State of one recorder of the process."""

    stored: set[int] = msgspec.field(default_factory=set)
    """Calls in the store, from the first call of the last dump on."""
    is_looked_up: bool = False
    open: dict[int, importers.RecordedCall] = msgspec.field(default_factory=dict)
    """Calls that had not ended, by record id."""
    latest: list[importers.RecordedCall] = msgspec.field(default_factory=list)
    header: DumpHeader | None = None


class NewCalls(msgspec.Struct):
    """New rows of one process from one recorder."""

    process: str
    header: DumpHeader
    calls: list[importers.RecordedCall]
    recorder: _Recorder
    paths: list[Path]
    unstored: dict[Path, tuple[DumpHeader, importers.FlightDump]]
    """The dumps of the process that are not stored, of which these are removed."""

    def commit(self) -> None:
        """Note that they are stored; remove their dumps."""
        for call in self.calls:
            self.recorder.stored.add(call.record_id)
            self.recorder.open.pop(call.record_id, None)
        for path in self.paths:
            path.unlink(missing_ok=True)
            self.unstored.pop(path, None)

    def make_columns(self, node: str, epoch_offset_ns: int) -> dict[str, Any]:
        """Return the columns in the form that the store appends."""
        count = len(self.calls)
        return {
            "node": store.DictColumn.constant(node, count),
            "process": store.DictColumn.constant(self.process, count),
            "log": store.DictColumn.constant(self.header.recorder, count),
            "seq": np.array([call.record_id for call in self.calls], dtype=np.int64),
            **importers.make_call_columns(
                self.calls,
                rank=self.header.rank,
                groups=self.header.groups,
                shift_ns=self.header.clock_ns + epoch_offset_ns,
            ),
        }


class CollectiveDumps:
    """Dumps of one process."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._recorders: dict[str, _Recorder] = {}
        self._read: dict[Path, tuple[DumpHeader, importers.FlightDump]] = {}
        self._unreadable: set[Path] = set()
        self.last_answer: DumpHeader | None = None
        """The last answer to a question."""
        self.transfers: list[StartedTransfer] = []
        """Transfers when it was last asked, or has ended."""

    @property
    def has_new(self) -> bool:
        """True while the store does not have all that was read."""
        return bool(self._read) or any(recorder.open for recorder in self._recorders.values())

    @property
    def latest(self) -> dict[str, tuple[DumpHeader, list[importers.RecordedCall]]]:
        """Header of the last dump and latest calls, by recorder."""
        return {
            name: (recorder.header, recorder.latest)
            for name, recorder in self._recorders.items()
            if recorder.header is not None
        }

    def read(self, paths: Iterable[Path]) -> list[str]:
        """Read new dumps.

        Returns:
            Sentences about files that cannot be read.
        """
        notes = []
        numbers = {path: spool.parse_dump_name(path.name) for path in paths}
        for path in sorted(
            (path for path, number in numbers.items() if number is not None),
            key=lambda path: numbers[path] or 0,
        ):
            if path in self._read or path in self._unreadable:
                continue
            try:
                line, content = spool.read_dump(path.read_bytes())
                header = msgspec.convert(line, DumpHeader)
                dump = importers.parse_flight_dump(importers.load_plain(content))
            except FileNotFoundError:
                continue
            except (ValueError, msgspec.ValidationError) as error:
                self._unreadable.add(path)
                notes.append(f"the collectives in {path.name} cannot be read: {error}")
                continue
            self._read[path] = header, dump
            recorder = self._recorders.setdefault(header.recorder, _Recorder())
            recorder.header = header
            recorder.latest = _select_latest(dump.calls)
            if header.question is not None:
                self.last_answer = header
            if header.reason in {spool.DumpReason.QUESTION, spool.DumpReason.END}:
                self.transfers = header.transfers
        return notes

    def collect(self, stored: StoredSequences, *, has_ended: bool) -> list[NewCalls]:
        """Find new rows of the dumps that were read.

        Args:
            stored: finds the sequence numbers that the store already has.
            has_ended: the process has ended.
        """
        by_recorder: dict[str, list[Path]] = {}
        for path, (header, _) in self._read.items():
            by_recorder.setdefault(header.recorder, []).append(path)
        chunks = []
        for name, recorder in self._recorders.items():
            paths = by_recorder.get(name, [])
            new = self._find_new(name, recorder, [self._read[p][1] for p in paths], stored)
            if has_ended:
                new |= {n: call for n, call in recorder.open.items() if n not in new}
            elif not recorder.open.keys() <= new.keys():
                paths = paths[:-1]  # a monitor that starts again finds the open calls in the last
            calls = [new[number] for number in sorted(new)]
            if recorder.header is not None and calls:
                header = recorder.header
                chunks.append(NewCalls(self._process, header, calls, recorder, paths, self._read))
            else:
                self._remove(paths)
        return chunks

    def _remove(self, paths: Iterable[Path]) -> None:
        for path in paths:
            path.unlink(missing_ok=True)
            self._read.pop(path, None)

    def _find_new(
        self,
        name: str,
        recorder: _Recorder,
        dumps: Sequence[importers.FlightDump],
        stored: StoredSequences,
    ) -> dict[int, importers.RecordedCall]:
        new: dict[int, importers.RecordedCall] = {}
        oldest = min((dump.calls[0].record_id for dump in dumps if dump.calls), default=0)
        recorder.stored = {number for number in recorder.stored if number >= oldest}
        for dump in dumps:
            if not dump.calls:
                continue
            first, last = dump.calls[0].record_id, dump.calls[-1].record_id
            if not recorder.is_looked_up:
                numbers = stored(TABLE, self._process, name, first, last - first + 1)
                recorder.stored, recorder.is_looked_up = set(numbers.tolist()), True
            for number in [number for number in recorder.open if number < first]:
                new[number] = recorder.open[number]  # it was overwritten
            for call in dump.calls:
                number = call.record_id
                if number in recorder.stored or number in new:
                    continue
                if call.has_ended:
                    new[number] = call
                else:
                    recorder.open[number] = call
        return new


def _select_latest(calls: Sequence[importers.RecordedCall]) -> list[importers.RecordedCall]:
    """Select the latest calls of each group, in the order of the calls.

    A group that was destroyed and made again numbers its calls from 1 again: calls of the earlier
    one have higher numbers than later calls, and are left out.
    """
    counts: dict[tuple[str, bool], int] = {}
    lowest: dict[tuple[str, bool], int] = {}
    latest = []
    for call in reversed(calls):
        group = call.process_group[0], call.is_p2p
        lowest.setdefault(group, call.number)
        if call.number > lowest[group]:
            counts[group] = MAX_KEPT_CALLS
        lowest[group] = min(lowest[group], call.number)
        counts[group] = counts.get(group, 0) + 1
        if counts[group] <= MAX_KEPT_CALLS:
            latest.append(call)
    return latest[::-1]


def join_columns(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the columns of several processes."""
    return {name: _join([part[name] for part in parts]) for name in parts[0]}


def _join(columns: Sequence[Any]) -> Any:
    if isinstance(columns[0], store.DictColumn):
        values: dict[str | None, int] = {}
        codes = []
        for column in columns:
            numbers = [values.setdefault(value, len(values)) for value in column.values]
            table = np.array([*numbers, -1], dtype=np.int32)
            codes.append(table[column.codes])
        return store.DictColumn(np.concatenate(codes), list(values))
    if any(isinstance(column, np.ma.MaskedArray) for column in columns):
        return np.ma.concatenate(columns)  # type: ignore[no-untyped-call]
    return np.concatenate(columns)


JOURNAL_FILE = "journal.jsonl"
MAX_CRASH_BYTES = 1 << 18
MAX_OPEN_FILES = 256
"""Limit on the files of the spool that stay open, far below the usual limit of 1024."""


class SharedFile:
    """File of the spool that a process of the job writes to through a mapping.

    It stays open, up to a number of files, so that it can be read to the end even if somebody
    deletes it: the process keeps its mapping, too. A mapping here would make the monitor die by
    SIGBUS where somebody truncates the file.

    Raises:
        OSError: it cannot be opened.
    """

    _open_count = 0

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._size = size
        self._descriptor: int | None = None
        if SharedFile._open_count < MAX_OPEN_FILES:
            self._descriptor = os.open(path, os.O_RDONLY)
            SharedFile._open_count += 1

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close it; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            SharedFile._open_count -= 1

    def read(self) -> bytes:
        """Read the content; empty if the file is missing."""
        if self._descriptor is not None:
            return os.pread(self._descriptor, self._size, 0)
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""


class LogSegment(msgspec.Struct):
    """Segment file of a log, and the records of it that the store has."""

    file: SharedFile
    log: str
    first: int
    emitted: NDArray[np.bool_]

    @property
    def finished(self) -> bool:
        """True when all records of the file are in the store."""
        return bool(self.emitted.all())


@dataclass(slots=True)
class ProcessLogs:
    """State of the directory of one process."""

    name: str
    directory: Path
    journal_offset: int = 0
    names: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    description: dict[str, Any] = field(default_factory=dict)
    facts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    end: dict[str, Any] | None = None
    """How the interpreter ended; None if it was killed, or has not ended."""
    error_output: str = ""
    """What it wrote to `sys.stderr` last, unless a file has it."""
    crash: str = ""
    """Stacks that the interpreter wrote at a fatal signal."""
    crashed_ns: int = 0
    """Time at which it did, epoch nanoseconds."""
    segments: dict[str, LogSegment] = field(default_factory=dict)
    row_files: dict[str, RowFile] = field(default_factory=dict)
    dumps: CollectiveDumps = field(init=False)
    _page: spool.CollectivePage | None = None
    unreadable: set[str] = field(default_factory=set)
    """Names of damaged files of rows."""
    drops: SharedFile | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    """Number of records that had no room, by cause."""
    refusal: str | None = None
    """Cause for which nothing at all could be recorded."""
    changed: bool = True
    ended: bool = False

    def __post_init__(self) -> None:
        self.dumps = CollectiveDumps(self.name)

    @property
    def drained(self) -> bool:
        """True when the process has ended and the store has all of its records."""
        rows_are_stored = not any(file.missing for file in self.row_files.values())
        dumps_are_stored = not self.dumps.has_new
        return self.ended and not self.segments and rows_are_stored and dumps_are_stored

    @property
    def has_captures(self) -> bool:
        """True while it has windows or memory snapshots, which are imported on their own."""
        patterns = ("window-*", spool.SNAPSHOTS)
        return any(any(self.directory.glob(pattern)) for pattern in patterns)

    @property
    def key(self) -> tuple[int, ...]:
        """Process id, start ticks and serial of the image, from the name of the directory."""
        return tuple(map(int, self.name.partition("@")[0].split("-")))

    @property
    def pid(self) -> int:
        """Process id."""
        return self.key[0]

    def open_collective_page(self) -> spool.CollectivePage | None:
        """Open the page of its collectives, which stays readable when the directory is gone; None
        without one."""
        if self._page is None:
            self._page = spool.CollectivePage.open(str(self.directory))
        return self._page

    @property
    def role(self) -> str:
        """Role of the process in its job; see `schema.ProcessInfo`."""
        role: str = self.description.get("role", "main")
        if schema.decode_facts(self.facts, schema.DataLoaderWorkerFact):
            role = "dataloader_worker"
        workers = schema.decode_facts(self.facts, schema.WorkerProcessFact)
        return "worker" if workers and not any(worker.trains for worker in workers) else role

    def is_alive(self) -> bool:
        """Check whether the process that created the directory runs; its pid may be reused."""
        return spool.process_is_alive(str(self.directory))

    def close(self) -> None:
        """Close the files of a process of which everything is stored."""
        if self.drops is not None:
            self.drops.close()

    def read_drops(self) -> None:
        """Read how many records the process has dropped, or why nothing of it is recorded."""
        if not self.description:  # it starts just now, or not even its journal had room
            refusal = spool.read_refusal(str(self.directory))
            if refusal is None and self.ended:
                refusals = spool.read_refusals(str(self.directory.parent))
                refusal = refusals[0] if refusals else spool.UNKNOWN_CAUSE
            self.changed |= refusal != self.refusal
            self.refusal = refusal
        if self.drops is None:
            try:
                self.drops = SharedFile(self.directory / spool.DROPS_FILE, spool.PAGE_BYTES)
            except FileNotFoundError:
                return
        dropped = spool.parse_drops(self.drops.read())
        self.changed |= dropped != self.dropped
        self.dropped = dropped

    def read_last_words(self) -> None:
        """Read what the program wrote last, and the stacks of a fatal signal, if there was one."""
        self.error_output = spool.read_output(str(self.directory / spool.OUTPUT_FILE))
        with suppress(OSError), Path(self.directory / spool.CRASH_FILE).open("rb") as file:
            self.crash = file.read(MAX_CRASH_BYTES).decode(errors="replace")
            self.crashed_ns = os.fstat(file.fileno()).st_mtime_ns

    def restore(self) -> None:
        """Create the directory again after somebody has deleted it, with what its journal said.

        The process opens its journal and new segments by their names, and so continues in the new
        directory. It appears with the complete journal, because the process appends to it.

        Raises:
            OSError: the spool cannot be written.
        """
        staged = self.directory.with_name(f"new-{self.name}")
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(mode=0o700)
        journal = spool.Journal(str(staged / JOURNAL_FILE))
        journal.write("process", **self.description)
        for number, (text, labels) in self.names.items():
            journal.write("name", id=number, text=text, labels=labels)
        for fact in self.facts:
            journal.write("fact", **fact)
        for note in self.notes:
            journal.write("note", text=note)
        size = (staged / JOURNAL_FILE).stat().st_size
        staged.rename(self.directory)
        self.journal_offset = size
