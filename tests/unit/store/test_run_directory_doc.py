"""docs/run-directory.md matches the schema, and its queries run as printed.

The part between the markers is generated from the schema; `make generate` writes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import msgspec
import pytest

from stepscope.schema import (
    FACT_TYPES,
    METRIC_TYPES,
    SCHEMA_VERSION,
    TABLES,
    ConfigurationDecision,
    ConfigurationRequest,
    Delivery,
    Fact,
    Finding,
    Incarnation,
    JobConfiguration,
    JobStatus,
    LauncherInfo,
    Lease,
    NodeInfo,
    ProcessInfo,
    RankClaim,
    RuleRecord,
    RuleSelection,
    RunInfo,
    Table,
)
from stepscope.schema.tables.spans import SPAN_KINDS
from stepscope.store import RunWriter
from tests.support.store_rows import spans

DOC = Path(__file__).parents[3] / "docs" / "run-directory.md"
BEGIN = "<!-- Generated from stepscope.schema by a test, up to the end mark. -->"
END = "<!-- End mark. -->"


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = tuple(head)
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(re.sub(r"\||__", escape, cell) for cell in row) + " |"
    yield ""


def escape(match: re.Match[str]) -> str:
    return "".join("\\" + character for character in match[0])


def table_section(table: Table) -> Iterator[str]:
    yield f"### `{table.name}`"
    yield ""
    yield f"{table.doc} A row is identified by {', '.join(f'`{name}`' for name in table.key)}."
    yield ""
    yield from markdown_table(
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


def summary(fact: type[Fact]) -> str:
    return " ".join((fact.__doc__ or "").partition("\n\n")[0].split())


def generate_reference() -> str:
    lines = [BEGIN, "", f"Schema version {SCHEMA_VERSION}.", ""]
    for table in TABLES.values():
        lines += table_section(table)
    lines += ["### Kinds of span", ""]
    lines += markdown_table(
        ("kind", "meaning"), ((f"`{kind}`", doc) for kind, doc in SPAN_KINDS.items())
    )
    lines += ["### Kinds of fact", ""]
    lines += markdown_table(
        ("fact", "meaning", "fields"),
        (
            (f"`{kind}`", summary(fact), ", ".join(f"`{name}`" for name in fact.__struct_fields__))
            for kind, fact in FACT_TYPES.items()
        ),
    )
    lines += ["### Metrics", ""]
    lines += markdown_table(
        ("metric", "unit", "meaning"),
        ((f"`{metric.name}`", metric.unit, metric.doc) for metric in METRIC_TYPES.values()),
    )
    return "\n".join([*lines, END])


def test_tables_match_the_schema() -> None:
    text = DOC.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    expected = head + generate_reference() + tail
    if os.environ.get("REWRITE"):
        DOC.write_text(expected)
    elif text != expected:
        pytest.fail("docs/run-directory.md differs from the schema: run `make generate`")


MANIFESTS = [
    *(RunInfo, NodeInfo, JobStatus, ProcessInfo, RuleRecord, Finding, Delivery),
    *(LauncherInfo, Incarnation, RankClaim, Lease),
    *(ConfigurationRequest, ConfigurationDecision, JobConfiguration, RuleSelection),
]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_every_field_of_a_manifest_is_explained(manifest: type[msgspec.Struct]) -> None:
    text = DOC.read_text()
    missing = [name for name in manifest.__struct_encode_fields__ if f"`{name}`" not in text]
    assert not missing, f"{DOC.name} does not explain {missing} of {manifest.__name__}"


def test_queries_run_as_printed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunWriter(run, "n0") as writer:
        writer.append("spans", spans(range(9)))
    monkeypatch.chdir(run.parent)
    run.rename("RUN")
    queries = re.findall(r"```sql\n(.+?)```", DOC.read_text(), flags=re.DOTALL)
    assert queries
    for query in queries:
        assert duckdb.sql(query).fetchall()
