"""What the API is, as an OpenAPI document: made from the endpoints, the views and the types of
their payloads."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import msgspec

from stepscope._version import __version__
from stepscope.server.api import Api
from stepscope.server.endpoints import ENDPOINTS, EVENTS, VIEW_PATH, Endpoint
from stepscope.server.open_runs import OpenRuns
from stepscope.server.payloads import Problem
from stepscope.views import VIEWS, View, ViewOptions

_REFERENCE = "#/components/schemas/{name}"
_JSON = "application/json"
_OPTION_TYPES = get_type_hints(ViewOptions, include_extras=True)


def openapi(_runs: OpenRuns) -> dict[str, Any]:
    """The document."""
    types = [VIEWS[name].payload for name in VIEWS]
    types += [_loaded(each) for end in ENDPOINTS for each in (end.body, end.answer) if each]
    types = list(dict.fromkeys([Problem, *types]))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    of_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        if endpoint.path == VIEW_PATH:
            for name, view in VIEWS.items():
                path = VIEW_PATH.replace("{view}", name)
                paths[path] = {"get": _view_operation(name, view, endpoint, of_type)}
        else:
            operations = paths.setdefault(endpoint.path, {})
            operations[endpoint.method.lower()] = _operation(endpoint, of_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stepscope",
            "version": __version__,
            "description": "What `stepscope show RUN VIEW --json` prints, over HTTP.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    handler = getattr(Api, endpoint.handler)
    content = (
        {EVENTS: {"schema": {"type": "string"}}}
        if endpoint.answer is None
        else {_JSON: {"schema": schemas[_loaded(endpoint.answer)]}}
    )
    found: dict[str, Any] = {
        "operationId": endpoint.handler,
        "summary": _first_line(handler),
        "parameters": [_parameter(name, {"type": "string"}, True) for name in endpoint.query],
        "responses": _responses(content, schemas),
    }
    if endpoint.body is not None:
        schema = schemas[_loaded(endpoint.body)]
        found["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema}}}
    return found


def _view_operation(
    name: str, view: View, endpoint: Endpoint, schemas: dict[Any, Any]
) -> dict[str, Any]:
    options = [
        _parameter(field, msgspec.json.schema(_OPTION_TYPES[field]), False) for field in view.uses
    ]
    return {
        "operationId": f"{endpoint.handler}-{name}",
        "summary": _first_line(view.load()),
        "parameters": [
            *(_parameter(each, {"type": "string"}, True) for each in endpoint.query),
            *options,
        ],
        "responses": _responses({_JSON: {"schema": schemas[view.payload]}}, schemas),
    }


def _parameter(name: str, schema: dict[str, Any], required: bool) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema}


def _responses(content: dict[str, Any], schemas: dict[Any, Any]) -> dict[str, Any]:
    problem = {"description": "Why not.", "content": {_JSON: {"schema": schemas[Problem]}}}
    return {"200": {"description": "The payload.", "content": content}, "default": problem}


def _loaded(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(__import__(module, fromlist=[attribute]), attribute)


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]
