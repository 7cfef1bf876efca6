"""Server as one ASGI application: guard, routes, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from stepscope.errors import NotARunError, StepscopeError
from stepscope.run.catalog import RunRemovedError
from stepscope.server.api import Api
from stepscope.server.login import login_page
from stepscope.server.requests import read_form_or_json
from stepscope.server.security import LOGIN_PATH, Guard, add_cookie, error_response, reject_token
from stepscope.server.settings import Settings
from stepscope.server.static import FrontEnd
from stepscope.server.workers import Refusal


class App:
    """Application of one server; `end_streams` ends the streams that have no end of their own."""

    def __init__(self, settings: Settings) -> None:
        api = Api(settings)
        self.end_streams = api.end_streams

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
            Route("/api/{path:path}", _unknown_address),
            Mount("/", FrontEnd()),
        ]
        application = Starlette(
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
        self.guarded = Guard(application, settings)


async def _log_in(request: Request, settings: Settings) -> Response:
    """Exchange the token for a cookie."""
    fields, is_form = await read_form_or_json(request, settings.limits)
    if await reject_token(fields.get("token", ""), settings):
        if is_form:
            return HTMLResponse(login_page(failed=True), 401)
        return error_response(401, "The token is not correct.")
    response = RedirectResponse("/", 303) if is_form else JSONResponse({})
    return add_cookie(response, settings)


async def _unknown_address(request: Request) -> Response:
    return error_response(404, "Unknown address. /api/openapi.json lists all addresses.")


async def _explain(_request: Request, error: Exception) -> Response:
    """Convert an error to a status and one sentence."""
    match error:
        case Refusal():
            return error_response(error.status, str(error))
        case RunRemovedError():
            return error_response(410, str(error))
        case NotARunError():
            return error_response(404, str(error))
        case StepscopeError():
            return error_response(400, str(error))
        case OSError():
            return error_response(403 if isinstance(error, PermissionError) else 503, f"{error}.")
        case HTTPException():
            return error_response(error.status_code, f"{error.detail}.")
        case _:
            return error_response(500, "Internal error of stepscope. Its log has the details.")
