"""Ids of rows: each leads back to its row, in any payload."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.errors import UsageError
from stepscope.queries import find_origin, make_id, make_payload, with_ids
from stepscope.run import Run, open_run
from tests.support.command import run_command, without_ids

SOURCES = [
    ("overview", {}),
    ("kernels", {"top": "2", "by": "properties"}),
    ("operators", {}),
    ("gpu-time", {}),
    ("timeline-search", {"name": "aten::m m/?&="}),
    ("verdict", {}),
    ("rules", {}),
    ("sql", {"query": "SELECT '50%' AS a, 1/2 AS b"}),
    ("compare", {"base": "the same", "fail_if": "step_time>+5%,data_wait>+3ms"}),
    ("cost", {"usd_per_hour": "3"}),
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
            "An id does not begin with 'kernel'. It begins with verdict, rules, compare?",
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


COMMANDS = [
    "show kernels --top 1",
    "show gpu-time --from 0s --to 1s",
    "show overview",
    "diagnose",
    "diagnose --for-steps 50",
    "what-if --fix no-sync",
    "rules check --rule StepOutlier,GPUMemoryIncrease",
    "compare --fail-if step_time>+500% --fail-if step_time_p95>1h --usd-per-hour 3 --epochs 2",
    "cost --usd-per-hour 3 --hours 2",
    "report",
    "sql",
]


def arguments(text: str, run: Path) -> list[str]:
    """Complete a command of `COMMANDS` with the run."""
    command, *words = text.split()
    inserted = {
        "rules": [words[0], str(run)] if words else [],
        "compare": [str(run), str(run)],
        "sql": [str(run), "SELECT name, duration_ns FROM kernels ORDER BY id"],
    }
    rest = words[1:] if command == "rules" else words
    return [command, *inserted.get(command, [str(run)]), *rest, "--json"]


@pytest.mark.parametrize("text", COMMANDS)
def test_rows_of_commands_lead_back(traced: Path, run: Run, text: str) -> None:
    done = run_command(traced.parent, *arguments(text, traced))
    assert done.returncode in {0, 3}, done.stderr
    printed = json.loads(done.stdout)
    rows = [row for row in rows_of(printed) if "at" in row]
    in_lists = [row for value in lists_of(printed) for row in value if isinstance(row, dict)]
    assert len(rows) == len(in_lists) + 1  # and the whole
    for row in (rows[0], rows[-1]):
        origin = find_origin(run, row["at"], lambda _: open_run(traced))
        value = json.loads(msgspec.json.encode(origin.value))
        assert without_time(value) == without_time(without_ids(row))
    # The command that an id leads to prints the same row.
    again = shlex.split(origin.command)[1:]
    again = [str(traced) if word == "RUN" else word for word in again]
    assert without_time(json.loads(run_command(traced.parent, *again).stdout)) == without_time(
        printed
    )


def without_time(payload: dict[str, Any]) -> dict[str, Any]:
    """Leave out when a report was made."""
    return {key: value for key, value in payload.items() if key != "made_ns"}


def lists_of(value: Any) -> Iterator[list[Any]]:
    if isinstance(value, list):
        yield value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            yield from lists_of(item)


@pytest.mark.parametrize(
    "words",
    [
        ["rules", "check", "RUN", "--set", "StepOutlier.stddev=5"],
        ["sql", "RUN", "SELECT 1", "--max-rows", "5"],
        ["compare", "SET", "SET"],
    ],
)
def test_no_id_where_none_would_lead_back(traced: Path, tmp_path: Path, words: list[str]) -> None:
    for name in "ab":
        (tmp_path / "set" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "set" / name).symlink_to(traced)
    locations = {"RUN": str(traced), "SET": str(tmp_path / "set")}
    done = run_command(tmp_path, *(locations.get(word, word) for word in words), "--json")
    assert done.returncode in {0, 3}, done.stderr
    assert not [row for row in rows_of(json.loads(done.stdout)) if "at" in row]


def test_an_id_runs_no_rule_of_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text("raise SystemExit(9)")
    with pytest.raises(UsageError, match="There is no rule"):
        make_payload(run, "rules", {"rule": f"{tmp_path}/rule.py:Mine"}, lambda _: run)


def test_the_command_shows_what_reproduces_a_number(traced: Path) -> None:
    def show(*options: str) -> Any:
        done = run_command(traced.parent, "show", str(traced), *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "--json" in options else done.stdout

    row = show("kernels", "--top", "1", "--json")["traces"][0]["kernels"][0]
    origin = show("--at", f"{row['at']}/total_ns", "--json")
    assert (origin["value"], origin["unit"]) == (row["total_ns"], "ns")
    assert origin["command"] == "stepscope show RUN kernels --top 1 --json"
    assert "kernels" in origin["tables"]
    assert str(row["total_ns"]) in show("--at", f"{row['at']}/total_ns")
