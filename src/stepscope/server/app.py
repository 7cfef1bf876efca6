"""Server as one ASGI application: guard, routes, errors, files of the front end."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from stepscope import assets, errors
from stepscope.run.catalog import RunRemovedError
from stepscope.server import security
from stepscope.server.api import Api
from stepscope.server.requests import GZIP_HEADERS, VARY, accepts_gzip, read_form_or_json
from stepscope.server.settings import Settings
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
            Route(security.LOGIN_PATH, login, methods=["POST"]),
            *api.routes,
            Route("/api/{path:path}", _unknown_address),
            Mount("/", FrontEnd()),
        ]
        application = Starlette(
            routes=routes,
            lifespan=lifespan,
            exception_handlers={
                Refusal: _explain,
                errors.StepscopeError: _explain,
                HTTPException: _explain,
                OSError: _explain,
                Exception: _explain,
            },
        )
        self.guarded = security.Guard(application, settings)


async def _log_in(request: Request, settings: Settings) -> Response:
    """Exchange the token for a cookie."""
    fields, is_form = await read_form_or_json(request, settings.limits)
    if await security.reject_token(fields.get("token", ""), settings):
        if is_form:
            return HTMLResponse(security.login_page(failed=True), 401)
        return security.error_response(401, "The token is not correct.")
    response = RedirectResponse("/", 303) if is_form else JSONResponse({})
    return security.add_cookie(response, settings)


async def _unknown_address(request: Request) -> Response:
    return security.error_response(404, "Unknown address. /api/openapi.json lists all addresses.")


async def _explain(_request: Request, error: Exception) -> Response:
    """Convert an error to a status and one sentence."""
    match error:
        case Refusal():
            return security.error_response(error.status, str(error))
        case RunRemovedError():
            return security.error_response(410, str(error))
        case errors.NotARunError():
            return security.error_response(404, str(error))
        case errors.StepscopeError():
            return security.error_response(400, str(error))
        case OSError():
            return security.error_response(
                403 if isinstance(error, PermissionError) else 503, f"{error}."
            )
        case HTTPException():
            return security.error_response(error.status_code, f"{error.detail}.")
        case _:
            return security.error_response(
                500, "Internal error of stepscope. Its log has the details."
            )


_PAGE = "index.html"
_NOT_BUILT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>stepscope</title></head>
<body><p>This installation lacks the web UI. In a checkout of stepscope, run <code>make web</code>.
The API works without it: <a href="/api/openapi.json">/api/openapi.json</a>.</p>
</body></html>
"""
_IMMUTABLE = "public, max-age=31536000, immutable"
"""Caching of files below assets/, whose names change with their content."""


class FrontEnd(StaticFiles):
    """Files of the bundle; paths without a file name get the page, whose script routes them."""

    def __init__(self) -> None:
        super().__init__(directory=assets.web_app(), check_dir=False)
        self.config_checked = True  # the API works without the bundle

    def get_path(self, scope: Scope) -> str:
        """See `StaticFiles`."""
        path = super().get_path(scope)
        return path if "." in Path(path).name else _PAGE

    async def get_response(self, path: str, scope: Scope) -> Response:
        """See `StaticFiles`."""
        try:
            return await super().get_response(path, scope)
        except (HTTPException, ValueError) as error:  # older versions pass on null bytes
            if isinstance(error, HTTPException) and error.status_code != 404:
                raise
        if path == _PAGE:
            return HTMLResponse(_NOT_BUILT, 503)
        return security.error_response(404, "There is no such file.")

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """See `StaticFiles`; sends the file that the build has compressed if gzip is accepted."""
        path = os.path.relpath(full_path, os.path.realpath(self.all_directories[0]))
        headers = {"cache-control": _IMMUTABLE if path.startswith("assets/") else "no-cache"}
        gzip_path, gzip_stat = self.lookup_path(f"{path}.gz")
        if gzip_stat is not None:
            headers |= VARY
            if accepts_gzip(Request(scope)):
                full_path, stat_result = gzip_path, gzip_stat
                headers |= GZIP_HEADERS
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(headers)
        return response
