"""OpenAPI document of the API, from the endpoints, the views and the types of their payloads."""

from __future__ import annotations

import inspect
from pkgutil import resolve_name
from typing import Any, get_type_hints

import msgspec

from stepscope import views
from stepscope._version import __version__
from stepscope.schema import make_schemas, title_of
from stepscope.server.api import Api
from stepscope.server.endpoints import ENDPOINTS, VIEW_PATH, Endpoint
from stepscope.server.payloads import Problem
from stepscope.server.worker import OpenRuns

_REFERENCE = "#/components/schemas/{name}"
_JSON = "application/json"
_OPTION_TYPES = get_type_hints(views.ViewOptions, include_extras=True)


def openapi(_runs: OpenRuns) -> dict[str, Any]:
    """Create the document."""
    types = [views.VIEWS[name].payload for name in views.VIEWS]
    types += [resolve_name(name) for end in ENDPOINTS for name in (end.body, end.response) if name]
    types = list(dict.fromkeys([Problem, *types]))
    schemas, components = make_schemas(types, _REFERENCE)
    schema_by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        if endpoint.path == VIEW_PATH:
            for name, view in views.VIEWS.items():
                path = VIEW_PATH.replace("{view}", name)
                paths[path] = {"get": _view_operation(name, view, endpoint, schema_by_type)}
        else:
            operations = paths.setdefault(endpoint.path, {})
            operations[endpoint.method.lower()] = _operation(endpoint, schema_by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stepscope",
            "version": __version__,
            "description": "The output of `stepscope show RUN VIEW --json`, over HTTP.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    handler = getattr(Api, endpoint.handler)
    content = (
        {endpoint.text: {"schema": {"type": "string"}}}
        if endpoint.response is None
        else {_JSON: {"schema": schemas[resolve_name(endpoint.response)]}}
    )
    operation: dict[str, Any] = {
        "operationId": endpoint.handler,
        "summary": _first_line(handler),
        "parameters": [
            *(_required(name) for name in endpoint.query),
            *(_parameter(name, {"type": "string"}, False) for name in endpoint.options),
        ],
        "responses": _responses(content, schemas),
    }
    if endpoint.method == "POST":
        schema = {} if endpoint.body is None else schemas[resolve_name(endpoint.body)]
        content = {endpoint.content: {"schema": schema}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _view_operation(
    name: str, view: views.View, endpoint: Endpoint, schemas: dict[Any, Any]
) -> dict[str, Any]:
    options = [
        _parameter(field, _option_schema(view, field), field in view.needs) for field in view.uses
    ]
    return {
        "operationId": f"{endpoint.handler}-{name}",
        "summary": _view_title(name),
        "description": _first_line(view.load()),
        "parameters": [*(_required(name) for name in endpoint.query), *options],
        "responses": _responses({_JSON: {"schema": schemas[view.payload]}}, schemas),
    }


def _view_title(name: str) -> str:
    title = title_of(name.replace("-", "_"))
    return title[0].upper() + title[1:]


def _option_schema(view: views.View, field: str) -> dict[str, Any]:
    title = {"title": title_of(field)}
    if field == "by" and view.by:
        return title | {"enum": list(view.by), "default": view.by[0]}
    default = getattr(views.DEFAULTS, field)
    schema = title | msgspec.json.schema(_OPTION_TYPES[field])
    return schema if default is None else schema | {"default": default}


def _required(name: str) -> dict[str, Any]:
    return _parameter(name, {"type": "string"}, True)


def _parameter(name: str, schema: dict[str, Any], required: bool) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema}


def _responses(content: dict[str, Any], schemas: dict[Any, Any]) -> dict[str, Any]:
    problem = {"description": "The error.", "content": {_JSON: {"schema": schemas[Problem]}}}
    return {"200": {"description": "The payload.", "content": content}, "default": problem}


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]
