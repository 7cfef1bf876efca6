"""End of a process that need not be a child: when it ends, and how."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time
from pathlib import Path

from stepscope.spool import read_process_fields

PIDFD_GET_INFO = 0xC040FF0B
"""ioctl of a pidfd: `_IOWR(0xFF, 11, struct pidfd_info)` of include/uapi/linux/pidfd.h."""
PIDFD_INFO_EXIT = 1 << 3
"""Flag for the wait status of a process that has been reaped; since Linux 6.15."""
PIDFD_INFO = struct.Struct("=Q52xi")
"""Flags and wait status, the first and the last field of `struct pidfd_info`."""


class ProcessEnd:
    """End of one process, which must be running when this is created."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        try:
            self._descriptor = os.pidfd_open(pid)
        except OSError:  # ended, or a kernel without pidfds
            self._descriptor = -1

    def __enter__(self) -> ProcessEnd:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def wait(self, seconds: float) -> None:
        """Return after *seconds*, or as soon as the process has ended."""
        if seconds <= 0:
            return
        if self._descriptor < 0:
            time.sleep(seconds)
        else:
            select.select([self._descriptor], [], [], seconds)

    def read_wait_status(self) -> int | None:
        """Return the wait status of the process, as `os.waitpid` does; None while it runs, or where
        the kernel tells it to the parent only.

        Until the parent has read it, it is field 52 of /proc/<pid>/stat (proc_pid_stat(5)).
        Afterwards, Linux 6.15 and later keep it with the pidfd.
        """
        if self._descriptor < 0:
            return None
        try:
            # Raises where we may not read field 52, which is 0 then.
            Path(f"/proc/{self._pid}/ns/pid").readlink()
        except OSError:
            return self._read_kept_status()
        fields = read_process_fields(self._pid)
        if fields is None:
            return self._read_kept_status()
        return int(fields[49]) if fields[0] == b"Z" else None

    def _read_kept_status(self) -> int | None:
        info = bytearray(PIDFD_INFO.pack(PIDFD_INFO_EXIT, 0))
        try:
            fcntl.ioctl(self._descriptor, PIDFD_GET_INFO, info)
        except OSError:  # an older kernel
            return None
        flags, status = PIDFD_INFO.unpack(info)
        return int(status) if flags & PIDFD_INFO_EXIT else None
