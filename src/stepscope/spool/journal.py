"""The journal of a process: rare, self-describing lines beside the binary logs.

Each line is one JSON object with a `k` key:

    process   what the process is: pid, parent, role, rank, command, versions
    name      an interned name: id, text
    fact      something learnt about the job; has a `fact` key
    note      a probe switched itself off, or something is missing; has a `text` key

A name's line is written before any record uses its id. The file is opened anew for each line,
because a job that turns itself into a daemon closes descriptors it does not know. A line begins
with a line break too: where a full disk cut the one before, it takes no other with it.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Journal:
    """Appends lines to one process's journal."""

    __slots__ = ("_dumps", "path")

    def __init__(self, path: str) -> None:
        from json import dumps  # only where something is recorded, and whole before a first use

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
    """Whole lines from byte *offset* on, and the offset after the last of them.

    A line cut short by a kill stays unread; one that a full disk cut is passed over.

    Raises:
        FileNotFoundError: the process has written none.
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
        except ValueError:
            continue
        if isinstance(parsed, dict):
            lines.append(parsed)
    return lines, offset + end
