"""Answers in fewer bytes, for whoever can read them so and is far enough away to gain by it.

The front end's scripts are compressed when they are built; see `static`. A payload is, fast rather
than well, for another machine and where it is larger than a few packets: on this one the browser
would wait for the compressor, which takes 45 ms for a megabyte, longer than for the bytes. Streams
of events never are: each event must leave at once.
"""

from __future__ import annotations

import asyncio
import gzip

from starlette.requests import Request
from starlette.responses import Response

from stepscope.server.settings import is_loopback

WORTH_BYTES = 8_000
"""Of a payload."""
VARIES = {"vary": "accept-encoding"}
GZIPPED = VARIES | {"content-encoding": "gzip"}
_FAST = 1


def takes_gzip(request: Request) -> bool:
    """Whether a browser says that it can read gzip; `gzip;q=0` says that it cannot."""
    said = ",".join(request.headers.getlist("accept-encoding"))
    for each in said.split(","):
        coding, weighed, quality = each.replace(" ", "").lower().partition(";q=")
        if coding == "gzip":
            return not weighed or quality.strip("0.") != ""
    return False


async def payload(request: Request, body: bytes) -> Response:
    """An answer of JSON."""
    headers = {"cache-control": "no-store"} | VARIES
    far = request.client is not None and not is_loopback(request.client.host)
    if far and len(body) > WORTH_BYTES and takes_gzip(request):
        body = await asyncio.to_thread(gzip.compress, body, _FAST, mtime=0)
        headers |= GZIPPED
    return Response(body, media_type="application/json", headers=headers)
