"""Import of finished windows and of memory snapshots into tables, by one child process of each kind
at a time, at the lowest priority.

The child is `python -m stepscope.importers`. Its exit status 0 means that the window is durably
stored, now or earlier; 2 that the file cannot be read, which a note in the run reports, and the
file is moved to the run's `raw/`; any other status is an error of the environment, and the import
is retried later.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import msgspec

STORED = 0
UNREADABLE = 2
NICENESS = 19
FIRST_RETRY_S = 2.0
MAX_RETRY_S = 60.0
FINAL_ATTEMPTS = 3
"""Number of attempts per window when the monitor ends."""
IMPORT_WINDOW = (sys.executable, "-P", "-m", "stepscope.importers")
IMPORT_SNAPSHOT = (*IMPORT_WINDOW, "--memory-snapshot")
CLOSING_POLL_S = 0.02
RAW_DIRECTORY = "raw"


class WindowFile(msgspec.Struct, frozen=True):
    """Finished file of one window, or memory snapshot."""

    path: Path
    process: str
    number: int
    rank: int | None

    @property
    def key(self) -> tuple[str, int]:
        """Identity of the window in its run."""
        return self.process, self.number


class _Attempt(msgspec.Struct):
    file: WindowFile
    tries: int = 0
    next_s: float = 0.0
    """Earliest time of the next try, on the monotonic clock."""


class _RunningImport(msgspec.Struct):
    attempt: _Attempt
    child: subprocess.Popen[bytes]
    errors: IO[bytes]


class WindowImports:
    """Import queue of one node.

    Args:
        run: local directory of the run.
        node: this node.
        job_cores: returns the cores that the job may use; the child runs on other cores if there
            are any.
        keep_raw: keep the files, in the run's `raw/`.
        command: command of the child, `IMPORT_WINDOW` or `IMPORT_SNAPSHOT`; tests replace it.
    """

    def __init__(
        self,
        run: str,
        node: str,
        *,
        job_cores: Callable[[], Iterable[int]] = tuple,
        keep_raw: bool = False,
        command: tuple[str, ...] = IMPORT_WINDOW,
    ) -> None:
        self._run = Path(run)
        self._node = node
        self._job_cores = job_cores
        self._keep_raw = keep_raw
        self._command = command
        self._queue: dict[tuple[str, int], _Attempt] = {}
        self._done: set[tuple[str, int]] = set()
        self._current: _RunningImport | None = None
        self.stored: set[tuple[str, int]] = set()
        """Windows in the run."""
        self.unreadable: dict[tuple[str, int], str] = {}
        """Windows whose files cannot be read, with the reason."""
        self.last_error: str | None = None
        """Error of the last attempt; None if it has succeeded."""

    @property
    def child_pid(self) -> int | None:
        """PID of the running child."""
        current = self._current  # another thread may read this
        return current.child.pid if current is not None else None

    @property
    def is_idle(self) -> bool:
        """True when the queue is empty."""
        return not self._queue

    def is_queued(self, key: tuple[str, int]) -> bool:
        """Check whether a window is in the queue."""
        return key in self._queue

    def add(self, file: WindowFile) -> None:
        """Add a finished file to the queue; a second call for it changes nothing."""
        if file.key not in self._done and file.key not in self._queue:
            self._queue[file.key] = _Attempt(file)

    def poll(self) -> None:
        """Handle a child that has ended, and start the next one. Never waits."""
        if self._current is not None:
            code = self._current.child.poll()
            if code is None:
                return
            self._handle_exit(self._current, code)
        now_s = time.monotonic()
        for attempt in self._queue.values():
            if now_s >= attempt.next_s:
                self._start(attempt)
                return

    def close(self) -> list[WindowFile]:
        """Import all windows, with a limited number of attempts; returns the failed ones."""
        for attempt in self._queue.values():
            attempt.tries, attempt.next_s = 0, 0.0
        while self._queue and any(item.tries < FINAL_ATTEMPTS for item in self._queue.values()):
            self.poll()
            if self._current is not None:
                self._current.child.wait()
            else:
                time.sleep(CLOSING_POLL_S)
        return [attempt.file for attempt in self._queue.values()]

    def _start(self, attempt: _Attempt) -> None:
        file = attempt.file
        rank = () if file.rank is None else ("--rank", str(file.rank))
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - read after the end of the child
        try:
            child = subprocess.Popen(
                [
                    *self._command,
                    *("--run", str(self._run), "--node", self._node, "--process", file.process),
                    *("--window", str(file.number), *rank, str(file.path)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        except OSError as error:
            errors.close()
            self._postpone(attempt, str(error))
            return
        self._current = _RunningImport(attempt, child, errors)
        self._lower_priority(child.pid)

    def _lower_priority(self, pid: int) -> None:
        """Set the lowest CPU priority, the idle I/O class, and cores that the job cannot use."""
        import psutil

        spare_cores = os.sched_getaffinity(0) - set(self._job_cores())
        try:
            child = psutil.Process(pid)
            child.nice(NICENESS)
            child.ionice(psutil.IOPRIO_CLASS_IDLE)
            if spare_cores:
                child.cpu_affinity(sorted(spare_cores))
        except (psutil.Error, OSError):  # it has ended, or the kernel does not allow it
            pass

    def _handle_exit(self, running: _RunningImport, code: int) -> None:
        self._current = None
        with running.errors as errors:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
        attempt, message = running.attempt, lines[-1] if lines else ""
        file = attempt.file
        if code not in {STORED, UNREADABLE}:
            self._postpone(attempt, message or f"the importer exited with status {code}")
            return
        try:
            if self._keep_raw or code == UNREADABLE:
                self._archive(file)
            file.path.unlink(missing_ok=True)
        except OSError as error:
            self._postpone(attempt, str(error))
            return
        if code == STORED:
            self.stored.add(file.key)
        else:
            self.unreadable[file.key] = message or "the importer reported no reason"
        self.last_error = None
        self._done.add(file.key)
        del self._queue[file.key]

    def _postpone(self, attempt: _Attempt, error: str) -> None:
        self.last_error = error
        attempt.tries += 1
        delay_s = min(MAX_RETRY_S, FIRST_RETRY_S * 2 ** (attempt.tries - 1))
        attempt.next_s = time.monotonic() + delay_s

    def _archive(self, file: WindowFile) -> None:
        raw = self._run / RAW_DIRECTORY
        raw.mkdir(exist_ok=True)
        target = raw / f"{file.process}-{file.path.name}"
        temporary = target.with_name(f".{target.name}.tmp")
        shutil.copyfile(file.path, temporary)  # the spool may be on another file system
        temporary.replace(target)


def has_raw_file(run: Path, process: str, number: int) -> bool:
    """Return True if the file of a window is in the run's `raw/`."""
    return any((run / RAW_DIRECTORY).glob(f"{process}-window-{number}_*"))
