"""A server of the test's own, asked over real HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from stepscope.server.process import listen, make_server
from stepscope.server.settings import Settings

PATIENCE_S = 30


class Answered(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """Why there is no payload."""
        sentence = self.json["error"]
        assert " " in sentence
        return str(sentence)


class Served:
    """A server that runs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def authority(self) -> str:
        return f"{self.settings.host}:{self.settings.port}"

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        **query: str,
    ) -> Answered:
        """One request on a connection of its own. The path is sent as it is."""
        connection = self.connect()
        try:
            target = f"{path}?{urlencode(query)}" if query else path
            connection.putrequest(method, target, skip_host="Host" in (headers or {}))
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answered(answer.status, found, answer.read())
        finally:
            connection.close()

    def post(self, path: str, content: Any, **headers: str) -> Answered:
        """A body of JSON."""
        said = {"Content-Type": "application/json"} | headers
        return self.ask(path, method="POST", headers=said, body=json.dumps(content).encode())

    def view(self, name: str, run: str, **options: str) -> Answered:
        return self.ask(f"/api/views/{name}", run=run, **options)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(
            self.settings.host, self.settings.port, timeout=PATIENCE_S
        )

    def events(self, path: str, headers: dict[str, str] | None = None, **query: str) -> Events:
        """A stream of Server-Sent Events."""
        connection = self.connect()
        connection.request("GET", f"{path}?{urlencode(query)}", headers=headers or {})
        return Events(connection)


class Events:
    """What a listener hears."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self.answer = connection.getresponse()

    def next(self) -> tuple[str, int]:
        """Kind and revision of the next event."""
        fields: dict[str, str] = {}
        while True:
            line = self.answer.readline().decode()
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
    """A server of a directory or a URL, until the block ends."""
    settings = Settings(root=root.resolve() if isinstance(root, Path) else root, **fields)
    listener = listen(settings.host, settings.port)
    settings = replace(settings, port=listener.getsockname()[1])
    ready = threading.Event()
    server = make_server(settings, ready.set)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield Served(settings)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
