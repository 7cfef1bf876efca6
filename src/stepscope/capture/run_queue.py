"""Time in which one thread of this process was runnable without a core, as the kernel counts it."""

from __future__ import annotations

import os

MIN_DELAY_NS = 200_000
"""Shorter delays are added to the next ones: every thread has some of a few microseconds."""
_MAX_BYTES = 64


class RunQueueDelay:
    """Counter of one thread. The kernel counts a wait when it ends."""

    __slots__ = ("_descriptor", "_total_ns")

    def __init__(self, thread: int) -> None:
        """Open the counter of the thread with this native id."""
        self._total_ns = 0
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC
            self._descriptor = os.open(f"/proc/self/task/{thread}/schedstat", flags)
            running_ns, self._total_ns, _ = self._read()
            if not running_ns:  # the counters are switched off
                self.close()
        except (OSError, ValueError):
            self._descriptor = -1

    @property
    def is_available(self) -> bool:
        """False on kernels that do not count."""
        return self._descriptor >= 0

    def take_ns(self) -> int:
        """Return the delay since the last call that did not return 0; 0 for less than
        `MIN_DELAY_NS`."""
        if self._descriptor < 0:
            return 0
        try:
            total_ns = self._read()[1]
        except (OSError, ValueError):  # the thread has ended
            self.close()
            return 0
        delay_ns = total_ns - self._total_ns
        if delay_ns < MIN_DELAY_NS:
            return 0
        self._total_ns = total_ns
        return delay_ns

    def close(self) -> None:
        """Close the file of the counter."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> tuple[int, int, int]:
        running_ns, waiting_ns, slice_count = os.pread(self._descriptor, _MAX_BYTES, 0).split()
        return int(running_ns), int(waiting_ns), int(slice_count)
