"""Finished windows become tables: one child process at a time, behind everything else.

The child is `python -m stepscope.importers`. Its exit status 0 says that the window is durably
stored, now or before; 2 that the file cannot be read, which is said once in the run, and the file
goes to the run's `raw/`; anything else is trouble of the environment, and it is tried again later.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

STORED = 0
UNREADABLE = 2
NICENESS = 19
FIRST_RETRY_S = 2.0
LONGEST_RETRY_S = 60.0
LAST_ATTEMPTS = 3
"""How often a window is tried when nobody waits for more."""
CLOSING_POLL_S = 0.02
RAW_DIRECTORY = "raw"


@dataclass(frozen=True, slots=True)
class WindowFile:
    """One finished file of a recorder."""

    path: Path
    process: str
    number: int
    rank: int | None

    @property
    def key(self) -> tuple[str, int]:
        """What identifies the window in its run."""
        return self.process, self.number


@dataclass(slots=True)
class _Attempt:
    file: WindowFile
    tries: int = 0
    not_before: float = 0.0
    """Monotonic seconds."""


@dataclass(slots=True)
class _Running:
    attempt: _Attempt
    child: subprocess.Popen[bytes]
    messages: IO[bytes]


class WindowImports:
    """The queue of one node.

    Args:
        run: the run, a local directory.
        node: this node.
        job_cores: gives the cores that the job may use; the child keeps off them where others
            are left.
        keep_raw: keep the files, in the run's `raw/`.
        command: how the child is started; tests put another in its place.
    """

    def __init__(
        self,
        run: str,
        node: str,
        *,
        job_cores: Callable[[], Iterable[int]] = tuple,
        keep_raw: bool = False,
        command: tuple[str, ...] = (sys.executable, "-P", "-m", "stepscope.importers"),
    ) -> None:
        self._run = Path(run)
        self._node = node
        self._job_cores = job_cores
        self._keep_raw = keep_raw
        self._command = command
        self._waiting: dict[tuple[str, int], _Attempt] = {}
        self._done: set[tuple[str, int]] = set()
        self._current: _Running | None = None
        self.stored: set[tuple[str, int]] = set()
        """Windows that are in the run."""
        self.unreadable: dict[tuple[str, int], str] = {}
        """Windows whose files cannot be read, with the reason."""
        self.trouble: str | None = None
        """What the environment said to the last attempt, None when that went well."""

    @property
    def child_pid(self) -> int | None:
        """The process at work."""
        current = self._current  # another thread may ask
        return current.child.pid if current is not None else None

    @property
    def idle(self) -> bool:
        """True when nothing is left to do."""
        return not self._waiting

    def knows(self, key: tuple[str, int]) -> bool:
        """True while a window is waiting to be stored."""
        return key in self._waiting

    def add(self, file: WindowFile) -> None:
        """Queue a finished file; one that is known already changes nothing."""
        if file.key not in self._done and file.key not in self._waiting:
            self._waiting[file.key] = _Attempt(file)

    def poll(self) -> None:
        """Take note of a child that has ended, and start the next. Never waits."""
        if self._current is not None:
            code = self._current.child.poll()
            if code is None:
                return
            self._conclude(self._current, code)
        now = time.monotonic()
        for attempt in self._waiting.values():
            if now >= attempt.not_before:
                self._start(attempt)
                return

    def close(self) -> list[WindowFile]:
        """Wait until everything is stored or tried often enough; returns what is left."""
        for attempt in self._waiting.values():
            attempt.tries, attempt.not_before = 0, 0.0
        while self._waiting and any(a.tries < LAST_ATTEMPTS for a in self._waiting.values()):
            self.poll()
            if self._current is not None:
                self._current.child.wait()
            else:
                time.sleep(CLOSING_POLL_S)
        return [attempt.file for attempt in self._waiting.values()]

    def _start(self, attempt: _Attempt) -> None:
        file = attempt.file
        rank = () if file.rank is None else ("--rank", str(file.rank))
        messages = tempfile.TemporaryFile()  # noqa: SIM115 - read when the child has ended
        try:
            child = subprocess.Popen(
                [
                    *self._command,
                    *("--run", str(self._run), "--node", self._node, "--process", file.process),
                    *("--window", str(file.number), *rank, str(file.path)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=messages,
            )
        except OSError as error:
            messages.close()
            self._put_off(attempt, str(error))
            return
        self._current = _Running(attempt, child, messages)
        self._step_back(child.pid)

    def _step_back(self, pid: int) -> None:
        """Lowest priority, idle disk, cores that the job cannot use."""
        spare = os.sched_getaffinity(0) - set(self._job_cores())
        try:
            child = psutil.Process(pid)
            child.nice(NICENESS)
            child.ionice(psutil.IOPRIO_CLASS_IDLE)
            if spare:
                child.cpu_affinity(sorted(spare))
        except (psutil.Error, OSError):  # it has ended already, or this kernel will not
            pass

    def _conclude(self, running: _Running, code: int) -> None:
        self._current = None
        with running.messages as messages:
            messages.seek(0)
            lines = messages.read().decode(errors="replace").strip().splitlines()
        attempt, said = running.attempt, lines[-1] if lines else ""
        file = attempt.file
        if code not in {STORED, UNREADABLE}:
            self._put_off(attempt, said or f"the importer ended with status {code}")
            return
        try:
            if self._keep_raw or code == UNREADABLE:
                self._keep(file)
            file.path.unlink(missing_ok=True)
        except OSError as error:
            self._put_off(attempt, str(error))
            return
        if code == STORED:
            self.stored.add(file.key)
        else:
            self.unreadable[file.key] = said or "the importer gives no reason"
        self.trouble = None
        self._done.add(file.key)
        del self._waiting[file.key]

    def _put_off(self, attempt: _Attempt, why: str) -> None:
        self.trouble = why
        attempt.tries += 1
        delay = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** (attempt.tries - 1))
        attempt.not_before = time.monotonic() + delay

    def _keep(self, file: WindowFile) -> None:
        raw = self._run / RAW_DIRECTORY
        raw.mkdir(exist_ok=True)
        target = raw / f"{file.process}-{file.path.name}"
        temporary = target.with_name(f".{target.name}.tmp")
        shutil.copyfile(file.path, temporary)  # the spool may lie on another file system
        temporary.replace(target)
