"""One server from its start to Ctrl-C."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import replace

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from stepscope.errors import UsageError
from stepscope.server.app import App
from stepscope.server.settings import FIRST_PORT, Settings

MOST_PORTS = 100
"""Ports that are tried where nobody asked for one."""
MOST_CONNECTIONS = 500
HEADER_S = 10.0
"""How long the head of a connection's first request may take."""
END_S = 3
"""How long requests may go on after Ctrl-C."""


def serve(settings: Settings, started: Callable[[Settings], None]) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Args:
        settings: of the server.
        started: called once it listens, with the port that it listens on.

    Raises:
        UsageError: the address cannot be had.
    """
    listener = listen(settings.host, settings.port)
    settings = replace(settings, port=listener.getsockname()[1])
    server = make_server(settings, lambda: started(settings))
    try:
        asyncio.run(server.serve(sockets=[listener]))
    except KeyboardInterrupt:
        pass


def make_server(settings: Settings, started: Callable[[], None]) -> uvicorn.Server:
    """The server of a port that somebody listens on already.

    Args:
        settings: of the server.
        started: called once it answers.
    """
    app = App(settings)
    config = uvicorn.Config(
        app.guarded,
        http=_PatientProtocol,
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=END_S,
    )
    return _Server(config, app.hang_up, started)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; on the first free port where it may be any.

    Raises:
        UsageError: the port is taken, or the address is none of this machine.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UsageError(f"{host} is no address of this machine: {error.strerror}.") from None
    wanted = [port] if port else [*range(FIRST_PORT, FIRST_PORT + MOST_PORTS), 0]
    for each in wanted:
        try:
            return _bound(family, (address[0], each, *address[2:]))
        except OSError as error:
            if error.errno == errno.EADDRINUSE and each != wanted[-1]:
                continue
            if error.errno == errno.EADDRINUSE:
                said = f"The port {port} of {host} is taken; name another one with --port."
            else:
                said = f"Nothing can listen on {host} port {each}: {error.strerror}."
            raise UsageError(said) from None
    raise AssertionError("unreachable")


def url_of(settings: Settings, *, token: bool = True) -> str:
    """What to open in a browser."""
    host = settings.host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        if address.is_unspecified:
            host = socket.gethostname()
        elif address.version == 6:
            host = f"[{host}]"
    query = f"?token={settings.token}" if token and settings.token is not None else ""
    return f"http://{host}:{settings.port}/{query}"


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    # With the protocol named, asyncio sends what it has at once. Otherwise every second answer on a
    # connection waits 40 ms until the browser has acknowledged the headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Without this the port of a server that has just ended stays taken for a minute. On Linux
        # it takes no port away from one that listens.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """Says when it listens, and hangs up on those that only listen when it ends."""

    def __init__(
        self, config: uvicorn.Config, hang_up: Callable[[], None], started: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._hang_up = hang_up
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._hang_up()
        await super().shutdown(sockets)


class _PatientProtocol(H11Protocol):
    """Hangs up on who connects and says nothing for too long."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEADER_S, self._hang_up_if_silent)

    def _hang_up_if_silent(self) -> None:
        if not self.cycle and not self.transport.is_closing():
            self.transport.close()
