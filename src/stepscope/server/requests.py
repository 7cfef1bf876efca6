"""Parameters and bodies of requests, cancellation, and compression of responses.

Compression of responses, for clients that accept it and are far enough away to gain by it. The
scripts of the front end are compressed by the build. Payloads are compressed at the fastest level,
only for other machines, and only above the size of a few packets: on this machine the browser would
wait 45 ms per megabyte for the compressor, longer than for the bytes. Starlette's GZipMiddleware
does not fit: it compresses in the event loop, for every client. Event streams are not compressed,
because an event must leave at once.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from stepscope import quantities, schema
from stepscope.server.endpoints import BYTES
from stepscope.server.settings import Limits, is_loopback
from stepscope.server.workers import Refusal, retrieve_exception

T = TypeVar("T")
_CLIENT_CLOSED_REQUEST = 499
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_tasks: set[asyncio.Task[Any]] = set()
"""Strong references to running tasks; the event loop holds only weak ones."""


def query_of(request: Request) -> dict[str, str]:
    """Query parameters of a request."""
    return dict(request.query_params.items())


def take_parameter(query: dict[str, str], name: str) -> str:
    """Remove and return a required query parameter.

    Raises:
        Refusal: it is missing.
    """
    if name not in query:
        raise Refusal(400, f"The query parameter {name!r} is missing.")
    return query.pop(name)


async def read_json(request: Request, as_type: type[T], limits: Limits) -> T:
    """Read and decode a JSON body.

    Raises:
        Refusal: it is not JSON of this type, too large, or too slow.
    """
    _check_content_type(request, _JSON)
    try:
        return msgspec.json.decode(await _read_body(request, limits), type=as_type)
    except schema.MALFORMED_JSON as error:
        raise Refusal(400, f"The body is invalid: {error}.") from None


async def read_chunks(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """Yield the parts of a trace that a page sends.

    Raises:
        Refusal: it is of another type, too large, or too slow.
    """
    # A page of another origin cannot send this type without the permission of the server.
    _check_content_type(request, BYTES)
    size_bytes = 0
    stream = request.stream()
    try:
        while True:
            async with asyncio.timeout(limits.body_s):
                chunk = await anext(stream, None)
            if chunk is None:
                return
            size_bytes += len(chunk)
            if size_bytes > limits.trace_bytes:
                limit = quantities.file_size(limits.trace_bytes)
                raise Refusal(
                    413, f"The trace is larger than {limit}; use `stepscope import FILE -o RUN`."
                )
            yield chunk
    except TimeoutError:
        raise Refusal(400, "The trace did not arrive completely.") from None
    except ClientDisconnect:
        raise _disconnected() from None


async def read_form_or_json(request: Request, limits: Limits) -> tuple[dict[str, str], bool]:
    """Read the fields of a body; the second value is True for the form of a page."""
    if _content_type(request) == _FORM:
        body = await _read_body(request, limits)
        return dict(parse_qsl(body.decode("utf-8", "replace"))), True
    return await read_json(request, dict[str, str], limits), False


async def cancel_on_disconnect(request: Request, response: Coroutine[Any, Any, T]) -> T:
    """Await a response; when the client disconnects, cancel it without awaiting its cleanup.

    Raises:
        Refusal: the client has disconnected.
    """
    task = asyncio.create_task(response)
    disconnect = asyncio.create_task(_wait_for_disconnect(request))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    task.add_done_callback(retrieve_exception)
    try:
        await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
    finally:
        disconnect.cancel()
        task.cancel()
    raise _disconnected()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _read_body(request: Request, limits: Limits) -> bytes:
    body = b""
    try:
        async with asyncio.timeout(limits.body_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body_bytes:
                    raise Refusal(400, f"The body is larger than {limits.body_bytes} bytes.")
    except TimeoutError:
        limit = quantities.duration(1e9 * limits.body_s)
        raise Refusal(400, f"The body did not arrive within {limit}.") from None
    except ClientDisconnect:
        raise _disconnected() from None
    return body


def _disconnected() -> Refusal:
    return Refusal(_CLIENT_CLOSED_REQUEST, "The client has disconnected.")


def _check_content_type(request: Request, content_type: str) -> None:
    if _content_type(request) != content_type:
        raise Refusal(400, f"The content type of the body must be {content_type}.")


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


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
