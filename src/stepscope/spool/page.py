"""A page that a process of the job and its monitor share."""

from __future__ import annotations

import mmap
import os

PAGE_BYTES = 4096
CREATE = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
OPEN = os.O_RDWR | os.O_CLOEXEC


def map_page(path: str, flags: int) -> memoryview:
    """Map the page of a file as native 64-bit words.

    Args:
        path: the file.
        flags: `CREATE` for a new page of zeros, or `OPEN`.

    Raises:
        OSError: the file cannot be opened, or there is no room for it.
        ValueError: it is not fully allocated yet.
    """
    descriptor = os.open(path, flags, 0o600)
    try:
        if flags & os.O_CREAT:  # a write to a hole of a full file system raises SIGBUS
            os.posix_fallocate(descriptor, 0, PAGE_BYTES)
        return memoryview(mmap.mmap(descriptor, PAGE_BYTES)).cast("Q")
    finally:
        os.close(descriptor)
