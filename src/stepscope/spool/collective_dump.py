"""Dumps of the recorder of collectives of a process, in files named `collectives-<number>.dump`.

The first line is a JSON object, the content of the recorder follows as the framework wrote it. The
training process does not parse it, because that would hold the interpreter lock:

    {"number": 3, "recorder": "fr", "clock_ns": …, "reason": "full", "rank": 0, …}

A file is written under another name and renamed, so a reader sees all of it or nothing.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
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
