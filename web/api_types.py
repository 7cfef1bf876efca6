"""TypeScript types of the payloads that the pages draw, made from their msgspec structs.

A type that several files need is declared in the first of them.

python web/api_types.py           writes web/src/api/*.ts
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stepscope.comparison.payload import Comparison
from stepscope.server.payloads import (
    CaptureAccepted,
    CaptureProgress,
    CaptureRequest,
    RunSession,
    SourceLines,
    StopAccepted,
    StopJobRequest,
)
from stepscope.views import VIEWS
from stepscope.views.jobs import Jobs
from stepscope.views.profiling_report import Report

API = Path(__file__).parent / "src" / "api"
Payload = type[msgspec.Struct]
OTHERS: dict[str, Payload] = {"jobs": Jobs, "compare": Comparison}
"""Payloads that are not of one run."""
SERVER: tuple[Payload, ...] = (
    RunSession,
    SourceLines,
    CaptureRequest,
    CaptureAccepted,
    CaptureProgress,
    StopJobRequest,
    StopAccepted,
)
"""What is said to and by the server that is no view."""
HEADER = "// Made by web/api_types.py from the payloads of stepscope: do not edit.\n"
_COMMENT = re.compile(r"/\*\*.*?\*/")
_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}


def payloads() -> dict[str, dict[str, Payload]]:
    """Payloads by the file that has their types, each by its name in the API."""
    return {
        "report.ts": {"report": Report},
        "server.ts": {payload.__name__: payload for payload in SERVER},
        "views.ts": {name: view.payload for name, view in VIEWS.items()} | OTHERS,
    }


def files() -> dict[str, str]:
    """What every file says."""
    home: dict[str, tuple[str, str]] = {}
    found = {}
    for file, wanted in payloads().items():
        declared, more = _declarations(wanted)
        shared = _shared(declared, home)
        own = {name: text for name, text in declared.items() if name not in shared}
        home |= {name: (file, text) for name, text in own.items()}
        texts = [*own.values(), *more]
        found[file] = HEADER + "".join(
            f"\n{text}\n" for text in [*_imports(texts, {n: home[n][0] for n in shared}), *texts]
        )
    return found


def _shared(declared: Mapping[str, str], home: Mapping[str, tuple[str, str]]) -> set[str]:
    """Names of types that are declared elsewhere already, down to the types inside them."""
    found = {name for name, text in declared.items() if home.get(name, ("", ""))[1] == text}
    while other := {n for n in found if (_named([declared[n]]) & declared.keys()) - found}:
        found -= other
    return found


def _named(texts: Iterable[str]) -> set[str]:
    """Words of declarations, comments aside: the names of types are among them."""
    return {word for text in texts for word in re.findall(r"\w+", _COMMENT.sub("", text))}


def _imports(texts: Iterable[str], homes: Mapping[str, str]) -> list[str]:
    """Imports of the types that these texts name and other files declare."""
    by_file: dict[str, list[str]] = {}
    for name in sorted(_named(texts) & homes.keys()):
        by_file.setdefault(homes[name].removesuffix(".ts"), []).append(name)
    return [
        f'import type {{ {", ".join(names)} }} from "./{file}";' for file, names in by_file.items()
    ]


def _declarations(wanted: Mapping[str, Payload]) -> tuple[dict[str, str], list[str]]:
    """Interfaces of payloads and of everything in them by name; of views, also which is which."""
    schemas, components = msgspec.json.schema_components(wanted.values(), ref_template="{name}")
    alike = [name for name in components if not name.isidentifier()]
    if alike:
        raise SystemExit(f"Several structs have one name, rename all but one: {', '.join(alike)}")
    declared = {name: _declaration(name, schema) for name, schema in sorted(components.items())}
    which = []
    if wanted.keys() >= VIEWS.keys():
        named = zip(wanted, schemas, strict=True)
        fields = "".join(f'  "{name}": {_type(schema)};\n' for name, schema in named)
        doc = _doc("Payloads by their names in the API.", "")
        which.append(doc + _interface("Views", fields))
    return declared, which


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
    for file, text in files().items():
        (API / file).write_text(text, encoding="utf-8")
