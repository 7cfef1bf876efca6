"""Limit of the recorded elements of tensors, which the processes of a job share."""

from __future__ import annotations

import os

FILE_NAME = "element-bytes"


class ElementBudget:
    """Bytes that the processes of one node may record.

    Args:
        root: directory of the spool.
        limit_bytes: their limit.
    """

    def __init__(self, root: str, limit_bytes: int) -> None:
        self._path = f"{root}/{FILE_NAME}"
        self._limit_bytes = limit_bytes

    def reserve(self, size: int) -> bool:
        """Reserve bytes; False if they would exceed the limit.

        The lock is held for two system calls, and released if the process is killed meanwhile.

        Raises:
            OSError: the spool cannot be written.
        """
        import fcntl

        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            used_bytes = int(os.pread(descriptor, 32, 0) or 0)
            if used_bytes + size > self._limit_bytes:
                return False
            os.pwrite(descriptor, b"%020d" % (used_bytes + size), 0)
            return True
        finally:
            os.close(descriptor)
