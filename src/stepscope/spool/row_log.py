"""Log of rows with named columns: records that do not fit into the words of a span log.

Each file of the log holds the rows of one moment. It is written under another name and renamed, so
a reader sees all of it or nothing. Its first line is a JSON object, the contents of the columns
follow, each as native numbers:

    {"first": 51, "count": 17, "columns": [["tensor", "q", 1], ["statistics", "d", 11]], …}

`first` is the sequence number of the first row in its log. A column is its name, its type in the
notation of `struct`, and the count of numbers per row. Other members describe all rows.
"""

from __future__ import annotations

import errno
import os
import time

from stepscope.spool.page import LIMIT_REACHED
from stepscope.spool.tree import ROWS, LogName, SpoolFullError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stepscope.spool.page import DropCounts
    from stepscope.spool.tree import SpoolTree

    RowColumn = tuple[str, str, int, bytes]

MAX_HEADER_BYTES = 1 << 20
CHECKED_BYTES = 4 << 20
CHECK_INTERVAL_NS = 1_000_000_000
TENSOR_VALUES = "tensor_values"
"""Value of the member `table` in files of single numbers, which have the columns `tensor`, `row`,
`column` and `value`; files without the member hold statistics. A negative number of a row or column
stands for a name that is a number: -1 - n for n."""
TENSOR_ELEMENTS = "tensor_elements"
"""Value of the member `table` in files of the elements of one tensor, which have the columns
`tensor` and `elements`."""
POWER_BINS = 512
"""Bins of a histogram by sign and power of two of single-precision numbers."""
SIZES = {"q": 8, "d": 8, "i": 4, "B": 1}
"""Bytes of a number by type."""


class RowLog:
    """Append-only log of one process, in files that the monitor removes after reading them.

    Args:
        tree: the spool.
        directory: directory of the process in the spool.
        thread: native id of the thread that created the log.
        drops: counts the dropped rows of the process.
    """

    __slots__ = (
        "_directory", "_drops", "_first", "_free_bytes",
        "_number", "_reserve_ns", "_thread", "_tree",
    )  # fmt: skip

    def __init__(self, tree: SpoolTree, directory: str, thread: int, drops: DropCounts) -> None:
        self._tree = tree
        self._directory = directory
        self._thread = thread
        self._drops = drops
        self._number = 0
        self._first = 0
        self._free_bytes = 0
        """Bytes that may be written until the room is checked again."""
        self._reserve_ns = 0

    def write(self, count: int, columns: list[RowColumn], **fields: Any) -> bool:
        """Append rows; False if the spool has no room, and they are counted as dropped.

        Args:
            count: number of rows.
            columns: name, type, numbers per row, and content of each column.
            fields: describe all rows.

        Returns:
            False if there is no room.
        """
        import json

        header = {
            "first": self._first,
            "count": count,
            "columns": [column[:3] for column in columns],
            **fields,
        }
        content = b"".join([json.dumps(header).encode(), b"\n", *(column[3] for column in columns)])
        name = LogName(self._thread, ROWS, self._number).file_name
        try:
            self._reserve(len(content))
            _write_file(f"{self._directory}/{name}", content)
        except OSError as error:
            is_full = isinstance(error, SpoolFullError)
            self.drop(count, LIMIT_REACHED if is_full else error.errno or errno.EIO)
            return False
        self._number += 1
        self._first += count
        return True

    def _reserve(self, size: int) -> None:
        """Check that a file fits. The spool is listed only once per second or `CHECKED_BYTES`,
        because it may hold thousands of files that the monitor has not read yet.

        Raises:
            SpoolFullError: it does not.
        """
        now_ns = time.monotonic_ns()
        if size > self._free_bytes or now_ns - self._reserve_ns >= CHECK_INTERVAL_NS:
            self._free_bytes, self._reserve_ns = 0, now_ns
            reserved = max(size, min(CHECKED_BYTES, self._tree.limit_bytes // 16))
            try:
                self._tree.reserve(ROWS, reserved)
            except SpoolFullError:
                reserved = size
                self._tree.reserve(ROWS, reserved)
            self._free_bytes = reserved
        self._free_bytes -= size

    def drop(self, count: int, cause: int = errno.EAGAIN) -> None:
        """Count rows that are not kept.

        Args:
            cause: error number; by default, that the device is too far behind.
        """
        for _ in range(count):
            self._drops.add(cause)


def _write_file(path: str, data: bytes) -> None:
    staged = f"{path}.new"
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        if os.write(descriptor, data) < len(data):  # a full file system stores a part
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    except OSError:
        os.unlink(staged)
        raise
    finally:
        os.close(descriptor)
    os.rename(staged, path)


def read_rows(data: bytes) -> tuple[dict[str, Any], dict[str, tuple[str, int, bytes]]]:
    """Read the content of a file of rows.

    Returns:
        The members of the first line, and by column the type, numbers per row, and content.

    Raises:
        ValueError: the content is not that of a file of rows.
    """
    import json

    end = data.find(b"\n", 0, MAX_HEADER_BYTES)
    try:
        header = json.loads(data[: max(0, end)])
        count, offset, columns = header["count"], end + 1, {}
        for name, number_type, width in header["columns"]:
            size = count * width * SIZES[number_type]
            columns[name] = number_type, width, data[offset : offset + size]
            offset += size
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a file of rows: {error!r}") from error
    if offset != len(data):
        raise ValueError("the file of rows is incomplete")
    return header, columns
