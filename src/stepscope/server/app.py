"""The server as one ASGI application: guard, routes, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from stepscope.errors import NotARunError, StepscopeError
from stepscope.server.api import Api
from stepscope.server.catalog import RunGoneError
from stepscope.server.login import login_page
from stepscope.server.requests import form_or_json
from stepscope.server.security import LOGIN_PATH, Guard, failure, welcome, wrong_token
from stepscope.server.settings import Settings
from stepscope.server.static import front_end
from stepscope.server.workers import Refusal


class App:
    """The application; `hang_up` ends the streams that never end by themselves."""

    def __init__(self, settings: Settings) -> None:
        api = Api(settings)
        self.hang_up = api.hang_up

        @asynccontextmanager
        async def lifespan(_app: Starlette) -> AsyncIterator[None]:
            await api.start()
            try:
                yield
            finally:
                await api.close()

        async def login(request: Request) -> Response:
            return await _log_in(request, settings)

        routes = [
            Route(LOGIN_PATH, login, methods=["POST"]),
            *api.routes,
            Route("/api/{path:path}", _unknown),
            Route("/{path:path}", front_end, methods=["GET"]),
        ]
        inner = Starlette(
            routes=routes,
            lifespan=lifespan,
            exception_handlers={
                Refusal: _explain,
                StepscopeError: _explain,
                HTTPException: _explain,
                OSError: _explain,
                Exception: _explain,
            },
        )
        self.guarded = Guard(inner, settings)


async def _log_in(request: Request, settings: Settings) -> Response:
    """Trade the token for a cookie."""
    fields, by_form = await form_or_json(request, settings.limits)
    if await wrong_token(fields.get("token", ""), settings):
        if by_form:
            return HTMLResponse(login_page(wrong=True), 401)
        return failure(401, "That is not the token.")
    answer = RedirectResponse("/", 303) if by_form else JSONResponse({})
    return welcome(answer, settings)


async def _unknown(request: Request) -> Response:
    return failure(404, "There is no such address; /api/openapi.json lists those that there are.")


async def _explain(_request: Request, error: Exception) -> Response:
    """Every error as one sentence."""
    match error:
        case Refusal():
            return failure(error.status, str(error))
        case RunGoneError():
            return failure(410, str(error))
        case NotARunError():
            return failure(404, str(error))
        case StepscopeError():
            return failure(400, str(error))
        case OSError():
            return failure(403 if isinstance(error, PermissionError) else 503, f"{error}.")
        case HTTPException():
            return failure(error.status_code, f"{error.detail}.")
        case _:
            return failure(500, "This is a defect of stepscope; its log says more.")
