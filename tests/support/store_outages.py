"""A relay between a store's client and its server that drops, delays or refuses requests.

It forwards HTTP/1.1 requests one connection at a time and reads each request before it decides, so
that a test can cut a connection before the server has the request, or after it has acted on it.
"""

from __future__ import annotations

import http.client
import http.server
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from urllib.parse import urlsplit


class Fault(StrEnum):
    """Fault of a request."""

    NONE = "none"
    UNAVAILABLE = "503"
    THROTTLED = "429"
    FULL = "507"
    DENIED = "403"
    CUT_BEFORE = "cut before"
    """The connection ends before the server has the request."""
    CUT_AFTER = "cut after"
    """The server acts on the request, and the connection ends before the answer."""


_ANSWERS = {
    Fault.UNAVAILABLE: (503, b"<Error><Code>SlowDown</Code></Error>"),
    Fault.THROTTLED: (429, b"<Error><Code>TooManyRequests</Code></Error>"),
    Fault.FULL: (507, b"<Error><Code>XMinioStorageFull</Code></Error>"),
    Fault.DENIED: (403, b"<Error><Code>AccessDenied</Code></Error>"),
}
_Answer = tuple[int, list[tuple[str, str]], bytes]
"""Status, headers and content."""
_HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Outages(http.server.ThreadingHTTPServer):
    """The relay.

    Args:
        target: URL of the server.
        seed: of the random faults.
    """

    daemon_threads = True

    def __init__(self, target: str, seed: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.target = urlsplit(target)
        self.fault = Fault.NONE
        """Fault of every request."""
        self.random_faults: tuple[Fault, ...] = ()
        """Faults of a share of the requests."""
        self.random_share = 0.0
        self.delay_s = 0.0
        self.request_count = 0
        self.fault_count = 0
        self.puts: list[tuple[str, bool]] = []
        """Path of each PUT that the server accepted, and whether it had a condition."""
        self.late_listings: dict[str, _Answer] | None = None
        """Answers that listings keep from now on, by path, as of a store that lists new objects
        late; None where they are true."""
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def choose(self) -> Fault:
        """Choose the fault of the next request."""
        with self._lock:
            self.request_count += 1
            fault = self.fault
            if fault is Fault.NONE and self._random.random() < self.random_share:
                fault = self._random.choice(self.random_faults)
            self.fault_count += fault is not Fault.NONE
            return fault

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connections that the client has ended."""


class _Relay(http.server.BaseHTTPRequestHandler):
    server: Outages
    protocol_version = "HTTP/1.1"

    def _relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.choose()
        time.sleep(self.server.delay_s)
        if fault in _ANSWERS:
            self._answer(_ANSWERS[fault][0], [], _ANSWERS[fault][1])
            return
        if fault is not Fault.CUT_BEFORE:
            status, headers, content = self._find_answer(body)
            if fault is not Fault.CUT_AFTER:
                self._answer(status, headers, content)
                return
        self.close_connection = True

    def _find_answer(self, body: bytes) -> _Answer:
        late = self.server.late_listings
        if late is None or self.command != "GET" or "list-type=" not in self.path:
            return self._forward(body)
        if self.path not in late:
            late[self.path] = self._forward(body)
        return late[self.path]

    def _forward(self, body: bytes) -> _Answer:
        target = self.server.target
        connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_HEADERS}
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if self.command == "PUT" and response.status < 300:
            conditions = {"if-none-match", "if-match", "x-goog-if-generation-match"}
            is_conditional = any(name.lower() in conditions for name in self.headers)
            self.server.puts.append((self.path, is_conditional))
        answer_headers = [(k, v) for k, v in response.getheaders() if k.lower() not in _HOP_HEADERS]
        if self.command == "HEAD":
            answer_headers.append(("Content-Length", response.getheader("Content-Length") or "0"))
        return response.status, answer_headers, content

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _relay  # noqa: N815 - its names for them

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def outages(target: str, seed: int = 0) -> Iterator[Outages]:
    """Run a relay to a server."""
    with Outages(target, seed) as relay:
        thread = threading.Thread(target=relay.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield relay
        finally:
            relay.shutdown()
            thread.join()
