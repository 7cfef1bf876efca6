"""Bytes of the job that wait to be sent to other hosts, from TCP connections.

Established TCP connections, asked of the kernel by netlink, see sock_diag(7):

    request  nlmsghdr | inet_diag_req_v2                 all connections of a family, or one
    answer   nlmsghdr | inet_diag_msg | nlattr tcp_info  one message per connection

Structures are those of linux/netlink.h, linux/inet_diag.h and linux/tcp.h.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from stepscope.monitor.samplers.base import Sample, Unavailable, read_bytes
from stepscope.monitor.samplers.processes import JobTree, list_names

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


_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST_FLAG, _DUMP_FLAG = 0x1, 0x300
_ERROR_TYPE, _DONE_TYPE = 2, 3
_INFO = 2
"""INET_DIAG_INFO, the attribute with tcp_info."""
_ESTABLISHED_STATE = 1
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48s")
_MESSAGE = struct.Struct("=Bxxx48s16xI")
_SEND_QUEUE = struct.Struct("=I")
_SEND_QUEUE_OFFSET = 60
_ATTRIBUTE = struct.Struct("=HH")
_ERROR = struct.Struct("=i")
_NOT_SENT = struct.Struct("=I")
_NOT_SENT_OFFSET = 144
_REMOTE_ADDRESS = slice(20, 36)
"""Remote address in the identity of a connection."""
_ENDED = (errno.ENOENT, errno.ESTALE)
"""Errors of a connection that has ended, or whose ports another one has."""
_CHUNK_BYTES = 1 << 16
_LOOPBACK_ADDRESSES = (
    socket.inet_aton("127.0.0.1").ljust(16, b"\0"),
    socket.inet_pton(socket.AF_INET6, "::1"),
    socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1"),
)


class Connection(NamedTuple):
    """Connection to another host."""

    inode: int
    unsent_bytes: int
    """Bytes that were not sent yet; before Linux 4.6, that were not acknowledged."""
    family: int = socket.AF_INET
    identity: bytes = b""
    """Addresses, ports, interface and cookie (inet_diag_sockid)."""


class ConnectionSource(Protocol):
    """Source of the connections of this network namespace to other hosts."""

    def list_connections(self) -> list[Connection]:
        """List all connections.

        Raises:
            OSError: the kernel does not answer.
        """
        ...

    def read_connections(self, connections: Sequence[Connection]) -> list[Connection]:
        """Read some connections again, without those that have ended.

        Raises:
            OSError: the kernel does not answer.
        """
        ...


class TcpDiagnostics:
    """Connections by netlink."""

    def list_connections(self) -> list[Connection]:
        """See `ConnectionSource.list_connections`; visits the whole table of connections."""
        families = (socket.AF_INET, socket.AF_INET6)
        with _open() as netlink:
            rows = [row for family in families for row in _ask(netlink, family, b"", _DUMP_FLAG)]
        return [row for row in rows if row.identity[_REMOTE_ADDRESS] not in _LOOPBACK_ADDRESSES]

    def read_connections(self, connections: Sequence[Connection]) -> list[Connection]:
        """See `ConnectionSource.read_connections`; looks each of them up by its hash."""
        rows: list[Connection] = []
        with _open() as netlink:
            for connection in connections:
                try:
                    rows += _ask(netlink, connection.family, connection.identity, 0)
                except OSError as error:
                    if error.errno not in _ENDED:
                        raise
        return [row for row in rows if row.inode]  # one that was closed has no inode any more


def _open() -> socket.socket:
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG)
    netlink.setblocking(False)  # the kernel answers at once
    return netlink


def _ask(netlink: socket.socket, family: int, identity: bytes, flags: int) -> Iterator[Connection]:
    """Yield the connections in the answer to one request."""
    request = _REQUEST.pack(
        family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 1 << _ESTABLISHED_STATE, identity
    )
    length = _HEADER.size + len(request)
    netlink.send(_HEADER.pack(length, _BY_FAMILY, _REQUEST_FLAG | flags, 0, 0) + request)
    while True:
        data = netlink.recv(_CHUNK_BYTES)
        start = 0
        while start < len(data):
            length, kind, *_ = _HEADER.unpack_from(data, start)
            body = data[start + _HEADER.size : start + length]
            if kind in (_ERROR_TYPE, _DONE_TYPE):
                (code,) = _ERROR.unpack_from(body)
                if code < 0:
                    raise OSError(-code, os.strerror(-code))
                return
            yield _parse(body)
            start += _align(length)
        if not flags:
            return


def _parse(body: bytes) -> Connection:
    family, identity, inode = _MESSAGE.unpack_from(body)
    (unsent_bytes,) = _SEND_QUEUE.unpack_from(body, _SEND_QUEUE_OFFSET)
    start = _MESSAGE.size
    while start < len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, start)
        if kind == _INFO and length >= _ATTRIBUTE.size + _NOT_SENT_OFFSET + _NOT_SENT.size:
            offset = start + _ATTRIBUTE.size + _NOT_SENT_OFFSET
            (unsent_bytes,) = _NOT_SENT.unpack_from(body, offset)
        start += _align(length)
    return Connection(inode, unsent_bytes, family, identity)


def _align(length: int) -> int:
    return (length + 3) & ~3
