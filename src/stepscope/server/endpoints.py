"""The addresses below /api: what each takes and gives. Routes and the OpenAPI document are made
from this list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VIEW_PATH = "/api/views/{view}"
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One address."""

    path: str
    handler: str
    """The method of `Api` that answers; its first line of documentation is the summary."""
    method: Literal["GET", "POST"] = "GET"
    query: tuple[str, ...] = ()
    """What must stand in the address."""
    body: str | None = None
    """Type of the body, as `module:name`: the server has no use for most of these types."""
    answer: str | None = None
    """Type of the payload, likewise; None for a stream of events, or where there are many."""


ENDPOINTS = (
    Endpoint(path="/api/jobs", handler="jobs", answer="stepscope.views.jobs:Jobs"),
    Endpoint(path="/api/jobs/events", handler="jobs_events"),
    Endpoint(path=VIEW_PATH, handler="view", query=("run",)),
    Endpoint(
        path="/api/compare",
        handler="compare",
        query=("base", "run"),
        answer="stepscope.comparison.compare:Comparison",
    ),
    Endpoint(path="/api/events", handler="events", query=("run",)),
    Endpoint(
        path="/api/session",
        handler="session",
        query=("run",),
        answer="stepscope.server.payloads:Session",
    ),
    Endpoint(
        path="/api/source",
        handler="source",
        query=("run", "file", "line"),
        answer="stepscope.server.payloads:SourceLines",
    ),
    Endpoint(
        path="/api/capture",
        handler="capture_progress",
        query=("run", "request"),
        answer="stepscope.server.payloads:CaptureProgress",
    ),
    Endpoint(
        path="/api/capture",
        handler="capture",
        method="POST",
        body="stepscope.server.payloads:CaptureWanted",
        answer="stepscope.server.payloads:CaptureRequested",
    ),
    Endpoint(
        path="/api/stop",
        handler="stop",
        method="POST",
        body="stepscope.server.payloads:StopWanted",
        answer="stepscope.server.payloads:StopRequested",
    ),
)
"""All of them but the document that describes them, and logging in."""
