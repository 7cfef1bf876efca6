"""Ids of rows: each leads back to its row, in any payload."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.errors import UsageError
from stepscope.queries import find_origin, make_id, make_payload, with_ids
from stepscope.run import Run, open_run
from tests.support.command import run_command

SOURCES = [
    ("overview", {}),
    ("kernels", {"top": "2", "by": "properties"}),
    ("operators", {}),
    ("gpu-time", {}),
    ("timeline-search", {"name": "aten::m m/?&="}),
    ("verdict", {}),
    ("rules", {}),
    ("sql", {"query": "SELECT '50%' AS a, 1/2 AS b"}),
    ("compare", {"base": "the same"}),
]


@pytest.fixture(scope="module")
def run(traced: Path) -> Run:
    return open_run(traced)


def rows_of(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            yield from rows_of(item)


def without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_ids(item) for key, item in value.items() if key != "at"}
    return [without_ids(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("source", "options"), SOURCES)
def test_ids_lead_back_to_their_rows(run: Run, source: str, options: dict[str, str]) -> None:
    payload = make_payload(run, source, options, lambda _: run)
    marked = with_ids(payload, make_id(source, options))
    assert without_ids(marked) == msgspec.to_builtins(payload, str_keys=True)
    rows = [row for row in rows_of(marked) if "at" in row]
    assert len({row["at"] for row in rows}) == len(rows)
    for row in [rows[0], *rows[1::7], rows[-1]]:
        origin = find_origin(run, row["at"], lambda _: run)
        assert origin.value == without_ids(row)
        number = next((key for key, cell in row.items() if isinstance(cell, int | float)), None)
        if number is not None:
            inner = find_origin(run, f"{row['at']}/{number}", lambda _: run)
            assert inner.value == row[number]
            assert inner.title


@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        (
            "kernel/rows",
            "An id does not begin with 'kernel'. It begins with verdict, rules, compare",
        ),
        ("compare/steps", "An id does not begin with 'compare'"),
        ("compare?base=/runs/a/steps", "An id does not begin with 'compare?base='"),
        ("verdict?top=1", "An id does not begin with 'verdict?top=1'"),
        (
            "kernels/traces/9",
            "There is nothing at kernels/traces/9: '9' is no part of what is there.",
        ),
        ("kernels/__class__", "There is nothing at kernels/__class__"),
        ("kernels?colour=red", "There is no option colour"),
    ],
)
def test_an_id_that_leads_nowhere(run: Run, at: str, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_origin(run, at, lambda _: run)
    assert str(raised.value).startswith(sentence)


def test_the_command_shows_what_reproduces_a_number(traced: Path) -> None:
    def show(*options: str) -> Any:
        done = run_command(traced.parent, "show", str(traced), *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "--json" in options else done.stdout

    marked = show("kernels", "--top", "1", "--json", "--ids")
    row = marked["traces"][0]["kernels"][0]
    origin = show("--at", f"{row['at']}/total_ns", "--json")
    assert (origin["value"], origin["unit"]) == (row["total_ns"], "ns")
    assert origin["command"] == "stepscope show RUN kernels --top 1 --json"
    assert "kernels" in origin["tables"]
    assert str(row["total_ns"]) in show("--at", f"{row['at']}/total_ns")
    refused = run_command(traced.parent, "show", str(traced), "--ids")
    assert refused.stderr == "stepscope: --ids requires --json.\n"
