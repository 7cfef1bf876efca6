"""Formats of importers."""

from __future__ import annotations

from stepscope import importers


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
