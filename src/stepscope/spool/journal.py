"""The journal of a process: infrequent, self-describing lines next to the binary logs.

Each line is one JSON object with a `k` key:

    process   description of the process: pid, parent, role, rank, command, versions
    name      an interned name: id, text
    fact      a fact about the job; has a `fact` key
    note      a probe was switched off, or data is missing; has a `text` key
    end       the interpreter is ending; has the name of the uncaught `exception`, or null

A name's line is written before any record uses its id. The file is reopened for each line,
because a job that daemonizes closes descriptors it does not know. A line also starts with a line
break, so a line truncated by a full disk does not corrupt the next one.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Journal:
    """Writer of one process's journal."""

    __slots__ = ("_dumps", "path")

    def __init__(self, path: str) -> None:
        from json import dumps  # imported only by processes that record, and before the first write

        self._dumps = dumps
        self.path = path

    def write(self, kind: str, **fields: Any) -> None:
        """Append one line.

        Raises:
            OSError: the spool cannot be written.
        """
        line = b"\n" + self._dumps({"k": kind, **fields}, default=repr).encode() + b"\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o600)
        try:
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        finally:
            os.close(descriptor)


def read_journal(path: str, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Read complete lines from byte *offset* on.

    A last line truncated by a kill stays unread; a line truncated by a full disk is skipped.

    Returns:
        The parsed lines, and the offset after the last complete line.

    Raises:
        FileNotFoundError: the process has no journal.
    """
    import json

    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read()
    end = data.rfind(b"\n") + 1
    lines = []
    for line in data[:end].splitlines():
        try:
            parsed = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            lines.append(parsed)
    return lines, offset + end
