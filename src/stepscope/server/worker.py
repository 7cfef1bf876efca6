"""A worker as it sees itself: it reads questions from a pipe and writes answers until that closes.

It answers one question at a time, in its main thread, and keeps runs open from one to the next.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stepscope.errors import NotARunError, StepscopeError
from stepscope.store import RUN_KEY, UnreachableError, is_remote

if TYPE_CHECKING:
    from stepscope.server.open_runs import OpenRuns

Task = Callable[..., object]
"""Gets the open runs and what was asked, returns a payload."""
LATE_S = 5
"""A worker outlives its time limit by this much where nobody kills it."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What comes before the bytes of an answer."""

    status: int
    """As in HTTP."""
    error: str | None = None
    """One sentence."""
    grown_bytes: int = 0
    """How much more memory the worker holds than when it began."""


def work(connection: Connection, tasks: str, limit_s: float, limit_bytes: int) -> None:
    """Answer until the other end of the pipe is gone.

    Args:
        connection: where questions come from: name of a task and its arguments.
        tasks: module with `TASKS`, by name.
        limit_s: the time for one answer. Who asks kills us then; an alarm does where they are gone.
        limit_bytes: of an answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then ends us
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    from stepscope.server.open_runs import OpenRuns  # the server has no use for what it imports

    known: Mapping[str, Task] = importlib.import_module(tasks).TASKS
    runs = OpenRuns()
    began_bytes = _memory_bytes()
    while True:
        try:
            task, arguments = connection.recv()
            signal.setitimer(signal.ITIMER_REAL, limit_s + LATE_S)
            reply, body = _answer(known[task], runs, arguments, limit_bytes)
            signal.setitimer(signal.ITIMER_REAL, 0)
            grown = max(0, _memory_bytes() - began_bytes)
            connection.send_bytes(
                msgspec.json.encode(msgspec.structs.replace(reply, grown_bytes=grown))
            )
            connection.send_bytes(body)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _answer(
    task: Task, runs: OpenRuns, arguments: dict[str, Any], limit_bytes: int
) -> tuple[Reply, bytes]:
    try:
        body = msgspec.json.encode(task(runs, **arguments))
    except Exception as error:  # noqa: BLE001 - whatever it is, the next question may be another
        return _failure(error, [v for k, v in arguments.items() if k.endswith("location")]), b""
    if len(body) > limit_bytes:
        return Reply(
            status=400,
            error=f"The answer would be {len(body) / 1e6:.0f} MB and may be "
            f"{limit_bytes / 1e6:.0f} MB: ask for less, by top, rank or a range of time.",
        ), b""
    return Reply(status=200), body


def _failure(error: Exception, locations: list[str]) -> Reply:
    """What to say of an error. Where the run is gone, that is the reason for every other."""
    if isinstance(error, NotARunError) or any(map(_is_gone, locations)):
        return Reply(status=410, error="The run has disappeared.")
    if isinstance(error, FileNotFoundError | PermissionError):
        return Reply(status=404 if isinstance(error, FileNotFoundError) else 403, error=str(error))
    if isinstance(error, StepscopeError):
        return Reply(status=400, error=str(error))
    if isinstance(error, UnreachableError):
        return Reply(status=503, error=f"{error}.")
    if isinstance(error, MemoryError):
        return Reply(status=503, error="There is not enough memory for this answer.")
    traceback.print_exception(error, file=sys.stderr)
    return Reply(
        status=500,
        error=f"This could not be computed, which is a defect of stepscope: "
        f"{type(error).__name__}: {str(error)[:500]}",
    )


def _is_gone(location: str) -> bool:
    """Whether a run was there and is no longer. Of a bucket its errors say so themselves."""
    return not is_remote(location) and not Path(location, RUN_KEY).is_file()


def _memory_bytes() -> int:
    """Memory of this process that is in use now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def exit_at_once(connection: Connection, *arguments: Any) -> None:
    """What a worker's process runs: `work`, and no waiting for threads of libraries after it."""
    work(connection, *arguments)
    os._exit(0)
