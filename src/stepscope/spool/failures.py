"""Uncaught exceptions that ended processes of a job, one line of JSON for each.

A file of lines, because several ranks may fail within a moment: each appends with one write.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FAILURES_FILE = "failures"
CRASH_FILE = "crash"
"""File of a process into which the interpreter writes its stacks at a fatal signal."""
RELAYED_FAILURES = {"ChildFailedError", "CalledProcessError", "ProcessExitedException"}
"""Exceptions by which a launcher says that one of its processes has failed."""
MAX_MESSAGE_CHARACTERS = 1000
MAX_TRACEBACK_LINES = 200
MAX_LINE_CHARACTERS = 1000
MAX_FRAMES = 50


def note_failure(
    spool: str,
    exception: str,
    message: str,
    *,
    frames: Sequence[tuple[str, int, str]] = (),
    traceback: Sequence[str] = (),
) -> None:
    """Note the uncaught exception that ends this process.

    Args:
        frames: file, line and function, innermost first.
        traceback: lines as the interpreter prints them.

    Raises:
        OSError: the spool cannot be written.
    """
    import json

    lines = [line.strip() for line in message.splitlines() if line.strip()]
    # torch.multiprocessing raises the traceback of the process as the message.
    line = lines[-1 if exception == "ProcessRaisedException" else 0] if lines else ""
    content = {
        "pid": os.getpid(),
        "t_ns": time.monotonic_ns(),
        "exception": exception,
        "message": line[:MAX_MESSAGE_CHARACTERS],
        "frames": list(frames)[:MAX_FRAMES],
        "traceback": [text[:MAX_LINE_CHARACTERS] for text in traceback][-MAX_TRACEBACK_LINES:],
        "shared_memory": _measure_space("/dev/shm"),  # noqa: S108 - it is measured only
    }
    _append(spool, json.dumps(content))


def note_survival(spool: str, started_ns: int) -> None:
    """Note that a process that started at a monotonic time has ended by itself: the job has
    survived the failures before.

    Raises:
        OSError: the spool cannot be written.
    """
    if any(failure["t_ns"] < started_ns for failure in read_failures(spool)):
        _append(spool, f'{{"survived_ns": {started_ns}}}')


def read_failures(spool: str) -> list[dict[str, Any]]:
    """Read the failures that the job has not survived, in the order of time."""
    import json

    failures: list[dict[str, Any]] = []
    survived_ns = 0
    try:
        with open(f"{spool}/{FAILURES_FILE}", encoding="utf-8") as file:
            for line in file:
                try:
                    content = json.loads(line)
                except ValueError:  # cut off: the disk was full
                    continue
                survived_ns = max(survived_ns, content.get("survived_ns", 0))
                if "t_ns" in content:
                    failures.append(content)
    except (OSError, ValueError):
        return []
    return sorted(
        (failure for failure in failures if failure["t_ns"] >= survived_ns),
        key=lambda failure: failure["t_ns"],
    )


def is_relayed(failure: dict[str, Any]) -> bool:
    """Return True for the exception of a launcher of processes."""
    return failure["exception"] in RELAYED_FAILURES


MAX_FILE_BYTES = 1 << 20
"""Failures beyond this size of the file are not noted: a job that survives thousands of failed
processes would fill the spool."""


def _append(spool: str, line: str) -> None:
    descriptor = os.open(f"{spool}/{FAILURES_FILE}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if os.fstat(descriptor).st_size < MAX_FILE_BYTES:
            os.write(descriptor, f"{line}\n".encode(errors="backslashreplace"))
    finally:
        os.close(descriptor)


def _measure_space(directory: str) -> list[int] | None:
    """Measure size and free space of a file system, in bytes; None where that is impossible."""
    try:
        space = os.statvfs(directory)
    except OSError:
        return None
    return [space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize]
