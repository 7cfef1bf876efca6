"""Lease of a run that several nodes write: its holder evaluates rules and writes the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable

from stepscope.store import HEARTBEAT_TIMEOUT_S, Heartbeats, SharedRun


class LeaseKeeper:
    """Takes the lease for a node if no node has it, or its holder is silent.

    Silence is measured by the clock of this node alone, so that clocks that differ do no harm.

    Args:
        location: the run.
        node: this node, whose heartbeat keeps the lease.
        clock: monotonic time in seconds.
    """

    def __init__(
        self, location: str, node: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run = SharedRun(location)
        self._node = node
        self._heartbeats = Heartbeats(clock)

    def poll(self) -> bool:
        """Take the lease if it is free; call with every heartbeat.

        Returns:
            True if this node holds it.

        Raises:
            OSError: the run cannot be read or written.
        """
        lease = self._run.read_lease()
        if lease is None:
            return self._run.take_lease(1, self._node)
        if lease.node == self._node:
            return True
        status = self._run.read_status(lease.node)
        # A job that has ended on the node of the holder sends no heartbeat any more, either.
        heartbeat_ns = None if status is None else status.heartbeat_ns
        if self._heartbeats.observe(lease.node, heartbeat_ns) < HEARTBEAT_TIMEOUT_S:
            return False
        return self._run.take_lease(lease.number + 1, self._node)
