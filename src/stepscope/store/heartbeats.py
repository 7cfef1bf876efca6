"""Age of heartbeats by the clock of the observer: the clocks of nodes may differ by years."""

from __future__ import annotations

import time
from collections.abc import Callable

HEARTBEAT_TIMEOUT_S = 60.0
"""Time without a heartbeat after which another node takes over the work of a monitor."""


class Heartbeats:
    """Observer of the heartbeats of nodes.

    Args:
        clock: monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._latest: dict[str, tuple[int | None, float]] = {}

    def observe(self, node: str, heartbeat_ns: int | None) -> float:
        """Note the latest heartbeat of a node, None before the first.

        Returns:
            Seconds since it changed, or since the first observation.
        """
        now_s = self._clock()
        earlier_ns, since_s = self._latest.get(node, (None, now_s))
        if node not in self._latest or earlier_ns != heartbeat_ns:
            since_s = now_s
            self._latest[node] = heartbeat_ns, now_s
        return now_s - since_s
