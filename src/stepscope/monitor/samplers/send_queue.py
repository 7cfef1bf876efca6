"""Bytes that wait to be sent to other hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator

from stepscope.monitor.samplers.base import Sample, Unavailable, read_bytes

METRIC = "network_unsent_bytes"
MAX_COST_RATIO = 0.001
"""Share of the time that reading may take: the kernel visits its whole table of connections."""
_TABLES = ("tcp", "tcp6")
_ESTABLISHED = b"01"
_LOOPBACK = (b"0100007F", b"0" * 24 + b"01000000", b"0" * 16 + b"FFFF00000100007F")
_REMOTE, _STATE, _QUEUES = 2, 3, 4
"""Columns of the tables, see proc_net_tcp in the documentation of the kernel."""


class SendQueueSampler:
    """Sampler of the send queues of TCP connections to other hosts.

    A queue has what was not acknowledged yet, so it is full where the link out of the node is slow.
    It is read less often than other sources, since the cost grows with the connections.
    """

    group = "network"

    def __init__(self, *, proc: str = "/proc") -> None:
        """Sample the connections of this network namespace.

        Raises:
            Unavailable: `/proc/net/tcp` cannot be read.
        """
        self._paths = [f"{proc}/net/{table}" for table in _TABLES]
        self._next_ns = 0
        try:
            read_bytes(self._paths[0])
        except OSError as error:
            raise Unavailable(f"{self._paths[0]} cannot be read: {error.strerror}") from None

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample the sum over all connections; see `Sampler.sample`."""
        if now_ns < self._next_ns:
            return
        start_ns = time.thread_time_ns()
        value = sum(map(_sum_queues, self._paths))
        self._next_ns = now_ns + round((time.thread_time_ns() - start_ns) / MAX_COST_RATIO)
        yield Sample(METRIC, "", value)


def _sum_queues(path: str) -> int:
    try:
        lines = read_bytes(path).splitlines()[1:]
    except FileNotFoundError:  # IPv6 may be off
        return 0
    total = 0
    for line in lines:
        fields = line.split(None, 5)
        remote = fields[_REMOTE].partition(b":")[0]
        if fields[_STATE] == _ESTABLISHED and remote not in _LOOPBACK:
            total += int(fields[_QUEUES].partition(b":")[0], 16)
    return total
