"""Age of heartbeats by the clock of the observer, or of the file system: the clocks of nodes may
differ by years."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from stepscope.schema import SILENT_NS, JobStatus

HEARTBEAT_TIMEOUT_S = 60.0
"""Time without a heartbeat after which another node takes over the work of a monitor."""


COPY_TOLERANCE_NS = 2_000_000_000


def correct_heartbeat(
    status: JobStatus, *, written_ns: int, run_written_ns: int, now_ns: int
) -> JobStatus:
    """Choose the time of a heartbeat, where the clock of the node differs from that of the file
    system: the later one of those that are not in the future. If both are, it is the latter.

    In a copy of a run the times of its files tell nothing: they are all those of the copy, while in
    the original as much time lies between the files as the job has taken.

    Args:
        status: status of a node.
        written_ns: time at which its file was written, by the file system.
        run_written_ns: the same of `run.json`, the first file of the run.
        now_ns: time of the observer, epoch nanoseconds.
    """
    if status.state.is_final or status.elapsed_ns is None:
        return status
    is_copy = written_ns - run_written_ns < status.elapsed_ns - COPY_TOLERANCE_NS
    if is_copy or abs(written_ns - status.heartbeat_ns) <= SILENT_NS:
        return status
    times = (status.heartbeat_ns, written_ns)
    heartbeat_ns = max((t for t in times if t <= now_ns + SILENT_NS), default=written_ns)
    return msgspec.structs.replace(status, heartbeat_ns=heartbeat_ns)


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
