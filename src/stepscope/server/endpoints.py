"""Endpoints below /api with their parameters and types: the source of the routes and of the OpenAPI
document."""

from __future__ import annotations

from typing import Literal

import msgspec

VIEW_PATH = "/api/views/{view}"
EVENT_STREAM = "text/event-stream"
BYTES = "application/octet-stream"
HTML = "text/html"
PLAIN = "text/plain"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint."""

    path: str
    handler: str
    """Method of `Api`; the first line of its docstring is the summary."""
    method: Literal["GET", "POST"] = "GET"
    query: tuple[str, ...] = ()
    """Required query parameters."""
    options: tuple[str, ...] = ()
    """Optional query parameters."""
    body: str | None = None
    """Type of the body, as `module:name`: the server itself has no use for most of these types."""
    content: str = "application/json"
    """Type of the content of the body."""
    response: str | None = None
    """Type of the payload, as `module:name`; None for text, or for several types."""
    text: str = EVENT_STREAM
    """Media type of text."""


ENDPOINTS = (
    Endpoint(
        path="/api/jobs",
        handler="jobs",
        options=("since",),
        response="stepscope.views.job.jobs:Jobs",
    ),
    Endpoint(path="/api/jobs/events", handler="jobs_events"),
    Endpoint(path=VIEW_PATH, handler="view", query=("run",)),
    Endpoint(
        path="/api/compare",
        handler="compare",
        query=("base", "run"),
        response="stepscope.comparison.compare:Comparison",
    ),
    Endpoint(
        path="/api/fleet",
        handler="fleet",
        options=("by", "since", "until", "tag"),
        response="stepscope.fleet.payload:Fleet",
    ),
    Endpoint(path="/metrics", handler="metrics", text=PLAIN),
    Endpoint(path="/api/report", handler="report", query=("run",), text=HTML),
    Endpoint(path="/api/perfetto", handler="perfetto", query=("run",), text=BYTES),
    Endpoint(path="/api/sql-arrow", handler="sql_arrow", query=("run", "query"), text=BYTES),
    Endpoint(path="/api/events", handler="events", query=("run",)),
    Endpoint(
        path="/api/session",
        handler="session",
        query=("run",),
        response="stepscope.server.payloads:RunSession",
    ),
    Endpoint(
        path="/api/source",
        handler="source",
        query=("run", "file", "line"),
        response="stepscope.server.payloads:SourceLines",
    ),
    Endpoint(
        path="/api/sql",
        handler="sql",
        method="POST",
        body="stepscope.server.payloads:SqlRequest",
        response="stepscope.queries.sql:QueryResult",
    ),
    Endpoint(
        path="/api/capture",
        handler="capture_progress",
        query=("run", "request"),
        response="stepscope.server.payloads:CaptureProgress",
    ),
    Endpoint(
        path="/api/capture",
        handler="capture",
        method="POST",
        body="stepscope.server.payloads:CaptureRequest",
        response="stepscope.server.payloads:CaptureAccepted",
    ),
    Endpoint(
        path="/api/configure",
        handler="configure_progress",
        query=("run", "number"),
        response="stepscope.server.payloads:ConfigureProgress",
    ),
    Endpoint(
        path="/api/configure",
        handler="configure",
        method="POST",
        body="stepscope.server.payloads:ConfigureRequest",
        response="stepscope.server.payloads:ConfigureAccepted",
    ),
    Endpoint(
        path="/api/import",
        handler="import_progress",
        query=("import",),
        response="stepscope.server.payloads:ImportProgress",
    ),
    Endpoint(
        path="/api/import",
        handler="import_traces",
        method="POST",
        body="stepscope.server.payloads:ImportRequest",
        response="stepscope.server.payloads:ImportProgress",
    ),
    Endpoint(
        path="/api/upload",
        handler="upload",
        method="POST",
        query=("name",),
        content=BYTES,
        response="stepscope.server.payloads:ImportProgress",
    ),
    Endpoint(
        path="/api/name",
        handler="name",
        query=("run",),
        response="stepscope.server.payloads:RunName",
    ),
    Endpoint(path="/api/notes", handler="notes", query=("run",), response="stepscope.run:RunNotes"),
    Endpoint(
        path="/api/notes",
        handler="change_notes",
        method="POST",
        body="stepscope.server.payloads:NotesRequest",
        response="stepscope.run:RunNotes",
    ),
    Endpoint(
        path="/api/tag",
        handler="tag",
        method="POST",
        body="stepscope.server.payloads:TagRequest",
        response="stepscope.store:RunLabels",
    ),
    Endpoint(
        path="/api/stop",
        handler="stop",
        method="POST",
        body="stepscope.server.payloads:StopJobRequest",
        response="stepscope.server.payloads:StopAccepted",
    ),
)
"""All endpoints except login and the OpenAPI document itself."""
