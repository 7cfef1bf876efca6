"""Formats of importers and exporters, and tables of views."""

from __future__ import annotations

import sys

from stepscope import exporters, importers, views


def list_imports() -> str:
    """List what importers read and the tables of the run that it fills."""
    traces = importers.TRACE.tables
    lines = ["| format | tables of the run |", "|---|---|"]
    for item in importers.list_formats():
        names = [f"`{name}`" for name in item.tables if name not in traces]
        if set(traces) <= set(item.tables):
            names.append("all tables of traces")
        else:
            names += [f"`{name}`" for name in item.tables if name in traces]
        lines.append(f"| {item.name} | {', '.join(names)} |")
    return "\n".join(lines)


def list_exports() -> str:
    """List what exporters write, with the options that they take."""
    lines = ["| format | content | options |", "|---|---|---|"]
    for name in exporters.list_exporters():
        exporter = exporters.load_exporter(name)
        document = sys.modules[type(exporter).__module__].__doc__ or ""
        content = document.partition("\n")[0].removeprefix("Export of ").rstrip(".")
        flags = ", ".join(f"`{exporters.spell_option(o)}`" for o in sorted(exporter.options))
        lines.append(f"| `{name}` | {content[:1].upper()}{content[1:]} | {flags} |")
    return "\n".join(lines)


def list_main_tables() -> str:
    """List the main tables that are not named like their view."""
    lines = ["| view | main table |", "|---|---|"]
    lines += [f"| {name} | `{view.table}` |" for name, view in views.VIEWS.items() if view.table]
    return "\n".join(lines)
