"""Wait of a watch process for the lease of a run that several nodes write."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from stepscope.store import SharedRun

LEASE_POLL_S = 2.0


class LeaseWatch:
    """Lease of this node as its watch process sees it; the monitor of the node takes it.

    Args:
        location: the run.
        node: this node; None in a run of one node, which needs no lease.
    """

    def __init__(self, location: str, node: str | None) -> None:
        self._run = SharedRun(location)
        self._node = node
        self._is_held = node is None
        self._next_s = 0.0

    def is_held(self) -> bool:
        """Return True if this node evaluates the rules; reads the run every two seconds at most.

        Where the run cannot be read, the last answer holds.
        """
        if self._node is not None and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LEASE_POLL_S
            try:
                lease = self._run.read_lease()
            except OSError:
                return self._is_held
            self._is_held = lease is not None and lease.node == self._node
        return self._is_held

    def wait(self, launcher_pid: int, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Wait for the lease.

        Args:
            launcher_pid: the launcher, whose end ends the wait.
            sleep: waits for a number of seconds.

        Returns:
            False if the launcher has ended before.
        """
        while not self.is_held():
            if os.getppid() != launcher_pid:
                return False
            sleep(LEASE_POLL_S / 4)
        return True
