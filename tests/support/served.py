"""Server of a test, which gets requests over real HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import uvicorn
from msgspec.structs import replace

from stepscope.server.process import listen, make_server
from stepscope.server.settings import Settings

TIMEOUT_S = 120


class ServerResponse(NamedTuple):
    """Response of the server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """Sentence of an error."""
        sentence = self.json["error"]
        assert " " in sentence
        return str(sentence)


class Served:
    """Running server."""

    def __init__(self, settings: Settings, server: uvicorn.Server) -> None:
        self.settings = settings
        self._server = server

    @property
    def authority(self) -> str:
        return f"{self.settings.host}:{self.settings.port}"

    @property
    def pending_count(self) -> int:
        """Number of requests without a response so far."""
        return len(self._server.server_state.tasks)

    def request(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        **query: str,
    ) -> ServerResponse:
        """Send one request on a connection of its own. The path is sent unchanged."""
        connection = self.connect()
        try:
            target = f"{path}?{urlencode(query)}" if query else path
            connection.putrequest(method, target, skip_host="Host" in (headers or {}))
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            lower_headers = {name.lower(): value for name, value in response.getheaders()}
            return ServerResponse(response.status, lower_headers, response.read())
        finally:
            connection.close()

    def post(self, path: str, content: Any, **headers: str) -> ServerResponse:
        """Post JSON."""
        body = json.dumps(content).encode()
        all_headers = {"Content-Type": "application/json"} | headers
        return self.request(path, method="POST", headers=all_headers, body=body)

    def view(self, name: str, run: str, **options: str) -> ServerResponse:
        return self.request(f"/api/views/{name}", run=run, **options)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.settings.host, self.settings.port, timeout=TIMEOUT_S)

    def events(self, path: str, headers: dict[str, str] | None = None, **query: str) -> Events:
        """Open a stream of server-sent events."""
        connection = self.connect()
        connection.request("GET", f"{path}?{urlencode(query)}", headers=headers or {})
        return Events(connection)


class Events:
    """Stream of server-sent events."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self.response = connection.getresponse()

    def next(self) -> tuple[str, int]:
        """Read the kind and the revision of the next event."""
        fields: dict[str, str] = {}
        while True:
            line = self.response.readline().decode()
            if line == "":
                raise EOFError("the stream has ended")
            if line == "\n" and "event" in fields:
                return fields["event"], json.loads(fields["data"])["revision"]
            name, _, value = line.rstrip("\n").partition(": ")
            fields[name] = value

    def close(self) -> None:
        self._connection.close()


@contextmanager
def serving(root: Path | str, **fields: Any) -> Iterator[Served]:
    """Serve a directory or a URL until the block ends."""
    settings = Settings(root=root.resolve() if isinstance(root, Path) else root, **fields)
    listener = listen(settings.host, settings.port)
    settings = replace(settings, port=listener.getsockname()[1])
    started = threading.Event()
    server = make_server(settings, started.set)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        assert started.wait(TIMEOUT_S)
        yield Served(settings, server)
    finally:
        server.should_exit = True
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
