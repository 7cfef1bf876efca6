"""Operators and kernels among the framework events of one process, as traces.

Debugger's detailed profiling writes the operators of some steps as `cpu_functions` and
`gpu_functions-dev:N`. Each sequence of steps with any becomes a trace of the process, so that they
are stored, nested and shown like those of other profilers.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stepscope import intervals, schema
from stepscope.importers.kineto import Identity, import_trace
from stepscope.importers.smdebug.events import Row
from stepscope.store import RunWriter

_HOST = "cpu_functions"
_DEVICE = re.compile(r"gpu_functions-dev:(?P<device>\d+)")
_ALL_STREAMS = "all streams"
"""Thread of kernels: the files do not name streams."""


class _Event(NamedTuple):
    start_ns: int
    duration_ns: int
    name: str
    device: int | None
    """None on the host."""
    thread: int | str
    args: Mapping[str, Any]


class Operators(msgspec.Struct):
    """Operators and kernels of one process, in the order of its files."""

    _events: list[_Event] = msgspec.field(default_factory=list)

    def add(self, row: Row, end_ns: int | None) -> bool:
        """Add an event if it is a complete operator or kernel; return False for any other."""
        if end_ns is None:
            return False
        match = _DEVICE.fullmatch(row.phase)
        if match is None and row.phase != _HOST:
            return False
        thread = 0 if row.thread is None else row.thread
        self._events.append(
            _Event(
                start_ns=row.start_ns,
                duration_ns=end_ns - row.start_ns,
                name=row.name or row.phase,
                device=None if match is None else int(match["device"]),
                thread=_ALL_STREAMS if match is not None else thread,
                args={name: value for name, value in row.args.items() if name != "pid"},
            )
        )
        return True

    def store(
        self,
        writer: RunWriter,
        process: schema.ProcessInfo,
        steps: Sequence[tuple[int, int]],
        *,
        scratch: Path,
    ) -> None:
        """Store the traces; several ones are numbered.

        Args:
            writer: writer of the run.
            process: the process.
            steps: start and end of each step of the process.
            scratch: directory for temporary files.

        Raises:
            OSError: the run cannot be written.
        """
        self._events.sort(key=lambda event: event.start_ns)
        windows = list(_split(self._events, steps))
        for number, events in enumerate(windows, 1):
            several = len(windows) > 1
            identity = Identity(
                name=f"{process.process} window {number}" if several else process.process,
                node=process.node,
                process=process.process,
                window=number if several else None,
            )
            with tempfile.TemporaryDirectory(dir=scratch, prefix=".import-") as directory:
                path = Path(directory, "operators.json")
                _write(path, events, process.pid)
                import_trace(path, writer, identity, scratch=scratch)
        self._events = []


def _split(
    events: Sequence[_Event], steps: Sequence[tuple[int, int]]
) -> Iterator[Sequence[_Event]]:
    """Split events, sorted by start, where a whole step has none."""
    if not events:
        return
    borders: intervals.Int = np.array(sorted(steps), dtype=np.int64).reshape(-1, 2)
    starts = np.array([event.start_ns for event in events], dtype=np.int64)
    ends = starts + np.array([event.duration_ns for event in events], dtype=np.int64)
    gap_start, gap_end = np.maximum.accumulate(ends)[:-1], starts[1:]
    following = np.searchsorted(borders[:, 0], gap_start)
    step_end = np.append(borders[:, 1], np.iinfo(np.int64).max)[following]
    cuts = np.flatnonzero(step_end <= gap_end) + 1
    first = 0
    for cut in [*cuts.tolist(), len(events)]:
        yield events[first:cut]
        first = cut


def _write(path: Path, events: Sequence[_Event], pid: int) -> None:
    """Write a trace in the form of PyTorch's profiler."""
    base_ns = events[0].start_ns
    header = {"recorder": schema.DEBUGGER, "baseTimeNanoseconds": base_ns}
    with path.open("wb") as file:
        file.write(msgspec.json.encode(header)[:-1] + b',"traceEvents":[')
        for index, event in enumerate(events):
            on_host = event.device is None
            members = {
                "ph": "X",
                "cat": "cpu_op" if on_host else "kernel",
                "name": event.name,
                "pid": pid if on_host else event.device,
                "tid": event.thread,
                "ts": _microseconds(event.start_ns - base_ns),
                "dur": _microseconds(event.duration_ns),
                "args": event.args if on_host else {**event.args, "device": event.device},
            }
            file.write(b",\n"[: 2 * bool(index)] + msgspec.json.encode(members))
        file.write(b"]}")


def _microseconds(time_ns: int) -> msgspec.Raw:
    return msgspec.Raw(f"{time_ns // 1000}.{time_ns % 1000:03d}".encode())
