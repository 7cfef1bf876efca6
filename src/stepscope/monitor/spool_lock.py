"""Lock on a spool: one process at a time stores its records.

Two would store the records that neither finds in the run yet, and each record would be there twice.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path


class SpoolLock:
    """Lock on the directory of a spool, from `take` to `release` or the end of the process.

    It is a lock of flock(2) on the directory itself. Nothing is written into a spool that may be
    full, and systemd-tmpfiles leaves a locked directory alone (tmpfiles.d(5)). On file systems
    without such locks, mostly of networks, it always succeeds.
    """

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._descriptor: int | None = None

    def create_directory(self) -> bool:
        """Create the directory if it is missing; True if it was.

        Raises:
            OSError: it cannot be created, or belongs to another user.
        """
        is_missing = not self._spool.exists()
        self._spool.mkdir(mode=0o700, exist_ok=True)
        if self._spool.is_symlink() or self._spool.stat().st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", str(self._spool))
        return is_missing

    def take(self, *, wait: bool = False) -> bool:
        """Take the lock.

        Args:
            wait: wait until the process that holds it has ended.

        Returns:
            False if another process holds it.

        Raises:
            FileNotFoundError: the spool does not exist.
        """
        self.release()
        while True:
            descriptor = os.open(self._spool, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                os.close(descriptor)
                return False
            except OSError:  # not supported here
                pass
            self._descriptor = descriptor
            if not self.is_lost():
                return True
            self.release()  # the directory was removed while we waited for it

    def release(self) -> None:
        """Release the lock if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def is_lost(self) -> bool:
        """Check whether the locked directory was deleted, or replaced by another one."""
        if self._descriptor is None:
            return True
        try:
            return not os.path.samestat(os.fstat(self._descriptor), self._spool.stat())
        except OSError:
            return True

    def find_holder(self) -> int | None:
        """Return the pid of the process that holds the lock; None if unknown (proc_locks(5))."""
        try:
            status = self._spool.stat()
            lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        except OSError:
            return None
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
        for line in lines:
            words = line.split()  # 1: FLOCK ADVISORY WRITE 4711 00:2b:1234 0 EOF
            if words[1] == "FLOCK" and words[5] == f"{device}:{status.st_ino}":
                return int(words[4])
        return None
