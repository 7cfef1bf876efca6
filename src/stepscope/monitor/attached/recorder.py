"""Recorder of the processes of a job from outside: stack samples, and windows on request.

Stack samples by py-spy, which reads the memory of other processes without stopping them. py-spy
runs for a few seconds at a time and starts again, so that samples reach the run while the job goes
on. Between two runs it pauses for as long as its CPU time needs to stay within a budget: a run
costs more where the job has more processes. https://github.com/benfred/py-spy
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from stepscope import quantities, spool
from stepscope.monitor.attached.target import OutsideFrame, OutsideProcess
from stepscope.monitor.config import AttachSettings
from stepscope.monitor.samplers.processes import JobTree
from stepscope.monitor.windows.kineto_peer import KinetoPeer

DETACHED = "stepscope detached while the job was running: what followed was not recorded"


class AttachedRecorder:
    """Recorder of one job on this node.

    Args:
        settings: what can be recorded.
        tree: the spool.
        job: the processes.
        peer: daemon for libkineto; None if the job looks for none.
    """

    def __init__(
        self, settings: AttachSettings, tree: spool.SpoolTree, job: JobTree, peer: KinetoPeer | None
    ) -> None:
        self._limits = settings.limits
        self._tree = tree
        self._job = job
        self._peer = peer
        self._py_spy = (
            None if settings.py_spy is None else PySpy(settings.py_spy, job.root_pid, tree.root)
        )
        self._processes: dict[int, OutsideProcess] = {}

    @property
    def notes(self) -> list[str]:
        """Limits of the recording, and its cost; one sentence each."""
        return [*self._limits, *([] if self._py_spy is None else self._py_spy.notes)]

    @property
    def child_pids(self) -> set[int]:
        """Child processes of the recorder."""
        pid = None if self._py_spy is None else self._py_spy.child_pid
        return set() if pid is None else {pid}

    def poll(self) -> None:
        """Record what is new; takes milliseconds.

        Raises:
            OSError: the spool cannot be written.
        """
        if self._py_spy is not None:
            self._write(self._py_spy.poll())
        self._follow_windows()

    def finish(self) -> None:
        """Record the rest.

        Raises:
            OSError: the spool cannot be written.
        """
        if self._job.root_pid in self._job.processes:
            self._limits = [*self._limits, DETACHED]
        if self._py_spy is not None:
            self._write(self._py_spy.finish())
        self._follow_windows()

    def _write(self, samples: Iterable[tuple[int, int, list[OutsideFrame]]]) -> None:
        for pid, t_ns, frames in samples:
            process = self._find(pid, frames)
            if process is not None:
                try:
                    process.write_stack(frames, t_ns)
                except FileNotFoundError:  # it has ended, and its directory was drained
                    continue

    def _find(self, pid: int, stack: list[OutsideFrame]) -> OutsideProcess | None:
        """Return the recorder of a process, which starts with its first record; None if it has
        ended before."""
        process = self._processes.get(pid)
        if process is None:
            try:
                process = OutsideProcess(self._tree, pid, stack, PySpy.period_ns)
            except (ProcessLookupError, FileNotFoundError):
                return None
            self._processes[pid] = process
        return process

    def _follow_windows(self) -> None:
        """Follow the windows of every process whose libkineto has asked for a configuration."""
        if self._peer is None:
            return
        for pid in self._job.processes:
            process = self._find(pid, []) if self._peer.last_poll(pid) is not None else None
            if process is not None:
                process.follow_windows(self._peer)


RATE_HZ = 10
CHUNK_S = 5
"""Length of one run of py-spy."""
MAX_CPU_RATIO = 0.02
"""Budget: mean share of one core."""
EXIT_TIMEOUT_S = 5.0
MAX_FAILURES = 3
NO_PYTHON = "No python processes found"

_MAIN_THREAD = re.compile(r'Process (\d+) Thread (?:\1(?: .*)?|\w+ "MainThread")')
"""Name of the profile of a main thread, whose number is that of its process."""


class _Frame(msgspec.Struct):
    name: str
    file: str | None = None
    line: int | None = None


class _Shared(msgspec.Struct):
    frames: list[_Frame]


class _Profile(msgspec.Struct):
    name: str
    samples: list[list[int]]


class _Speedscope(msgspec.Struct):
    """https://www.speedscope.app/file-format-schema.json, as far as it is needed."""

    shared: _Shared
    profiles: list[_Profile]


class PySpy:
    """Sampler of the main threads of all Python processes of a job.

    Args:
        program: path of py-spy.
        pid: root of the processes.
        directory: directory for its output.
    """

    period_ns = 1_000_000_000 // RATE_HZ

    def __init__(self, program: str, pid: int, directory: str) -> None:
        self._program = program
        self._pid = pid
        self._file = Path(directory, "py-spy.json")
        self._errors = Path(directory, "py-spy.log")
        self._child: subprocess.Popen[bytes] | None = None
        self._start_ns = 0
        self._next_s = 0.0
        self._cpu_s = 0.0
        self._first_s = time.monotonic()
        self._sample_count = 0
        self._failures = 0
        self._problem = ""

    @property
    def child_pid(self) -> int | None:
        """PID of py-spy while it runs."""
        return None if self._child is None else self._child.pid

    @property
    def notes(self) -> list[str]:
        """Cost of the samples, or the reason why there are none; one sentence each."""
        notes = []
        if self._problem and (not self._sample_count or self._failures >= MAX_FAILURES):
            share = "some" if self._sample_count else "all"
            notes.append(f"{share} stack samples are missing: py-spy failed: {self._problem}")
        elapsed_s = time.monotonic() - self._first_s
        if self._sample_count and elapsed_s > 0:
            notes.append(
                f"{quantities.count_of(self._sample_count, 'stack sample')} by py-spy took "
                f"{quantities.percent(self._cpu_s / elapsed_s, 1)} of one core"
            )
        return notes

    def poll(self) -> Iterator[tuple[int, int, list[OutsideFrame]]]:
        """Start py-spy when it is due; yield the samples when it has ended.

        Yields:
            Process, monotonic time in nanoseconds and frames, outermost first, of each sample.
        """
        if self._child is not None:
            yield from self._collect()
        if self._child is None and time.monotonic() >= self._next_s:
            self._start()

    def finish(self) -> Iterator[tuple[int, int, list[OutsideFrame]]]:
        """End py-spy now, and yield its last samples as `poll` does."""
        self._next_s = float("inf")
        if self._child is not None:
            self._child.send_signal(signal.SIGINT)  # upon which it writes its file
            deadline = time.monotonic() + EXIT_TIMEOUT_S
            while self._child is not None:
                yield from self._collect()
                if self._child is not None:
                    time.sleep(0.02)
                    if time.monotonic() > deadline:
                        self._child.kill()

    def _start(self) -> None:
        options = ("--subprocesses", "--idle", "--nonblocking", "--full-filenames")
        settings = {
            "--format": "speedscope",
            "--rate": RATE_HZ,
            "--duration": CHUNK_S,
            "--pid": self._pid,
            "--output": self._file,
        }
        words = [str(word) for setting in settings.items() for word in setting]
        self._file.unlink(missing_ok=True)
        self._start_ns = time.monotonic_ns()
        try:
            with self._errors.open("wb") as errors:
                self._child = subprocess.Popen(
                    [self._program, "record", *options, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                )
        except OSError as error:
            self._fail(str(error))

    def _collect(self) -> Iterator[tuple[int, int, list[OutsideFrame]]]:
        child = self._child
        if child is None:
            return
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if not pid:
            return
        child.returncode = os.waitstatus_to_exitcode(status)
        self._child = None
        now_s = time.monotonic()
        cpu_s = usage.ru_utime + usage.ru_stime
        self._cpu_s += cpu_s
        self._next_s = max(now_s, self._start_ns / 1e9 + cpu_s / MAX_CPU_RATIO, self._next_s)
        try:
            profiles = msgspec.json.decode(self._file.read_bytes(), type=_Speedscope)
        except (OSError, msgspec.MsgspecError):
            self._fail(_first_line(self._errors))
            return
        self._failures, self._problem = 0, ""
        yield from self._samples_of(profiles)

    def _samples_of(self, speedscope: _Speedscope) -> Iterator[tuple[int, int, list[OutsideFrame]]]:
        frames = [OutsideFrame(f.name, f.file or "", f.line or 0) for f in speedscope.shared.frames]
        for profile in speedscope.profiles:
            match = _MAIN_THREAD.fullmatch(profile.name)
            if match is None:
                continue
            for number, stack in enumerate(profile.samples):
                if stack:
                    self._sample_count += 1
                    t_ns = self._start_ns + number * self.period_ns
                    yield int(match[1]), t_ns, [frames[index] for index in stack]

    def _fail(self, reason: str) -> None:
        """Try again later; stop after some failures in a row, unless Python may still start."""
        self._failures += 1
        self._problem = reason
        self._next_s = time.monotonic() + CHUNK_S
        if self._failures >= MAX_FAILURES and NO_PYTHON not in reason:
            self._next_s = float("inf")


def _first_line(log: Path) -> str:
    """Read the first line of the messages of py-spy that is an error."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    lines = [line for line in lines if line.strip() and not line.startswith("py-spy>")]
    return lines[0].removeprefix("Error: ").rstrip(".") if lines else "it wrote no samples"
