"""Parameters and bodies of requests, within limits, and cancellation when a client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request

from stepscope.quantities import duration, file_size
from stepscope.schema import MALFORMED_JSON
from stepscope.server.endpoints import BYTES
from stepscope.server.settings import Limits
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
    except MALFORMED_JSON as error:
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
                limit = file_size(limits.trace_bytes)
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
        limit = duration(1e9 * limits.body_s)
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
