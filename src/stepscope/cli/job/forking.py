"""Processes forked from the launcher, which has imported what they need.

Each of them would spend a third of a second on imports of its own, and the launcher the same on its
verdict; pages that none of them writes to are in memory once. A fork is safe while the launcher has
one thread.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Protocol

from stepscope.monitor import child_variables
from stepscope.spool import read_process_fields

POLL_S = 0.002
_ARGUMENTS = slice(45, 47)
"""Start and end of the command line in memory: fields 48 and 49 of proc_pid_stat(5)."""


class Process(Protocol):
    """Child process, started or forked: a part of `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Process id."""

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status."""

    def send_signal(self, sig: int) -> None:
        """Send a signal unless it has ended."""

    def terminate(self) -> None:
        """Send SIGTERM unless it has ended."""


class ForkedProcess:
    """Child process that `fork_process` has forked; see `Process`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, -N for signal N; None while it runs."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status.

        Raises:
            TimeoutExpired: it still runs after *timeout* seconds.
        """
        start_s = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() - start_s >= timeout:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(POLL_S)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Send SIGTERM unless it has ended."""
        self.send_signal(signal.SIGTERM)


def can_fork() -> bool:
    """Return True if this process has one thread, and its memory can be written through /proc."""
    try:
        _write_arguments(b"")
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:
        return False


def fork_process(words: Sequence[str], work: Callable[[], None], log: int) -> ForkedProcess:
    """Fork a process in a session of its own, so that Ctrl-C does not reach it.

    Args:
        words: its command line, by which users and other processes know it: its name comes first,
            because that of a short command has no room for more.
        work: what it does.
        log: descriptor for its output.

    Raises:
        OSError: there can be no more processes.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader is gone
            stream.flush()
    gc.freeze()  # a collection would write to every shared page
    pid = os.fork()
    if pid == 0:
        _run(words, work, log)
    return ForkedProcess(pid)


def _run(words: Sequence[str], work: Callable[[], None], log: int) -> NoReturn:
    """Do the work of a forked process, and end it as the interpreter would."""
    code = 1
    try:
        os.setsid()
        _replace_streams(log)
        _write_arguments(b"\0".join(map(os.fsencode, words)))
        sys.argv = list(words)
        os.environ.update(child_variables())
        atexit._clear()  # those are the launcher's
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # noqa: T201 - the log, which the launcher reads
    except BaseException:  # noqa: BLE001 - as at the end of an interpreter
        traceback.print_exc()
    finally:
        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _replace_streams(log: int) -> None:
    """Read nothing, write to the log, and close all other files of the launcher."""
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, descriptor)
    # Not up to the limit, which may be a billion, or below some of them.
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2:
            with suppress(OSError):  # that of the list itself
                os.close(descriptor)


def _write_arguments(text: bytes) -> None:
    """Replace the command line of this process in its memory, as far as there is room; the last
    byte stays 0. Without text, only the first byte is written, as it is.

    Raises:
        OSError: the memory cannot be written.
    """
    fields = read_process_fields(os.getpid())
    if fields is None:
        raise OSError("there is no /proc")
    start, end = map(int, fields[_ARGUMENTS])
    size = end - start
    with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        memory.seek(start)
        content = text[: size - 1].ljust(size, b"\0") if text else memory.read(1)
        memory.seek(start)
        memory.write(content)
