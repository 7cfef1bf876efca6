"""Requests to every address of the HTTP API, with valid and odd parameters and bodies."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from stepscope.server.endpoints import ENDPOINTS, EVENT_STREAM, VIEW_PATH, Endpoint
from stepscope.views import VIEWS, ViewOptions
from tests.support.served import Served, ServerResponse

_ODD_TEXT = st.text(max_size=40) | st.sampled_from(
    ["", "../..", "/etc/passwd", "%2e%2e%2f", "\0", "9" * 400, "-1", "nan", "a" * 5_000, "[" * 900]
)
_RUNS = st.sampled_from(["team/job", "recorded"]) | _ODD_TEXT
_OPTIONS = st.dictionaries(st.sampled_from(ViewOptions.__struct_fields__), _ODD_TEXT, max_size=3)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_BODIES = (
    st.binary(max_size=200)
    | _JSON.map(lambda value: json.dumps(value).encode())
    | st.fixed_dictionaries({"run": _RUNS}, optional={"steps": _JSON, "traces": _JSON}).map(
        lambda value: json.dumps(value).encode()
    )
    | st.just(b"[" * 10_000)
)
_ANSWERING = [
    endpoint
    for endpoint in ENDPOINTS
    if endpoint.response is not None or endpoint.text != EVENT_STREAM or endpoint.path == VIEW_PATH
    if endpoint.path not in {"/api/jobs/events", "/api/events"}  # these have no end
]


@st.composite
def api_requests(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the arguments of one `Served.request`."""
    endpoint: Endpoint = draw(st.sampled_from(_ANSWERING))
    view = draw(st.sampled_from(sorted(VIEWS)))
    query = {name: draw(_RUNS) for name in endpoint.query} | draw(_OPTIONS)
    request = {"path": endpoint.path.replace("{view}", view), "method": endpoint.method, **query}
    if endpoint.method == "POST":
        request |= {"headers": {"Content-Type": endpoint.content}, "body": draw(_BODIES)}
    return request


def send(served: Served, request: dict[str, Any]) -> ServerResponse:
    """Send a request; the names of its parameters may be those of `Served.request`."""
    fields = {key: request[key] for key in ("path", "method", "headers", "body") if key in request}
    query = {key: value for key, value in request.items() if key not in fields}
    return served.request(fields.pop("path"), **fields, **query)
