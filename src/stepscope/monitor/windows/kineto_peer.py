"""Daemon of PyTorch's libkineto, which polls it for its configuration.

A datagram socket named `dynolog`, in a private directory or abstract. A message is a native size_t,
the length of the payload, then a type of 32 bytes padded with zeros, then the payload:

    ctxt   int32 device, int32 pid, int64 job                   registration of a process
           response: the same type, int32 number of processes on the device
    req    int32 types, int32 n, int64 job, n times int32       request for a configuration
           (pids: the process itself, then its ancestors)
           response: the same type, text of `KEY=value` lines, empty for none

Messages of other users are ignored: the kernel attaches the credentials of its sender to each
(SO_PASSCRED; SO_PEERCRED, which names one peer, is for connected sockets only).

libkineto waits 50 ms for a response, and takes a later one for that to its next request. Therefore
a dedicated thread responds, with a higher priority than the rest of the monitor.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from pathlib import Path

SOCKET_NAME = "dynolog"
ABSTRACT_ADDRESS = f"\0{SOCKET_NAME}\0"
"""Address without a file, where KINETO_IPC_SOCKET_DIR is not set; libkineto ends it with a zero."""
ACTIVITIES = 2
"""Bit of a request's types: the process can start a trace. Not set during a trace."""
MAX_MESSAGE_BYTES = 65536
MAX_PID_COUNT = 4096

_HEADER = struct.Struct("=Q32s")
_CONTEXT = struct.Struct("=iiq")
_REQUEST = struct.Struct("=iiq")
_CREDENTIALS = struct.Struct("=iII")
"""PID, user and group of a sender, as in the kernel's `struct ucred`."""


class KinetoPeer:
    """Daemon for libkineto in every process of the job.

    Args:
        directory: directory of the socket; the socket of an earlier monitor is replaced. None for
            the abstract socket that libkineto uses by default.

    Raises:
        OSError: the socket cannot be created.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / SOCKET_NAME
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.bind(address_of(directory))
        except OSError:
            self._socket.close()
            raise
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.setblocking(False)
        self._stop_reader, self._stop_writer = os.pipe()
        self._lock = threading.Lock()
        self._offers: dict[int, str] = {}
        self._polls: dict[int, tuple[float, float]] = {}
        self._idle_polls: dict[int, float] = {}
        self._thread = threading.Thread(target=self._serve, name="libkineto", daemon=True)
        self._thread.start()

    def offer(self, pid: int, configuration: str) -> None:
        """Respond to the next request of a process with this configuration."""
        with self._lock:
            self._offers[pid] = configuration

    def withdraw(self, pid: int) -> bool:
        """Withdraw an offer; False if it has been fetched, or there is none."""
        with self._lock:
            return self._offers.pop(pid, None) is not None

    def has_offer(self, pid: int) -> bool:
        """Check whether the process has not fetched its offer yet."""
        with self._lock:
            return pid in self._offers

    def last_poll(self, pid: int) -> float | None:
        """Time of the process's last request, in monotonic seconds; None without any."""
        with self._lock:
            poll = self._polls.get(pid)
        return poll[0] if poll is not None else None

    def poll_interval_s(self, pid: int) -> float | None:
        """Return the seconds between the process's last two requests, or None."""
        with self._lock:
            poll = self._polls.get(pid)
        return poll[1] if poll is not None and poll[1] > 0 else None

    def last_idle_poll(self, pid: int) -> float | None:
        """Time of the process's last request outside a trace, in monotonic seconds, or None."""
        with self._lock:
            return self._idle_polls.get(pid)

    def close(self) -> None:
        """Stop responding."""
        os.close(self._stop_writer)
        self._thread.join()
        os.close(self._stop_reader)
        self._socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._socket.fileno(), self._stop_reader], [], [])
            if self._stop_reader in ready:
                return
            try:
                data, ancillary, _, sender = self._socket.recvmsg(
                    MAX_MESSAGE_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size)
                )
            except OSError:
                continue
            response = self.respond(data) if _is_own_user(ancillary) else None
            if response is not None and sender:
                try:
                    self._socket.sendto(response, sender)
                except OSError:  # the process has ended, or does not read
                    pass

    def respond(self, data: bytes) -> bytes | None:
        """Create the response to one message; None if it is not one of libkineto."""
        try:
            size, padded = _HEADER.unpack_from(data)
            payload = data[_HEADER.size :]
            kind = padded.rstrip(b"\0")
            if size != len(payload):
                return None
            if kind == b"ctxt":
                _CONTEXT.unpack(payload)
                text = struct.pack("=i", 1)
            elif kind == b"req":
                text = self._configuration(payload).encode()
            else:
                return None
        except struct.error:
            return None
        return _HEADER.pack(len(text), kind) + text

    def _configuration(self, payload: bytes) -> str:
        types, count, _job = _REQUEST.unpack_from(payload)
        if not 0 < count <= MAX_PID_COUNT:
            return ""
        pid = int(struct.unpack_from(f"={count}i", payload, _REQUEST.size)[0])
        now_s = time.monotonic()
        with self._lock:
            previous_s, _ = self._polls.get(pid, (0.0, 0.0))
            self._polls[pid] = now_s, now_s - previous_s if previous_s else 0.0
            if not types & ACTIVITIES:
                return ""
            self._idle_polls[pid] = now_s
            return self._offers.pop(pid, "")


def _is_own_user(ancillary: list[tuple[int, int, bytes]]) -> bool:
    """Check that a message was sent by this user or by root."""
    return any(
        _CREDENTIALS.unpack(data)[1] in {0, os.getuid()}
        for level, kind, data in ancillary
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)
    )


def address_of(directory: Path | None) -> str:
    """Return the address of the daemon with its socket in a directory; None for no directory."""
    return ABSTRACT_ADDRESS if directory is None else str(directory / SOCKET_NAME)


def open_peer(directory: str | None) -> KinetoPeer | None:
    """Open the daemon in a directory; None without a directory, or if it cannot be opened."""
    if directory is None:
        return None
    try:
        return KinetoPeer(Path(directory) if directory else None)
    except OSError:  # then windows are recorded by the framework's profiler
        return None
