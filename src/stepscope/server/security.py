"""Who may ask, and what a browser may do with the answers.

Three strangers are kept out. Somebody on the network: on any address but loopback everybody needs
the token. A page of another origin in the user's own browser: POST, and everything below `/api`,
is refused where the browser says that another origin asks. A page that has its own name point to
this machine (DNS rebinding): a request must call the machine by one of its own names.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import socket
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepscope.server.login import login_page
from stepscope.server.settings import Settings, is_loopback

TOKEN_PARAMETER = "token"  # noqa: S105 - a name
WRONG_TOKEN_S = 0.3
"""Whoever guesses tokens waits this long for each."""
LOGIN_PATH = "/api/login"
MOST_CREDENTIALS = 1000
"""Bytes of a cookie or token that is looked at."""
HEADERS = {
    "content-security-policy": "default-src 'self'; script-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self' blob:; object-src 'none'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with none at all, a form's origin is "null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
"""Of every answer. Styles may stand in the page: libraries set them on the elements they draw."""


class _Host(NamedTuple):
    """What a request calls us by."""

    name: str
    port: int | None


class Guard:
    """Lets through what may pass, and puts its headers on every answer.

    Args:
        app: what is behind it.
        settings: of the server; its port is the one that is listened on.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._names = {"localhost", settings.host.lower(), *map(str.lower, settings.allowed_hosts)}
        self._everywhere = _is_wildcard(settings.host)
        if self._everywhere:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        self._cookie = _cookie_name(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = await self._refusal(Request(scope, receive))
        await (refusal or self._app)(scope, receive, send_guarded)

    async def _refusal(self, request: Request) -> Response | None:
        """What is answered instead; None for what may pass."""
        host = _host(request.headers.get("host", ""))
        if host is None or not self._is_ours(host.name):
            return failure(403, "This server is not called so; see stepscope ui --allow-host.")
        api = request.scope["path"].startswith("/api/")
        if (api or request.method == "POST") and not _same_origin(request.headers, host):
            return failure(403, "Pages of other origins may not ask this server.")
        token = self._settings.token
        if token is None or self._knows(request, token):
            return self._without_token(request) if token is not None else None
        if request.scope["path"] == LOGIN_PATH and request.method == "POST":
            return None
        # Files of the front end are no secret; a page whose cookie is gone needs them to say so.
        if request.scope["path"].startswith("/assets/"):
            return None
        return await self._login(request)

    def _is_ours(self, name: str) -> bool:
        if name in self._names or is_loopback(name):
            return True
        # Who calls us by an address has not been sent here by a name of their own.
        return self._everywhere and _is_address(name)

    def _knows(self, request: Request, token: str) -> bool:
        """Whether the request brings the token, or the cookie that it was traded for."""
        scheme, _, said = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and same_secret(said, token):
            return True
        try:
            cookies = SimpleCookie(request.headers.get("cookie", "")[: 8 * MOST_CREDENTIALS])
        except CookieError:
            return False
        held = cookies.get(self._cookie)
        return held is not None and same_secret(held.value, _cookie_value(token))

    def _without_token(self, request: Request) -> Response | None:
        """The address without the token, where somebody uses the printed one again."""
        if request.method == "GET" and TOKEN_PARAMETER in request.query_params:
            return RedirectResponse(_stripped(request), 303)
        return None

    async def _login(self, request: Request) -> Response:
        api = request.scope["path"].startswith("/api/")
        said = request.query_params.get(TOKEN_PARAMETER)
        if request.method == "GET" and not api and said is not None:
            if await wrong_token(said, self._settings):
                return HTMLResponse(login_page(wrong=True), 401)
            return welcome(RedirectResponse(_stripped(request), 303), self._settings)
        if api or request.method != "GET":
            return failure(401, "Log in with the token that stepscope ui has printed.")
        return HTMLResponse(login_page(), 401)


def welcome(response: Response, settings: Settings) -> Response:
    """An answer that lets the browser come back."""
    if settings.token is not None:
        response.set_cookie(
            _cookie_name(settings),
            _cookie_value(settings.token),
            httponly=True,
            samesite="strict",
            secure=False,  # TLS is the matter of a proxy in front of us
            path="/",
        )
    return response


async def wrong_token(said: str, settings: Settings) -> bool:
    """Whether somebody does not know the token. Guessing takes time."""
    if settings.token is None or same_secret(said, settings.token):
        return False
    await asyncio.sleep(WRONG_TOKEN_S)
    return True


def failure(status: int, sentence: str) -> JSONResponse:
    """An answer that is no payload."""
    return JSONResponse({"error": sentence}, status, {"cache-control": "no-store"})


def same_secret(said: str, secret: str) -> bool:
    """Whether they are equal, in a time that says nothing of where they differ."""
    return hmac.compare_digest(
        said[:MOST_CREDENTIALS].encode("utf-8", "replace"), secret.encode("utf-8", "replace")
    )


def _cookie_name(settings: Settings) -> str:
    """One of its own for each server: cookies do not know ports."""
    return f"stepscope-{settings.port}"


def _cookie_value(token: str) -> str:
    """Not the token itself: that opens every door of whoever chose it."""
    return hashlib.sha256(f"stepscope cookie {token}".encode()).hexdigest()


def _stripped(request: Request) -> str:
    """The address asked for, without the token. A path that begins with two slashes would name
    another server."""
    path = "/" + quote(request.scope["path"].lstrip("/\\"), safe="/:@!$&'()*+,;=~-._")
    kept = [
        (name, value)
        for name, value in parse_qsl(
            request.scope["query_string"].decode("latin-1"), keep_blank_values=True
        )
        if name != TOKEN_PARAMETER
    ]
    return f"{path}?{urlencode(kept)}" if kept else path


def _host(header: str) -> _Host | None:
    """Name and port of a Host header; None for one that is no such thing."""
    try:
        parts = urlsplit(f"//{header}")
        if not parts.hostname or parts.path or parts.query or parts.username is not None:
            return None
        return _Host(parts.hostname.lower().rstrip("."), parts.port)
    except ValueError:
        return None


def _same_origin(headers: Headers, host: _Host) -> bool:
    """Whether the asking page is ours, by what the browser says; other clients say nothing."""
    if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    parts = urlsplit(origin)
    return parts.scheme in {"http", "https"} and _host(parts.netloc) == host


def _is_wildcard(host: str) -> bool:
    return _is_address(host) and ipaddress.ip_address(host).is_unspecified


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
