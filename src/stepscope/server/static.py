"""The front end's files, as the build has left them in the package."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from stepscope.assets import web_app
from stepscope.server.compression import GZIPPED, VARIES, takes_gzip
from stepscope.server.security import failure

_NOT_BUILT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>stepscope</title></head>
<body><p>The web UI has not been built. In a checkout of stepscope: <code>make web</code>.
What it would show is there all the same: <a href="/api/openapi.json">/api/openapi.json</a>.</p>
</body></html>
"""
_FOREVER = "public, max-age=31536000, immutable"
"""Names below assets/ change with their content."""


async def front_end(request: Request) -> Response:
    """A file of the bundle; for every path that names none, the page, which reads it itself."""
    app = web_app()
    path = request.scope["path"].strip("/")
    if "." not in path.rpartition("/")[2]:
        page = app / "index.html"
        if page.is_file():
            return FileResponse(page, headers={"cache-control": "no-cache"})
        return HTMLResponse(_NOT_BUILT, 503)
    found = _inside(app, path)
    if found is None:
        return failure(404, "There is no such file.")
    headers = {"cache-control": _FOREVER if path.startswith("assets/") else "no-cache"}
    packed = _inside(app, f"{path}.gz")  # made with the bundle
    if packed is None:
        return FileResponse(found, headers=headers)
    if not takes_gzip(request):
        return FileResponse(found, headers=headers | VARIES)
    kind, _ = mimetypes.guess_type(found.name)
    return FileResponse(packed, headers=headers | GZIPPED, media_type=kind)


def _inside(directory: Path, path: str) -> Path | None:
    try:
        root, found = directory.resolve(strict=True), (directory / path).resolve(strict=True)
    except (OSError, ValueError):  # no such file, or no name of one
        return None
    return found if found.is_relative_to(root) and found.is_file() else None
