"""Dumps of the recorder of collectives in the directory of a process become rows, exactly once.

Successive dumps overlap. A call becomes a row when it has ended; if it has not when its process
ends, or when the recorder has overwritten it, it becomes one in the last state that was seen. The
number that the recorder gives to a call is the sequence number of the row, so that a monitor that
starts again finds in the store what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.importers import (
    FlightDump,
    RecordedCall,
    load_plain,
    make_call_columns,
    parse_flight_dump,
)
from stepscope.monitor.row_files import StoredSequences
from stepscope.spool import DumpReason, parse_dump_name, read_dump
from stepscope.store import DictColumn

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


@dataclass(slots=True)
class _Recorder:
    """State of one recorder of the process."""

    stored: set[int] = field(default_factory=set)
    """Calls in the store, from the first call of the last dump on."""
    is_looked_up: bool = False
    open: dict[int, RecordedCall] = field(default_factory=dict)
    """Calls that had not ended, by record id."""
    latest: list[RecordedCall] = field(default_factory=list)
    header: DumpHeader | None = None


@dataclass(slots=True)
class NewCalls:
    """New rows of one process from one recorder."""

    process: str
    header: DumpHeader
    calls: list[RecordedCall]
    recorder: _Recorder
    paths: list[Path]
    unstored: dict[Path, tuple[DumpHeader, FlightDump]]
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
            "node": DictColumn.constant(node, count),
            "process": DictColumn.constant(self.process, count),
            "log": DictColumn.constant(self.header.recorder, count),
            "seq": np.array([call.record_id for call in self.calls], dtype=np.int64),
            **make_call_columns(
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
        self._read: dict[Path, tuple[DumpHeader, FlightDump]] = {}
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
    def latest(self) -> dict[str, tuple[DumpHeader, list[RecordedCall]]]:
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
        numbers = {path: parse_dump_name(path.name) for path in paths}
        for path in sorted(
            (path for path, number in numbers.items() if number is not None),
            key=lambda path: numbers[path] or 0,
        ):
            if path in self._read or path in self._unreadable:
                continue
            try:
                line, content = read_dump(path.read_bytes())
                header = msgspec.convert(line, DumpHeader)
                dump = parse_flight_dump(load_plain(content))
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
            if header.reason in {DumpReason.QUESTION, DumpReason.END}:
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
        dumps: Sequence[FlightDump],
        stored: StoredSequences,
    ) -> dict[int, RecordedCall]:
        new: dict[int, RecordedCall] = {}
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


def _select_latest(calls: Sequence[RecordedCall]) -> list[RecordedCall]:
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
    if isinstance(columns[0], DictColumn):
        values: dict[str | None, int] = {}
        codes = []
        for column in columns:
            numbers = [values.setdefault(value, len(values)) for value in column.values]
            table = np.array([*numbers, -1], dtype=np.int32)
            codes.append(table[column.codes])
        return DictColumn(np.concatenate(codes), list(values))
    if any(isinstance(column, np.ma.MaskedArray) for column in columns):
        return np.ma.concatenate(columns)  # type: ignore[no-untyped-call]
    return np.concatenate(columns)
