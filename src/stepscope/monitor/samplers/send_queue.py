"""Bytes of the job that wait to be sent to other hosts."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from stepscope.monitor.samplers.base import Sample, Unavailable, read_bytes
from stepscope.monitor.samplers.processes import JobTree, list_names

METRIC = "network_unsent_bytes"
MAX_COST_RATIO = 0.001
"""Share of the time that reading may take: the kernel visits its whole table of connections."""
MAX_KNOWN_NS = 30_000_000_000
"""Time after which the owners of connections are looked for again."""
_TABLES = ("tcp", "tcp6")
_ESTABLISHED = b"01"
_LOOPBACK = (b"0100007F", b"0" * 24 + b"01000000", b"0" * 16 + b"FFFF00000100007F")
_REMOTE, _STATE, _QUEUES, _INODE = 2, 3, 4, 9
"""Columns of the tables, see proc_net_tcp in the documentation of the kernel."""


class SendQueueSampler:
    """Sampler of the send queues of the job's TCP connections to other hosts.

    A queue has what was not acknowledged yet, so it is full where the link out of the node is slow.
    Connections of other processes, such as a backup, may fill theirs on a link that is not. It is
    read less often than other sources, since the cost grows with the connections.

    Who has a connection is found when it is first seen with something to send, and again after half
    a minute: the processes of the job may not have been known. Connections of a process whose
    descriptors cannot be read, such as one of another user, do not count.
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
        self._is_of_job: dict[str, bool] = {}  # by socket
        self._known_until_ns = 0
        self._next_ns = 0
        self._next_search_ns = 0
        try:
            read_bytes(self._paths[0])
        except OSError as error:
            raise Unavailable(f"{self._paths[0]} cannot be read: {error.strerror}") from None

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample the sum over all connections; see `Sampler.sample`.

        There is no sample while the owner of a queue is not known.
        """
        if now_ns < self._next_ns:
            return
        start_ns = time.thread_time_ns()
        connections = [c for path in self._paths for c in _read_connections(path)]
        self._next_ns = now_ns + _pause_after(start_ns)
        queues = [connection for connection in connections if connection.unsent_bytes]
        if now_ns >= self._known_until_ns:
            self._is_of_job = {}
            self._known_until_ns = now_ns + MAX_KNOWN_NS
        if any(queue.socket not in self._is_of_job for queue in queues):
            if now_ns < self._next_search_ns:
                return
            self._search({connection.socket for connection in connections}, now_ns)
        yield Sample(METRIC, "", sum(q.unsent_bytes for q in queues if self._is_of_job[q.socket]))

    def _search(self, sockets: set[str], now_ns: int) -> None:
        start_ns = time.thread_time_ns()
        self._job.refresh(now_ns)
        job_sockets = {s for pid in self._job.processes for s in self._read_descriptors(pid)}
        self._is_of_job = {socket: socket in job_sockets for socket in sockets}
        self._next_search_ns = now_ns + _pause_after(start_ns)

    def _read_descriptors(self, pid: int) -> Iterator[str]:
        """Yield what the descriptors of a process refer to: of a socket `socket:[INODE]`."""
        directory = f"{self._proc}/{pid}/fd"
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            for descriptor in list_names(directory):
                with contextlib.suppress(FileNotFoundError):
                    yield os.readlink(f"{directory}/{descriptor}")  # noqa: PTH115 - a third of the time


class _Connection(NamedTuple):
    """Connection to another host."""

    socket: str
    """What descriptors of the connection refer to."""
    unsent_bytes: int


def _read_connections(path: str) -> Iterator[_Connection]:
    try:
        lines = read_bytes(path).splitlines()[1:]
    except FileNotFoundError:  # IPv6 may be off
        return
    for line in lines:
        fields = line.split(None, _INODE + 1)
        remote = fields[_REMOTE].partition(b":")[0]
        if fields[_STATE] == _ESTABLISHED and remote not in _LOOPBACK:
            unsent_bytes = int(fields[_QUEUES].partition(b":")[0], 16)
            yield _Connection(f"socket:[{fields[_INODE].decode()}]", unsent_bytes)


def _pause_after(start_ns: int) -> int:
    """Return the nanoseconds after which what began at a CPU time may be repeated."""
    return round((time.thread_time_ns() - start_ns) / MAX_COST_RATIO)
