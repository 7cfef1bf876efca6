"""Bytes of the job that wait to be sent to other hosts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stepscope.monitor.samplers.base import Sample, Unavailable, read_bytes
from stepscope.monitor.samplers.processes import JobTree, list_names

METRIC = "network_unsent_bytes"
MAX_COST_RATIO = 0.001
"""Share of the time that reading may take: the kernel visits its whole table of connections."""
_TABLES = ("tcp", "tcp6")
_ESTABLISHED = b"01"
_LOOPBACK = (b"0100007F", b"0" * 24 + b"01000000", b"0" * 16 + b"FFFF00000100007F")
_REMOTE, _STATE, _QUEUES, _INODE = 2, 3, 4, 9
"""Columns of the tables, see proc_net_tcp in the documentation of the kernel."""
_MISSING = (FileNotFoundError, ProcessLookupError)
"""A process, or one of its descriptors, has gone."""


class SendQueueSampler:
    """Sampler of the send queues of the job's TCP connections to other hosts.

    A queue has what was not acknowledged yet, so it is full where the link out of the node is slow.
    Connections of other processes, such as a backup, may fill theirs on a link that is not. It is
    read less often than other sources, since the cost grows with the connections.
    """

    group = "network"

    def __init__(self, job: JobTree, *, proc: str = "/proc") -> None:
        """Sample the connections of this network namespace.

        Raises:
            Unavailable: `/proc/net/tcp` cannot be read.
        """
        self._job = job
        self._proc = proc
        self._paths = [f"{proc}/net/{table}" for table in _TABLES]
        self._next_ns = 0
        try:
            read_bytes(self._paths[0])
        except OSError as error:
            raise Unavailable(f"{self._paths[0]} cannot be read: {error.strerror}") from None

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample the sum over all connections; see `Sampler.sample`.

        There is no sample where a queue is not empty and the sockets of a process cannot be read.
        """
        if now_ns < self._next_ns:
            return
        self._job.refresh(now_ns)
        start_ns = time.thread_time_ns()
        value = self._sum_queues()
        self._next_ns = now_ns + round((time.thread_time_ns() - start_ns) / MAX_COST_RATIO)
        if value is not None:
            yield Sample(METRIC, "", value)

    def _sum_queues(self) -> int | None:
        queues = [queue for path in self._paths for queue in _read_queues(path)]
        if not queues:
            return 0
        try:
            sockets = {s for pid in self._job.processes for s in self._read_sockets(pid)}
        except PermissionError:
            return None
        return sum(queue.size_bytes for queue in queues if queue.socket in sockets)

    def _read_sockets(self, pid: int) -> Iterator[str]:
        """Yield what the descriptors of a process refer to: of a socket `socket:[INODE]`."""
        directory = f"{self._proc}/{pid}/fd"
        try:
            descriptors = list_names(directory)
        except _MISSING:
            return
        for descriptor in descriptors:
            with contextlib.suppress(*_MISSING):
                yield str(Path(directory, descriptor).readlink())


class _Queue(NamedTuple):
    """Send queue of a connection that is not empty."""

    socket: str
    """What descriptors of the connection refer to."""
    size_bytes: int


def _read_queues(path: str) -> Iterator[_Queue]:
    try:
        lines = read_bytes(path).splitlines()[1:]
    except FileNotFoundError:  # IPv6 may be off
        return
    for line in lines:
        fields = line.split(None, _INODE + 1)
        remote = fields[_REMOTE].partition(b":")[0]
        size_bytes = int(fields[_QUEUES].partition(b":")[0], 16)
        if size_bytes and fields[_STATE] == _ESTABLISHED and remote not in _LOOPBACK:
            yield _Queue(f"socket:[{fields[_INODE].decode()}]", size_bytes)
