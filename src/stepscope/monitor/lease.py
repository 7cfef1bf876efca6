"""Lease of a run that several nodes write: its holder evaluates rules and writes the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable

from stepscope.quantities import duration
from stepscope.store import HEARTBEAT_TIMEOUT_S, Heartbeats, SharedRun

MIN_CLOCK_DIFFERENCE_NS = 60_000_000_000
"""Difference of two clocks that is noted: far above the age of a new heartbeat."""


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
        self.note: str | None = None
        """A difference between the wall clocks of the holder and of this node, as a sentence."""
        self._heartbeat_by_node: dict[str, int | None] = {}
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
        self._compare_clocks(lease.node, heartbeat_ns)
        if self._heartbeats.observe(lease.node, heartbeat_ns) < HEARTBEAT_TIMEOUT_S:
            return False
        return self._run.take_lease(lease.number + 1, self._node)

    def _compare_clocks(self, holder: str, heartbeat_ns: int | None) -> None:
        """Note if the clock of a node differs: its latest heartbeat is at most seconds old if it is
        a new one."""
        is_first = holder not in self._heartbeat_by_node
        earlier_ns = self._heartbeat_by_node.get(holder)
        self._heartbeat_by_node[holder] = heartbeat_ns
        if is_first or heartbeat_ns is None or heartbeat_ns == earlier_ns:
            return
        ahead_ns = heartbeat_ns - time.time_ns()
        self.note = None
        if abs(ahead_ns) >= MIN_CLOCK_DIFFERENCE_NS:
            direction = "ahead of" if ahead_ns > 0 else "behind"
            self.note = (
                f"the clock of {holder} is {duration(abs(ahead_ns))} {direction} that of "
                f"{self._node}: times of the two nodes cannot be compared"
            )
