"""Compression of responses, for clients that accept it and are far enough away to gain by it.

The scripts of the front end are compressed by the build; see `static`. Payloads are compressed at
the fastest level, only for other machines, and only above the size of a few packets: on this
machine the browser would wait 45 ms per megabyte for the compressor, longer than for the bytes.
Starlette's GZipMiddleware does not fit: it compresses in the event loop, for every client. Event
streams are not compressed, because an event must leave at once.
"""

from __future__ import annotations

import asyncio
import gzip

from starlette.requests import Request
from starlette.responses import Response

from stepscope.server.settings import is_loopback

MIN_BYTES = 8_000
"""Minimum size of a payload that is compressed."""
VARY = {"vary": "accept-encoding"}
GZIP_HEADERS = VARY | {"content-encoding": "gzip"}
_FASTEST = 1


def accepts_gzip(request: Request) -> bool:
    """Check whether a client accepts gzip; `gzip;q=0` means that it does not."""
    for item in ",".join(request.headers.getlist("accept-encoding")).split(","):
        coding, has_quality, quality = item.replace(" ", "").lower().partition(";q=")
        if coding == "gzip":
            return not has_quality or quality.strip("0.") != ""
    return False


async def json_response(request: Request, body: bytes) -> Response:
    """Create a response of encoded JSON."""
    headers = {"cache-control": "no-store"} | VARY
    is_remote = request.client is not None and not is_loopback(request.client.host)
    if is_remote and len(body) > MIN_BYTES and accepts_gzip(request):
        body = await asyncio.to_thread(gzip.compress, body, _FASTEST, mtime=0)
        headers |= GZIP_HEADERS
    return Response(body, media_type="application/json", headers=headers)
