"""The monitor as the daemon that PyTorch's libkineto asks for its configuration.

A datagram socket named `dynolog` in a private directory. A message is a native size_t, the length
of the payload, then a type of 32 bytes padded with zeros, then the payload:

    ctxt   int32 device, int32 pid, int64 job                       a process has come
           answer: the same type, int32 number of processes on the device
    req    int32 kinds wanted, int32 n, int64 job, n times int32    what is to be recorded?
           (pids: the process itself, then its ancestors)
           answer: the same type, text of `KEY=value` lines, empty for nothing

libkineto waits 50 ms for an answer and takes a later one for that to its next question, so a
thread answers that does nothing else, and goes before the rest of the monitor.
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
ACTIVITIES = 2
"""Bit of a request's kinds: it can begin a trace. Off while one is under way."""
LARGEST_MESSAGE = 65536
LARGEST_PID_COUNT = 4096

_HEADER = struct.Struct("=Q32s")
_CONTEXT = struct.Struct("=iiq")
_REQUEST = struct.Struct("=iiq")


class KinetoPeer:
    """Answers libkineto in every process of the job.

    Args:
        directory: holds the socket; one that a former monitor left there is replaced.

    Raises:
        OSError: the socket cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / SOCKET_NAME
        self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.bind(str(self._path))
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._stop_reader, self._stop_writer = os.pipe()
        self._lock = threading.Lock()
        self._offers: dict[int, str] = {}
        self._polls: dict[int, tuple[float, float]] = {}
        self._thread = threading.Thread(target=self._serve, name="libkineto", daemon=True)
        self._thread.start()

    def offer(self, pid: int, configuration: str) -> None:
        """Answer the process's next question with this."""
        with self._lock:
            self._offers[pid] = configuration

    def withdraw(self, pid: int) -> bool:
        """Take an offer back; False when it has been fetched, or there was none."""
        with self._lock:
            return self._offers.pop(pid, None) is not None

    def has_offer(self, pid: int) -> bool:
        """True while the process has not fetched what it was offered."""
        with self._lock:
            return pid in self._offers

    def last_poll(self, pid: int) -> float | None:
        """Monotonic seconds of the process's last question, None when it has never asked."""
        with self._lock:
            found = self._polls.get(pid)
        return found[0] if found is not None else None

    def poll_interval_s(self, pid: int) -> float | None:
        """Seconds between its last two questions, None when there were none."""
        with self._lock:
            found = self._polls.get(pid)
        return found[1] if found is not None and found[1] > 0 else None

    def close(self) -> None:
        """Answer nobody any more."""
        os.close(self._stop_writer)
        self._thread.join()
        os.close(self._stop_reader)
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._socket.fileno(), self._stop_reader], [], [])
            if self._stop_reader in ready:
                return
            try:
                data, sender = self._socket.recvfrom(LARGEST_MESSAGE)
            except OSError:
                continue
            answer = self.answer(data)
            if answer is not None and sender:
                try:
                    self._socket.sendto(answer, sender)
                except OSError:  # it has ended meanwhile, or does not read
                    pass

    def answer(self, data: bytes) -> bytes | None:
        """The answer to one message; None for what is none of libkineto's."""
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
        kinds, count, _job = _REQUEST.unpack_from(payload)
        if not 0 < count <= LARGEST_PID_COUNT:
            return ""
        pid = int(struct.unpack_from(f"={count}i", payload, _REQUEST.size)[0])
        now = time.monotonic()
        with self._lock:
            before, _ = self._polls.get(pid, (0.0, 0.0))
            self._polls[pid] = now, now - before if before else 0.0
            return self._offers.pop(pid, "") if kinds & ACTIVITIES else ""


def open_peer(directory: str | None) -> KinetoPeer | None:
    """The peer in this directory; None where there is none to be, or it cannot be made."""
    if directory is None:
        return None
    try:
        return KinetoPeer(Path(directory))
    except OSError:  # windows then come from the framework's profiler
        return None
