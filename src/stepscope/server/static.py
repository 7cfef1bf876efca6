"""Files of the front end, from the package."""

from __future__ import annotations

import os
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from stepscope.assets import web_app
from stepscope.server.compression import GZIP_HEADERS, VARY, accepts_gzip
from stepscope.server.security import error_response

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
        super().__init__(directory=web_app(), check_dir=False)
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
        return error_response(404, "There is no such file.")

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
