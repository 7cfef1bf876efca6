"""Established TCP connections, asked of the kernel by netlink, see sock_diag(7).

    request  nlmsghdr | inet_diag_req_v2                 all connections of a family, or one
    answer   nlmsghdr | inet_diag_msg | nlattr tcp_info  one message per connection

Structures are those of linux/netlink.h, linux/inet_diag.h and linux/tcp.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST_FLAG, _DUMP_FLAG = 0x1, 0x300
_ERROR_TYPE, _DONE_TYPE = 2, 3
_INFO = 2
"""INET_DIAG_INFO, the attribute with tcp_info."""
_ESTABLISHED = 1
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48s")
_MESSAGE = struct.Struct("=Bxxx48s16xI")
_SEND_QUEUE = struct.Struct("=I")
_SEND_QUEUE_OFFSET = 60
_ATTRIBUTE = struct.Struct("=HH")
_ERROR = struct.Struct("=i")
_NOT_SENT = struct.Struct("=I")
_NOT_SENT_OFFSET = 144
_REMOTE = slice(20, 36)
"""Remote address in the identity of a connection."""
_ENDED = (errno.ENOENT, errno.ESTALE)
"""Errors of a connection that has ended, or whose ports another one has."""
_CHUNK_BYTES = 1 << 16
_LOOPBACK = (
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
        return [row for row in rows if row.identity[_REMOTE] not in _LOOPBACK]

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
        family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 1 << _ESTABLISHED, identity
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
