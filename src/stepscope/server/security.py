"""Access control: tokens, hosts, origins, headers, and the login page.

There are three threats. Another user of the network or of this machine: every request needs the
token, on loopback too, because all users of a login node share it. A page of another origin in the
user's own browser: POST, and everything below `/api`, is rejected if the browser reports another
origin. A page whose host name resolves to this machine (DNS rebinding): the Host header must be one
of the machine's own names.

Starlette's TrustedHostMiddleware does not fit: it has no rule for all addresses of the loopback
network, or for any address on a server of all interfaces, and does not parse IPv6 hosts.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import socket
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepscope.server.settings import Settings, is_loopback

TOKEN_PARAMETER = "token"  # noqa: S105 - a name
WRONG_TOKEN_DELAY_S = 0.3
"""Delay of the response to a wrong token, against guessing."""
LOGIN_PATH = "/api/login"
MAX_TOKEN_LENGTH = 1000
"""Length to which a received token or cookie is cut before it is compared."""
HEADERS = {
    "content-security-policy": "default-src 'self'; script-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self' blob:; object-src 'none'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # without a referrer, the origin of a form is "null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
"""Headers of every response. Inline styles are allowed: libraries set them on the elements they
draw."""


class _Host(NamedTuple):
    """Host and port of a Host header."""

    name: str
    port: int | None


class Guard:
    """Middleware that rejects forbidden requests and adds the security headers to every response.

    Args:
        app: the guarded application.
        settings: settings of the server, with the port on which it listens.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._names = {"localhost", settings.host.lower(), *map(str.lower, settings.allowed_hosts)}
        self._listens_everywhere = _is_wildcard(settings.host)
        if self._listens_everywhere:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        self._cookie = _cookie_name(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = await self._refuse(Request(scope, receive))
        await (refusal or self._app)(scope, receive, send_with_headers)

    async def _refuse(self, request: Request) -> Response | None:
        """Create the response to a forbidden request; None for an allowed one."""
        host = _parse_host(request.headers.get("host", ""))
        if host is None or not self._is_own_name(host.name):
            return error_response(
                403, "The Host header is not allowed. Add it with `stepscope ui --allow-host NAME`."
            )
        is_api = request.scope["path"].startswith("/api/")
        if (is_api or request.method == "POST") and not _is_same_origin(request.headers, host):
            return error_response(403, "Requests from pages of other origins are not allowed.")
        token = self._settings.token
        if token is None:
            return None
        if self._has_token(request, token):
            return _redirect_without_token(request)
        if request.scope["path"] == LOGIN_PATH and request.method == "POST":
            return None
        # Files of the front end are public; a page whose cookie has expired needs them to say so.
        if request.scope["path"].startswith("/assets/"):
            return None
        return await self._log_in(request)

    def _is_own_name(self, name: str) -> bool:
        if name in self._names or is_loopback(name):
            return True
        # DNS rebinding needs a name, so that an address in the Host header is safe.
        return self._listens_everywhere and _is_address(name)

    def _has_token(self, request: Request, token: str) -> bool:
        """Check for the token, or for the cookie that replaces it."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and is_same_secret(bearer, token):
            return True
        cookie = request.cookies.get(self._cookie)
        return cookie is not None and is_same_secret(cookie, _cookie_value(token))

    async def _log_in(self, request: Request) -> Response:
        is_api = request.scope["path"].startswith("/api/")
        token = request.query_params.get(TOKEN_PARAMETER)
        if request.method == "GET" and not is_api and token is not None:
            if await reject_token(token, self._settings):
                return HTMLResponse(login_page(failed=True), 401)
            return add_cookie(RedirectResponse(_url_without_token(request), 303), self._settings)
        if is_api or request.method != "GET":
            return error_response(401, "Log in with the token that `stepscope ui` has printed.")
        return HTMLResponse(login_page(), 401)


def add_cookie(response: Response, settings: Settings) -> Response:
    """Add the cookie that replaces the token in further requests."""
    if settings.token is not None:
        response.set_cookie(
            _cookie_name(settings),
            _cookie_value(settings.token),
            httponly=True,
            samesite="strict",
            secure=False,  # TLS is the task of a proxy in front of the server
            path="/",
        )
    return response


async def reject_token(token: str, settings: Settings) -> bool:
    """Check a token; returns True, after a delay, if it is wrong."""
    if settings.token is None or is_same_secret(token, settings.token):
        return False
    await asyncio.sleep(WRONG_TOKEN_DELAY_S)
    return True


def error_response(status: int, sentence: str) -> JSONResponse:
    """Create a response without a payload."""
    return JSONResponse({"error": sentence}, status, {"cache-control": "no-store"})


def is_same_secret(received: str, secret: str) -> bool:
    """Compare in a time that does not depend on the position of the first difference."""
    return hmac.compare_digest(
        received[:MAX_TOKEN_LENGTH].encode("utf-8", "replace"), secret.encode("utf-8", "replace")
    )


def _cookie_name(settings: Settings) -> str:
    """Name with the port, because browsers share cookies between the ports of a host."""
    return f"stepscope-{settings.port}"


def _cookie_value(token: str) -> str:
    """Hash of the token: users may have chosen a token that they use elsewhere as well."""
    return hashlib.sha256(f"stepscope cookie {token}".encode()).hexdigest()


def _redirect_without_token(request: Request) -> Response | None:
    """Redirect a client with a cookie that uses the printed address again."""
    if request.method == "GET" and TOKEN_PARAMETER in request.query_params:
        return RedirectResponse(_url_without_token(request), 303)
    return None


def _url_without_token(request: Request) -> str:
    """Path and query of the request without the token. A path that starts with two slashes would
    lead to another server."""
    path = "/" + quote(request.scope["path"].lstrip("/\\"), safe="/:@!$&'()*+,;=~-._")
    parameters = [
        (name, value)
        for name, value in request.query_params.multi_items()
        if name != TOKEN_PARAMETER
    ]
    return f"{path}?{urlencode(parameters)}" if parameters else path


def _parse_host(header: str) -> _Host | None:
    """Parse a Host header; None if it is invalid."""
    try:
        parts = urlsplit(f"//{header}")
        if not parts.hostname or parts.path or parts.query or parts.username is not None:
            return None
        return _Host(parts.hostname.lower().rstrip("."), parts.port)
    except ValueError:
        return None


def _is_same_origin(headers: Headers, host: _Host) -> bool:
    """Check the headers that browsers add; other clients send none."""
    if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    parts = urlsplit(origin)
    return parts.scheme in {"http", "https"} and _parse_host(parts.netloc) == host


def _is_wildcard(host: str) -> bool:
    return _is_address(host) and ipaddress.ip_address(host).is_unspecified


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>stepscope: log in</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ display: grid; place-items: center; min-height: 90vh; margin: 0; }}
main {{ max-width: 26rem; padding: 1.5rem; }}
h1 {{ font-size: 1.25rem; margin: 0 0 .5rem; }}
input, button {{ font: inherit; padding: .5rem .75rem; box-sizing: border-box; width: 100%; }}
button {{ margin-top: .75rem; }}
[role=alert] {{ font-weight: 600; }}
</style>
</head>
<body>
<main>
<h1>stepscope</h1>
<p>Log in with the token that <code>stepscope ui</code> printed when it was started.</p>
{error}<form method="post" action="/api/login">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button type="submit">Log in</button>
</form>
</main>
</body>
</html>
"""
_ERROR = '<p role="alert">The token is not correct.</p>\n'


def login_page(*, failed: bool = False) -> str:
    """Create the page, with an error message after a failed attempt."""
    return _PAGE.format(error=_ERROR if failed else "")
