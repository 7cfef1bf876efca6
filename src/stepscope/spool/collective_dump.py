"""Dumps of the recorder of collectives of a process, and the journal of a process.

The first line is a JSON object, the content of the recorder follows as the framework wrote it. The
training process does not parse it, because that would hold the interpreter lock:

    {"number": 3, "recorder": "fr", "clock_ns": …, "reason": "full", "rank": 0, …}

A file is written under another name and renamed, so a reader sees all of it or nothing.

The journal of a process: infrequent, self-describing lines next to the binary logs. Each line is
one JSON object with a `k` key:

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
    from collections.abc import Iterable
    from typing import Any, Final

    from stepscope.spool.tree import SpoolTree

PREFIX = "collectives-"
SUFFIX = ".dump"
MAX_HEADER_BYTES = 1 << 22


class DumpReason:
    """Reason for which a process dumped its recorder."""

    FULL: Final = "full"
    """The recorder would soon overwrite collectives that were not read."""
    TIME: Final = "time"
    """There are new ones, and the last dump is some time ago."""
    QUESTION: Final = "question"
    """The monitor asked."""
    END: Final = "end"
    """The interpreter ends."""


def write_dump(tree: SpoolTree, directory: str, number: int, content: bytes, **fields: Any) -> None:
    """Write a dump.

    Args:
        tree: the spool.
        directory: directory of the process in the spool.
        number: number of the dump in its process.
        content: content of the recorder.
        fields: further members of the first line.

    Raises:
        SpoolFullError: the spool has no room for it.
        OSError: the spool cannot be written.
    """
    import json

    from stepscope.spool.tree import ROWS

    data = json.dumps({"number": number, **fields}).encode() + b"\n" + content
    tree.reserve(ROWS, len(data))
    path = f"{directory}/{PREFIX}{number}{SUFFIX}"
    staged = f"{path}.new"
    try:
        with open(staged, "wb") as file:
            file.write(data)
        os.rename(staged, path)
    except OSError:
        if os.path.exists(staged):
            os.unlink(staged)
        raise


def parse_dump_name(name: str) -> int | None:
    """Return the number in the name of a dump; None for another file."""
    if not (name.startswith(PREFIX) and name.endswith(SUFFIX)):
        return None
    number = name[len(PREFIX) : -len(SUFFIX)]
    return int(number) if number.isdecimal() else None


def read_dump(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Split the content of a file into the first line and the content of the recorder.

    Raises:
        ValueError: it is not the content of a dump.
    """
    import json

    end = data.find(b"\n", 0, MAX_HEADER_BYTES)
    try:
        header = json.loads(data[: max(0, end)])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a dump of collectives: {error}") from error
    if not isinstance(header, dict):
        raise ValueError("not a dump of collectives")
    return header, data[end + 1 :]


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
        self.write_all(kind, [fields])

    def write_all(self, kind: str, lines: Iterable[dict[str, Any]]) -> None:
        """Append lines of one kind.

        Raises:
            OSError: the spool cannot be written.
        """
        texts = [self._dumps({"k": kind, **fields}, default=repr) for fields in lines]
        data = "".join(f"\n{text}\n" for text in texts).encode()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self.path, flags, 0o600)
        try:
            if os.write(descriptor, data) < len(data):
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
