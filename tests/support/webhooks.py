"""Receiver of webhooks on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """Web server that stores the bodies posted to it.

    `responses` are statuses, one per request, the last one for all further ones; 0 sends no
    response.
    """

    def __init__(self, *responses: int) -> None:
        self.responses = list(responses) or [204]
        self.location: str | None = None
        """Target of a redirect."""
        self.bodies: list[dict[str, Any]] = []
        self._released = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.bodies.append(json.loads(body))
                index = min(len(receiver.bodies), len(receiver.responses)) - 1
                status = receiver.responses[index]
                if not status:
                    receiver._released.wait(60)
                    status = 503
                self.send_response(status)
                if receiver.location is not None:
                    self.send_header("Location", receiver.location)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        serve = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        serve.start()

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def receiving(*responses: int) -> Iterator[Receiver]:
    """Run a receiver for the duration of the context."""
    receiver = Receiver(*responses)
    try:
        yield receiver
    finally:
        receiver.close()
