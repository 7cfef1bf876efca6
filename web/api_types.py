"""TypeScript types of the payloads that the pages draw, made from their msgspec structs.

python web/api_types.py           writes web/src/api/*.ts
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from stepscope.views.report import Report

API = Path(__file__).parent / "src" / "api"
PAYLOADS: dict[str, type[msgspec.Struct]] = {"report.ts": Report}
"""Payloads by the file that has their types."""
HEADER = "// Made by web/api_types.py from the payloads of stepscope.views: do not edit.\n"
_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}


def typescript(payload: type[msgspec.Struct]) -> str:
    """Interfaces of a payload and everything in it."""
    _, components = msgspec.json.schema_components([payload], ref_template="{name}")
    declared = (_declaration(name, schema) for name, schema in sorted(components.items()))
    return HEADER + "".join(f"\n{text}\n" for text in declared)


def _declaration(name: str, schema: dict[str, Any]) -> str:
    doc = _doc(schema.get("description"), "")
    if "enum" in schema:
        return f"{doc}export type {name} = {_type(schema)};"
    fields = "".join(
        f"  {field}: {_type(kind)};\n" for field, kind in schema.get("properties", {}).items()
    )
    return f"{doc}export interface {name} {{\n{fields}}}"


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
    if kind == "array":
        inner = _type(schema["items"])
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, dict) else 'unknown'}>"
    return "null" if kind == "null" else _SCALARS[str(kind)]


if __name__ == "__main__":
    API.mkdir(parents=True, exist_ok=True)
    for file, payload in PAYLOADS.items():
        (API / file).write_text(typescript(payload), encoding="utf-8")
