"""HTTP for webhooks, with limits on the addresses and redirects that they may lead to.

Services of clouds that hand out the credentials of a machine have link-local addresses. Neither the
owner of a name nor the receiver of a webhook, by a redirect, may direct a request there.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import urllib.error
import urllib.request
from email.message import Message
from typing import IO, Any
from urllib.parse import urlsplit

from stepscope import masking
from stepscope._version import __version__
from stepscope.watch.config import ActionError

_METADATA_ADDRESSES = (
    ipaddress.ip_address("fd00:ec2::254"),  # Amazon
    ipaddress.ip_address("100.100.100.200"),  # Alibaba
)
"""Addresses of metadata services that are not link-local."""


class ForbiddenTargetError(OSError):
    """Address or redirect to which no webhook is sent."""


def post(url: str, content: bytes, timeout_s: float) -> None:
    """Post JSON to a webhook, whose scheme the caller has checked.

    Raises:
        ActionError: the response reports an error, or there is none.
    """
    headers = {"Content-Type": "application/json", "User-Agent": f"stepscope/{__version__}"}
    request = urllib.request.Request(url, content, headers)  # noqa: S310 - the scheme was checked
    try:
        with _OPENER.open(request, timeout=timeout_s) as response:
            response.read(1)
    except urllib.error.HTTPError as error:
        error.close()
        reason = masking.mask_text(str(error.reason))
        raise ActionError(f"the webhook returned {error.code} {reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise ActionError(_describe(error)) from error


def _describe(error: Exception) -> str:
    """Describe an error without the error numbers of the operating system."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    message = cause.strerror if isinstance(cause, OSError) else None
    return message or masking.mask_text(str(cause)) or type(cause).__name__


class _RedirectHandler(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the same scheme, or from http to https."""

    def redirect_request(  # noqa: PLR0917 - the signature of the base class
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage | Message,
        newurl: str,
    ) -> urllib.request.Request | None:
        scheme = urlsplit(newurl).scheme
        if scheme not in {"https", req.type}:
            raise ForbiddenTargetError(f"the webhook redirects from {req.type} to {scheme}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def _connect(
    address: tuple[str, int],
    timeout: float | None = None,
    source_address: tuple[str, int] | None = None,
) -> socket.socket:
    """Connect to an address of a host that is not that of a metadata service.

    The checked address is the one of the connection: a second resolution of the name could have
    another result.
    """
    host, port = address
    resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    candidates = [str(target[4][0]) for target in resolved]
    allowed = [candidate for candidate in candidates if not _is_forbidden(candidate)]
    if not allowed:
        raise ForbiddenTargetError(f"{host} has a link-local address, as metadata services have")
    errors: list[OSError] = []
    for candidate in allowed:
        try:
            return socket.create_connection((candidate, port), timeout, source_address)
        except OSError as error:
            errors.append(error)
    raise errors[0]


def _is_forbidden(text: str) -> bool:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_link_local
    return address.is_link_local or address in _METADATA_ADDRESSES


class _Connection(http.client.HTTPConnection):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._create_connection = _connect  # as http.client's own tests replace it


class _TlsConnection(http.client.HTTPSConnection):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._create_connection = _connect


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _TlsHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TlsConnection, req)


_OPENER = urllib.request.build_opener(_Handler, _TlsHandler, _RedirectHandler)
