"""Life of one server, from its start to Ctrl-C."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Callable

import uvicorn
from msgspec.structs import replace
from uvicorn.protocols.http.h11_impl import H11Protocol

from stepscope import errors
from stepscope.server.app import App
from stepscope.server.settings import FIRST_PORT, Settings

MAX_PORTS = 100
"""Number of ports to try if none was requested."""
MAX_CONNECTIONS = 500
HEADER_TIMEOUT_S = 10.0
"""Time for the headers of the first request of a connection to arrive."""
SHUTDOWN_TIMEOUT_S = 3
"""Time that requests have to finish after Ctrl-C."""


def serve(settings: Settings, on_start: Callable[[Settings], None]) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Args:
        settings: settings of the server.
        on_start: called when the server listens, with the settings that have its port.

    Raises:
        UsageError: the server cannot listen on the address.
    """
    listener = listen(settings.host, settings.port)
    settings = replace(settings, port=listener.getsockname()[1])
    server = make_server(settings, lambda: on_start(settings))
    try:
        asyncio.run(server.serve(sockets=[listener]))
    except KeyboardInterrupt:
        pass


def make_server(settings: Settings, on_start: Callable[[], None]) -> uvicorn.Server:
    """Create the server for a socket that listens already.

    Args:
        settings: settings of the server.
        on_start: called when the server accepts requests.
    """
    app = App(settings)
    config = uvicorn.Config(
        app.guarded,
        http=_TimeoutProtocol,
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
    )
    return _Server(config, app.end_streams, on_start)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; on the first free port if `port` is 0.

    Raises:
        UsageError: the port is in use, or the address does not belong to this machine.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise errors.UsageError(
            f"{host} is not an address of this machine: {error.strerror}."
        ) from None
    ports = [port] if port else [*range(FIRST_PORT, FIRST_PORT + MAX_PORTS), 0]
    for candidate in ports:
        try:
            return _open_listener(family, (address[0], candidate, *address[2:]))
        except OSError as error:
            if error.errno == errno.EADDRINUSE and candidate != ports[-1]:
                continue
            if error.errno == errno.EADDRINUSE:
                message = f"Port {port} of {host} is in use. Choose another one with --port."
            else:
                message = f"Cannot listen on {host} port {candidate}: {error.strerror}."
            raise errors.UsageError(message) from None
    raise AssertionError("unreachable")


def url_of(settings: Settings, *, token: bool = True) -> str:
    """URL of the server for a browser."""
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


def _open_listener(family: int, address: tuple[object, ...]) -> socket.socket:
    # asyncio sets TCP_NODELAY only on sockets that name their protocol. Without it every second
    # response on a connection waits 40 ms until the browser has acknowledged the headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Without this option the port stays in use for a minute after the server has ended. On
        # Linux the option does not allow two listeners on one port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """Server with a callback at its start, which ends event streams before it waits for requests.

    The lifespan events of ASGI do not fit: the first precedes listening, the last follows the end
    of all requests.
    """

    def __init__(
        self, config: uvicorn.Config, end_streams: Callable[[], None], on_start: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._end_streams = end_streams
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_streams()
        await super().shutdown(sockets)


class _TimeoutProtocol(H11Protocol):
    """HTTP protocol that closes connections without a request after a timeout."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEADER_TIMEOUT_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if not self.cycle and not self.transport.is_closing():
            self.transport.close()
