"""TypeScript types of the payloads that the pages draw, made from their msgspec structs.

python web/api_types.py           writes web/src/api/*.ts
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stepscope.server.payloads import (
    CaptureProgress,
    CaptureRequested,
    CaptureWanted,
    Session,
    SourceLines,
    StopRequested,
    StopWanted,
)
from stepscope.views import VIEWS
from stepscope.views.compare import Comparison
from stepscope.views.jobs import Jobs
from stepscope.views.report import Report

API = Path(__file__).parent / "src" / "api"
Payload = type[msgspec.Struct]
OTHERS: dict[str, Payload] = {"jobs": Jobs, "compare": Comparison}
"""Payloads that are not of one run."""
SERVER: tuple[Payload, ...] = (
    Session,
    SourceLines,
    CaptureWanted,
    CaptureRequested,
    CaptureProgress,
    StopWanted,
    StopRequested,
)
"""What is said to and by the server that is no view."""
HEADER = "// Made by web/api_types.py from the payloads of stepscope: do not edit.\n"
_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}


def payloads() -> dict[str, dict[str, Payload]]:
    """Payloads by the file that has their types, each by its name in the API."""
    return {
        "report.ts": {"report": Report},
        "server.ts": {payload.__name__: payload for payload in SERVER},
        "views.ts": {name: view.payload for name, view in VIEWS.items()} | OTHERS,
    }


def typescript(wanted: Mapping[str, Payload]) -> str:
    """Interfaces of payloads and of everything in them; of views, also which is which."""
    schemas, components = msgspec.json.schema_components(wanted.values(), ref_template="{name}")
    alike = [name for name in components if not name.isidentifier()]
    if alike:
        raise SystemExit(f"Several structs have one name, rename all but one: {', '.join(alike)}")
    declared = [_declaration(name, schema) for name, schema in sorted(components.items())]
    if wanted.keys() >= VIEWS.keys():
        named = zip(wanted, schemas, strict=True)
        fields = "".join(f'  "{name}": {_type(schema)};\n' for name, schema in named)
        doc = _doc("Payloads by their names in the API.", "")
        declared.append(doc + _interface("Views", fields))
    return HEADER + "".join(f"\n{text}\n" for text in declared)


def _declaration(name: str, schema: dict[str, Any]) -> str:
    doc = _doc(schema.get("description"), "")
    if "enum" in schema:
        return f"{doc}export type {name} = {_type(schema)};"
    fields = "".join(
        f"  {field}: {_type(kind)};\n" for field, kind in schema.get("properties", {}).items()
    )
    return doc + _interface(name, fields)


def _interface(name: str, fields: str) -> str:
    return f"export interface {name} {{\n{fields}}}"


def _doc(text: str | None, indent: str) -> str:
    return f"{indent}/** {' '.join(text.split())} */\n" if text else ""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(msgspec.json.encode(value).decode() for value in schema["enum"])
    kind = schema.get("type")
    if "prefixItems" in schema:
        return f"[{', '.join(_type(each) for each in schema['prefixItems'])}]"
    if kind == "array":
        inner = _type(schema["items"])
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, dict) else 'unknown'}>"
    return "null" if kind == "null" else _SCALARS[str(kind)] if kind else "unknown"


if __name__ == "__main__":
    API.mkdir(parents=True, exist_ok=True)
    for file, wanted in payloads().items():
        (API / file).write_text(typescript(wanted), encoding="utf-8")
