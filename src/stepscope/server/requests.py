"""What a request brings, within limits, and waiting for an answer only while somebody wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request

from stepscope.server.settings import Limits
from stepscope.server.workers import Refusal

T = TypeVar("T")
_CLIENT_GONE = 499
"""A status that nobody will read."""
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_winding_up: set[asyncio.Task[Any]] = set()


def asked(request: Request) -> dict[str, str]:
    """What stands in the address."""
    return dict(request.query_params.items())


def named(given: dict[str, str], name: str) -> str:
    """One of these, which is taken out.

    Raises:
        Refusal: it is missing.
    """
    if name not in given:
        raise Refusal(400, f"The address must say {name}=…")
    return given.pop(name)


async def json_body(request: Request, as_type: type[T], limits: Limits) -> T:
    """The body of a request.

    Raises:
        Refusal: it is no JSON, too large, or too slow.
    """
    if _content_type(request) != _JSON:
        raise Refusal(400, f"Send the body as {_JSON}.")
    try:
        return msgspec.json.decode(await _body(request, limits), type=as_type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refusal(400, f"The body is not what was expected: {error}.") from None


async def form_or_json(request: Request, limits: Limits) -> tuple[dict[str, str], bool]:
    """Fields of a body, and whether a form in a page sent them."""
    if _content_type(request) == _FORM:
        body = await _body(request, limits)
        return dict(parse_qsl(body.decode("utf-8", "replace"))), True
    return await json_body(request, dict[str, str], limits), False


async def while_wanted(request: Request, answering: Coroutine[Any, Any, T]) -> T:
    """What comes of it. When the browser hangs up it is cancelled, and winds up by itself.

    Raises:
        Refusal: nobody waits any more.
    """
    answer = asyncio.create_task(answering)
    gone = asyncio.create_task(_hung_up(request))
    _winding_up.add(answer)
    answer.add_done_callback(_forget)
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
    finally:
        gone.cancel()
        answer.cancel()
    raise Refusal(_CLIENT_GONE, "Nobody waits for the answer any more.")


def _forget(answer: asyncio.Task[Any]) -> None:
    _winding_up.discard(answer)
    if not answer.cancelled():
        answer.exception()  # whoever waited has seen it, and nobody else wants to


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request, limits: Limits) -> bytes:
    body = b""
    try:
        async with asyncio.timeout(limits.body_s):
            async for piece in request.stream():
                body += piece
                if len(body) > limits.body_bytes:
                    raise Refusal(400, f"The body may have {limits.body_bytes} bytes.")
    except TimeoutError:
        raise Refusal(400, f"The body did not arrive within {limits.body_s:g} s.") from None
    except ClientDisconnect:
        raise Refusal(_CLIENT_GONE, "Nobody waits for the answer any more.") from None
    return body


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
