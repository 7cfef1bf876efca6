"""Signs of progress of one recorded process: new records, and stacks that are new.

Records are read from the logs as they grow. Those of the samplers are no progress: they say where
the process is. A stack is one text and one line; a process that waits, or runs in a loop that does
not end, has no new ones after some time.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope import spool
from stepscope.monitor.process_logs import ProcessLogs

SAMPLED_KINDS = (
    *(spool.Kind.STACK, spool.Kind.RUN_QUEUE, spool.Kind.GARBAGE_COLLECTION),
    spool.Kind.METRIC,
)
"""Kinds of records that a process writes without any progress."""
STEP_KINDS = (
    *(spool.Kind.STEP, spool.Kind.OPTIMIZER, spool.Kind.BACKWARD, spool.Kind.FORWARD),
    spool.Kind.DISPATCH,
)
"""Kinds of records that count steps: the first that a process has."""
MIN_RECORDS = 1000
"""Records of a process without any of them from which it is past its start."""
RECORD_BYTES, HEADER_BYTES = 8 * spool.RECORD_WORDS, 8 * spool.HEADER_WORDS
CHUNK_BYTES = 256 * RECORD_BYTES
FILLER = ";<filled by>"
"""Beginning of the part of a stack that belongs to another thread."""
CALL = "<call "
"""Mark of a frame of the user's code that runs a call without a frame of its own."""
MAX_STACKS = 2000
MAX_LOOP_LINES = 12
"""Limit on the different lines of the user's code in a loop."""


class Stack(NamedTuple):
    """Sampled stack: number of its name, line of the user's code, and innermost line."""

    name: int
    lines: int

    @property
    def user_line(self) -> int:
        """Line of the innermost frame of the user's code; 0 without one."""
        return self.lines >> 32

    @property
    def line(self) -> int:
        """Line of the innermost frame."""
        return self.lines & 0xFFFF_FFFF


class ProcessProgress(msgspec.Struct):
    """Signs of progress of one process."""

    process: ProcessLogs
    counts: dict[int, int] = msgspec.field(default_factory=dict)
    """Number of records of the job by kind."""
    stacks: dict[Stack, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Stacks since the last progress of the job, with the times of their first and last sample."""
    last: Stack | None = None
    """Stack of the latest sample."""
    sampled_ns: int = 0
    """Its time, monotonic."""
    changed_ns: int = 0
    """Time from which all samples have had this stack."""
    _offsets: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Steps that have started or ended, as far as records tell."""
        count = next((n for kind in STEP_KINDS if (n := self.counts.get(kind, 0))), 0)
        total = sum(self.counts.values())
        return count or (total if total >= MIN_RECORDS else 0)

    def look(self) -> bool:
        """Read what is new; True if the process has made progress."""
        before = sum(self.counts.values())
        self._read_logs()
        return sum(self.counts.values()) > before

    def find_novelty_ns(self) -> int:
        """Return the time of the first sample of the newest stack; 0 without samples."""
        return max((first_ns for first_ns, _ in self.stacks.values()), default=0)

    def forget_stacks(self) -> None:
        """Forget all stacks: the job has made progress."""
        self.stacks.clear()

    def returns_to_lines(self, since_ns: int) -> bool:
        """Return True if the samples are in a few lines of the user's code, whatever libraries do
        below them, and those since a time are in more than one line and in no new one."""
        lines: dict[tuple[str, int], tuple[int, int]] = {}
        for stack, (first_ns, last_ns) in self.stacks.items():
            text = self.process.names.get(stack.name, ("", None))[0].partition(FILLER)[0]
            frames = text.split(";")
            while frames and not frames[-1].endswith("|"):  # of a library
                frames.pop()
            line = ";".join(frames).partition(CALL)[0], stack.user_line
            times = lines.get(line, (first_ns, last_ns))
            lines[line] = min(times[0], first_ns), max(times[1], last_ns)
        latest = sum(last_ns >= since_ns for _, last_ns in lines.values())
        is_new = any(first_ns >= since_ns for first_ns, _ in lines.values())
        is_complete = len(self.stacks) < MAX_STACKS
        return is_complete and len(lines) <= MAX_LOOP_LINES and latest > 1 and not is_new

    def frames(self) -> list[tuple[str, int, str]]:
        """Return file, line and function of the frames of the last sample, innermost first. Lines
        are known of the innermost frame, and of the innermost one of the user's code."""
        if self.last is None:
            return []
        text = self.process.names.get(self.last.name, ("", None))[0].partition(FILLER)[0]
        parts = [part.split("|") for part in reversed(text.split(";")) if part.count("|") == 2]
        frames, has_user = [], False
        for index, (name, file, library) in enumerate(parts):
            line = self.last.line if index == 0 else 0
            if not library and not has_user:
                has_user, line = True, self.last.user_line
            frames.append((file, line, name.partition("<call ")[0].removesuffix("<generator>")))
        return frames

    def runs_one_call(self) -> bool:
        """Return True if all samples are of one call that has not returned, of a function without
        frames of its own: it computes, however long that takes."""
        if len({stack.name for stack in self.stacks}) != 1 or self.last is None:
            return False
        text = self.process.names.get(self.last.name, ("", None))[0].partition(FILLER)[0]
        innermost = text.rpartition(";")[2]
        return CALL in innermost or not innermost.endswith("|")

    def _read_logs(self) -> None:
        try:
            names = [path.name for path in self.process.directory.iterdir()]
        except OSError:
            return
        logs = [
            name
            for name in names
            if (parsed := spool.LogName.parse(name)) and parsed.log_class != spool.ROWS
        ]
        self._offsets = {name: self._offsets.get(name, HEADER_BYTES) for name in logs}
        for name in logs:
            self._read_log(name)

    def _read_log(self, name: str) -> None:
        offset = self._offsets[name]
        if offset >= spool.SEGMENT_BYTES:
            return
        try:
            file = os.open(self.process.directory / name, os.O_RDONLY)
        except OSError:
            return
        try:
            while data := os.pread(file, CHUNK_BYTES, offset):
                size = len(data) - len(data) % RECORD_BYTES
                rows = np.frombuffer(data[:size], dtype=np.uint64).reshape(-1, spool.RECORD_WORDS)
                written = np.flatnonzero(rows[:, 0])
                if not len(written):
                    break
                offset += RECORD_BYTES * (int(written[-1]) + 1)
                kinds = (rows[written, 2] >> np.uint64(24)) & np.uint64(0xFF)
                for kind, count in zip(*np.unique(kinds, return_counts=True), strict=True):
                    if kind not in SAMPLED_KINDS:
                        self.counts[int(kind)] = self.counts.get(int(kind), 0) + int(count)
                self._add_samples(rows[written[kinds == spool.Kind.STACK]].tolist())
        finally:
            os.close(file)
        self._offsets[name] = offset

    def _add_samples(self, rows: list[list[int]]) -> None:
        for t_ns, _, meta, value in rows:
            stack = Stack(meta >> 32, value)
            if stack in self.stacks or len(self.stacks) < MAX_STACKS:
                self.stacks[stack] = self.stacks.get(stack, (t_ns, t_ns))[0], t_ns
            if t_ns >= self.sampled_ns:
                if stack != self.last:
                    self.last, self.changed_ns = stack, t_ns
                self.sampled_ns = t_ns
