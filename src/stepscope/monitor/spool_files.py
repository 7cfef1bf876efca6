"""Lock, size and samples of a spool.

Two would store the records that neither finds in the run yet, and each record would be there twice.

Samples of the monitor in the spool, like spans of the job. So a monitor that is killed loses no
sample: the next one drains the log of this one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import struct
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from stepscope.monitor.samplers.base import Sample
from stepscope.spool import (
    DropCounts,
    Flag,
    Journal,
    Kind,
    SpanLog,
    SpoolTree,
    make_meta,
    segment_bytes,
)


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


class SpoolSize:
    """Size of the logs in a spool; only directories that have changed are listed again."""

    def __init__(self, tree: SpoolTree) -> None:
        self._tree = tree
        self._sizes: dict[str, tuple[int, int]] = {}
        """Time of the last change and bytes by directory."""

    def measure(self) -> int:
        """Return the number of bytes."""
        sizes: dict[str, tuple[int, int]] = {}
        for path in self._tree.process_directories().values():
            try:
                changed_ns = Path(path).stat().st_mtime_ns
            except FileNotFoundError:
                continue
            cached = self._sizes.get(path)
            if cached is None or cached[0] != changed_ns:
                cached = changed_ns, segment_bytes(path)
            sizes[path] = cached
        self._sizes = sizes
        return sum(size for _, size in sizes.values())


class SampleLog:
    """Log of the samples of this process."""

    def __init__(self, tree: SpoolTree) -> None:
        self._tree = tree
        self._log: SpanLog | None = None
        self._metas: dict[tuple[str, str], int] = {}

    def open(self) -> SpanLog:
        """Create the directory of this process and its log, unless they exist.

        Raises:
            OSError: the spool cannot be written; a later call tries again.
        """
        if self._log is None:
            _, directory = self._tree.make_process_directory()
            try:
                drops = DropCounts.create(directory)
                self._journal = Journal(f"{directory}/journal.jsonl")
                self._journal.write(
                    "process", pid=os.getpid(), parent_pid=os.getppid(), role="monitor", command=[]
                )
            except OSError:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            self._log = SpanLog(self._tree, directory, threading.get_native_id(), "c", drops)
        return self._log

    def write(self, samples: Iterable[Sample], now_ns: int | None = None) -> None:
        """Append one record per sample, all at one time (monotonic nanoseconds, default now).

        Raises:
            OSError: the log, or the name of a new metric, cannot be written.
        """
        log = self.open()
        time_ns = time.monotonic_ns() if now_ns is None else now_ns
        for sample in samples:
            key = (sample.metric, sample.device)
            meta = self._metas.get(key) or self._intern(key)
            (bits,) = struct.unpack("=Q", struct.pack("=d", sample.value))
            log.write(meta, time_ns, 0, bits)

    def _intern(self, key: tuple[str, str]) -> int:
        number = len(self._metas) + 1
        self._journal.write("name", id=number, text=key[0], labels=json.dumps(key[1]))
        meta = self._metas[key] = make_meta(number, Kind.METRIC, Flag.MARK)
        return meta
