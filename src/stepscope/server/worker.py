"""Main loop of a worker, and its cache of open runs.

A worker runs one task at a time, in its main thread, and keeps runs open from one to the next.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import psutil

from stepscope import errors, quantities
from stepscope.run import Run, UnreachableError, open_run, release_memory, reopen_run
from stepscope.run.catalog import is_removed

Task = Callable[..., object]
"""Function of the open runs and of keyword arguments that returns a payload."""
TRIM_BYTES = 20_000_000
"""Memory growth after which caches and connections are dropped and free memory returns to the
system: that takes milliseconds."""
ALARM_DELAY_S = 5
"""Time after the limit of a task at which a worker ends if the server has not killed it."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Header of a reply; the encoded payload follows."""

    status: int
    """HTTP status."""
    error: str | None = None
    """One sentence."""
    growth_bytes: int = 0
    """Memory growth of the worker since its start."""


def work(connection: Connection, tasks: str, limit_s: float, limit_bytes: int) -> None:
    """Run tasks until the other end of the pipe is closed.

    Args:
        connection: pipe that carries the name of a task and its arguments.
        tasks: name of the module with `TASKS`.
        limit_s: time limit of a task. The server kills the worker then; an alarm does if the server
            has ended.
        limit_bytes: size limit of a payload.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends the workers

    tasks_by_name: Mapping[str, Task] = importlib.import_module(tasks).TASKS
    runs = OpenRuns()
    initial_bytes = trimmed_bytes = _memory_bytes()
    while True:
        try:
            task, arguments = connection.recv()
            _set_alarm(limit_s + ALARM_DELAY_S)
            reply, body = _run_task(tasks_by_name[task], runs, arguments, limit_bytes)
            _set_alarm(0)
            if (used_bytes := _memory_bytes()) > trimmed_bytes + TRIM_BYTES:
                runs.release_memory()
                used_bytes = trimmed_bytes = _memory_bytes()
            growth = max(0, used_bytes - initial_bytes)
            connection.send_bytes(
                msgspec.json.encode(msgspec.structs.replace(reply, growth_bytes=growth))
            )
            connection.send_bytes(body)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _run_task(
    task: Task, runs: OpenRuns, arguments: dict[str, Any], limit_bytes: int
) -> tuple[Reply, bytes]:
    try:
        body = msgspec.json.encode(task(runs, **arguments))
    except Exception as error:  # noqa: BLE001 - a failed task must not end the worker
        locations = [value for name, value in arguments.items() if name.endswith("location")]
        return _error_reply(error, locations), b""
    if len(body) > limit_bytes:
        return Reply(
            status=400,
            error=f"The response of {quantities.file_size(len(body))} is larger than the limit of "
            f"{quantities.file_size(limit_bytes)}. Request less: use top, rank or a time range.",
        ), b""
    return Reply(status=200), body


def _error_reply(error: Exception, locations: list[str]) -> Reply:
    """Describe an error. If the run has been removed, that is the reason for every other error."""
    if isinstance(error, errors.NotARunError) or any(map(is_removed, locations)):
        return Reply(status=410, error="The run has been removed.")
    if isinstance(error, FileNotFoundError | PermissionError):
        return Reply(status=404 if isinstance(error, FileNotFoundError) else 403, error=str(error))
    if isinstance(error, errors.StepscopeError):
        return Reply(status=400, error=str(error))
    if isinstance(error, UnreachableError):
        return Reply(status=503, error=f"{error}.")
    if isinstance(error, MemoryError):
        return Reply(status=503, error="There is not enough memory for this response.")
    traceback.print_exception(error, file=sys.stderr)
    return Reply(
        status=500,
        error="Internal error of stepscope; please report it: "
        f"{type(error).__name__}: {str(error)[:500]}",
    )


def _memory_bytes() -> int:
    """Resident memory of this process."""
    size: int = psutil.Process().memory_info().rss
    return size


def _set_alarm(delay_s: float) -> None:
    """End this process after a delay, or never for 0. Windows has no such alarm."""
    if sys.platform != "win32":
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, delay_s)


def run_worker(connection: Connection, *arguments: Any) -> None:
    """Run `work` as a process, and exit without waiting for threads of libraries."""
    work(connection, *arguments)
    os._exit(0)


MAX_OPEN_RUNS = 3


class _CachedRun(msgspec.Struct):
    revision: int
    run: Run


class OpenRuns:
    """Least-recently-used cache of open runs."""

    def __init__(self) -> None:
        self._cache: OrderedDict[str, _CachedRun] = OrderedDict()

    def open(self, location: str, revision: int) -> Run:
        """Open a run at this or a later revision. A run of another revision is read again, except
        for its old segments, which its reader keeps.

        Raises:
            StepscopeError: see `stepscope.run.open_run`.
        """
        cached = self._cache.pop(location, None)
        if cached is None:
            cached = _CachedRun(revision, open_run(location))
        elif cached.revision != revision:
            cached = _CachedRun(revision, reopen_run(cached.run))
        self._cache[location] = cached
        while len(self._cache) > MAX_OPEN_RUNS:
            self._cache.popitem(last=False)
        return cached.run

    def release_memory(self) -> None:
        """Release what speeds up the next task alone: columns, connections, free memory."""
        for cached in self._cache.values():
            cached.run.reader.release_memory()
        release_memory()
