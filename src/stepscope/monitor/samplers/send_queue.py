"""Bytes of the job that wait to be sent to other hosts."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence

from stepscope.monitor.samplers.base import Sample, Unavailable, read_bytes
from stepscope.monitor.samplers.processes import JobTree, list_names
from stepscope.monitor.samplers.tcp_diag import Connection, ConnectionSource, TcpDiagnostics

METRIC = "network_unsent_bytes"
MAX_COST_RATIO = 0.001
"""Share of the time that reading may take, and that the search for connections may take."""
_TABLES = ("tcp", "tcp6")
_ESTABLISHED = b"01"
_LOOPBACK = (b"0100007F", b"0" * 24 + b"01000000", b"0" * 16 + b"FFFF00000100007F")
_REMOTE, _STATE, _QUEUES, _INODE = 2, 3, 4, 9
"""Columns of the tables, see proc_net_tcp in the documentation of the kernel."""


class SendQueueSampler:
    """Sampler of the bytes that the job's TCP connections to other hosts have not sent yet.

    There are such bytes where the link out of the node is slow. Those of other processes, such as a
    backup, may wait on a link that is not.

    The connections of the job are searched for as often as their cost permits, some seconds apart;
    without any there is no sample. Connections of a process whose descriptors cannot be read, such
    as one of another user, do not count.
    """

    group = "network"

    def __init__(
        self, job: JobTree, *, proc: str = "/proc", source: ConnectionSource | None = None
    ) -> None:
        """Sample the connections of this network namespace.

        Args:
            job: the job.
            proc: mount point of procfs.
            source: connections; by default of the kernel, by netlink or else from procfs.

        Raises:
            Unavailable: the kernel tells nothing of connections.
        """
        self._job = job
        self._proc = proc
        self._source = source or _choose_source(proc)
        self._connections: Sequence[Connection] = ()
        self._next_ns = 0
        self._next_search_ns = 0

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample the sum over all connections; see `Sampler.sample`."""
        if now_ns >= self._next_search_ns:
            start_ns = time.thread_time_ns()
            self._connections = self._search(now_ns)
            self._next_search_ns = now_ns + _pause_after(start_ns)
        if self._connections and now_ns >= self._next_ns:
            start_ns = time.thread_time_ns()
            self._connections = self._source.read_connections(self._connections)
            self._next_ns = now_ns + _pause_after(start_ns)
            if self._connections:
                yield Sample(METRIC, "", sum(c.unsent_bytes for c in self._connections))

    def _search(self, now_ns: int) -> Sequence[Connection]:
        """Search for the connections of the job."""
        connections = self._source.list_connections()
        if not connections:
            return ()
        self._job.refresh(now_ns)
        sockets = {s for pid in self._job.processes for s in self._read_descriptors(pid)}
        return [c for c in connections if f"socket:[{c.inode}]" in sockets]

    def _read_descriptors(self, pid: int) -> Iterator[str]:
        """Yield what the descriptors of a process refer to: of a socket `socket:[INODE]`."""
        directory = f"{self._proc}/{pid}/fd"
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            for descriptor in list_names(directory):
                with contextlib.suppress(FileNotFoundError):
                    yield os.readlink(f"{directory}/{descriptor}")  # noqa: PTH115 - a third of the time


class TcpTables:
    """Connections in the tables of procfs, whose queues have all that was not acknowledged yet."""

    def __init__(self, proc: str) -> None:
        """Read the tables below a mount point of procfs."""
        self._paths = [f"{proc}/net/{table}" for table in _TABLES]

    def list_connections(self) -> list[Connection]:
        """See `ConnectionSource.list_connections`."""
        return [row for path in self._paths for row in _read_table(path)]

    def read_connections(self, connections: Sequence[Connection]) -> list[Connection]:
        """See `ConnectionSource.read_connections`; costs as much as the list of all."""
        inodes = {connection.inode for connection in connections}
        return [row for row in self.list_connections() if row.inode in inodes]


def _choose_source(proc: str) -> ConnectionSource:
    source = TcpDiagnostics()
    try:
        source.list_connections()
    except OSError:  # a sandbox may refuse it, and the kernel be built without it
        path = f"{proc}/net/{_TABLES[0]}"
        try:
            read_bytes(path)
        except OSError as error:
            raise Unavailable(f"{path} cannot be read: {error.strerror}") from None
        return TcpTables(proc)
    return source


def _read_table(path: str) -> Iterator[Connection]:
    try:
        lines = read_bytes(path).splitlines()[1:]
    except FileNotFoundError:  # IPv6 may be off
        return
    for line in lines:
        fields = line.split(None, _INODE + 1)
        remote = fields[_REMOTE].partition(b":")[0]
        if fields[_STATE] == _ESTABLISHED and remote not in _LOOPBACK:
            unsent_bytes = int(fields[_QUEUES].partition(b":")[0], 16)
            yield Connection(int(fields[_INODE]), unsent_bytes)


def _pause_after(start_ns: int) -> int:
    """Return the nanoseconds after which what began at a CPU time may be repeated."""
    return round((time.thread_time_ns() - start_ns) / MAX_COST_RATIO)
