"""Reference of the tables of a run, from their declarations in `stepscope.schema`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from stepscope.schema import (
    COMPILATION_EVENT_KINDS,
    FACT_TYPES,
    METRIC_TYPES,
    SCHEMA_VERSION,
    TABLES,
    Fact,
    Table,
)
from stepscope.schema.tables.job import SPAN_KINDS


def describe_schema() -> str:
    """Return the sections of all tables, kinds of span and fact, and metrics."""
    lines = [f"Schema version {SCHEMA_VERSION}.", ""]
    for table in TABLES.values():
        lines += _table_section(table)
    lines += ["### Kinds of span", ""]
    lines += _markdown_table(
        ("kind", "meaning"), ((f"`{kind}`", doc) for kind, doc in SPAN_KINDS.items())
    )
    lines += ["### Kinds of event of a compilation", ""]
    lines += _markdown_table(
        ("kind", "meaning"), ((f"`{kind}`", doc) for kind, doc in COMPILATION_EVENT_KINDS.items())
    )
    lines += ["### Kinds of fact", ""]
    lines += _markdown_table(
        ("fact", "meaning", "fields"),
        (
            (f"`{kind}`", _summary(fact), ", ".join(f"`{name}`" for name in fact.__struct_fields__))
            for kind, fact in FACT_TYPES.items()
        ),
    )
    lines += ["### Kinds of metric", ""]
    lines += _markdown_table(
        ("metric", "unit", "meaning"),
        ((f"`{metric.name}`", metric.unit, metric.doc) for metric in METRIC_TYPES.values()),
    )
    return "\n".join(lines)


def _table_section(table: Table) -> Iterator[str]:
    yield f"### `{table.name}`"
    yield ""
    yield f"{table.doc} A row is identified by {', '.join(f'`{name}`' for name in table.key)}."
    yield ""
    yield from _markdown_table(
        ("column", "type", "unit", "null", "meaning"),
        (
            (
                f"`{column.name}`",
                column.stored_type or column.type,
                "" if column.unit == "none" else column.unit,
                "yes" if column.nullable else "",
                column.doc,
            )
            for column in table.columns
        ),
    )


def _markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = tuple(head)
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(re.sub(r"\||__", _escape, cell) for cell in row) + " |"
    yield ""


def _escape(match: re.Match[str]) -> str:
    return "".join("\\" + character for character in match[0])


def _summary(fact: type[Fact]) -> str:
    return " ".join((fact.__doc__ or "").partition("\n\n")[0].split())
