"""Features of the replaced tools, with the tests that show them in stepscope.

Rows are in tests/support/seeds.toml, the marks `@pytest.mark.seed(ID, …)` at the tests. Marks are
read from the source, so that no test file is imported.
"""

from __future__ import annotations

import ast
import os
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MARK = "pytest.mark.seed"


class Rows(msgspec.Struct, forbid_unknown_fields=True):
    """Content of seeds.toml."""

    features: dict[str, dict[str, str]]
    """By tool and id."""
    not_yet: dict[str, list[str]]
    """Ids by the feature in work."""
    commands: dict[str, list[str]]
    """By id."""


class MarkedTest(NamedTuple):
    """A test, or a file of tests, and the ids of the rows that it shows."""

    path: Path
    name: str
    ids: list[str]


def list_features() -> str:
    """Return a table per tool.

    Raises:
        ValueError: a mark is at something else than a test or a file.
    """
    rows, tests = read_rows(), find_marked_tests()
    lines = []
    for tool, features in rows.features.items():
        lines += [f"## {tool}", "", "| id | feature | shown by |", "|---|---|---|"]
        for row, feature in features.items():
            lines.append(f"| {row} | {feature} | {describe_evidence(row, rows, tests)} |")
        lines.append("")
    return "\n".join(lines)


def read_rows() -> Rows:
    """Read the features."""
    text = (ROOT / "tests" / "support" / "seeds.toml").read_text()
    return msgspec.convert(tomllib.loads(text), Rows)


@cache
def find_marked_tests() -> list[MarkedTest]:
    """Find the tests that show features."""
    marked = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text()
        if f"{MARK}(" in source:
            marks = list(read_marks(source))
            if len(marks) != source.count(f"{MARK}("):
                raise ValueError(f"{path}: mark tests or the file")
            marked += [MarkedTest(path, name or path.name, ids) for name, ids in marks]
    return marked


def read_marks(source: str) -> Iterator[tuple[str | None, list[str]]]:
    """Find the marks of functions and classes, and those of the whole file, which have no name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign):
            is_mark = getattr(node.targets[0], "id", None) == "pytestmark"
            name, holders = None, [node.value] if is_mark else []
        else:
            name, holders = getattr(node, "name", None), getattr(node, "decorator_list", [])
        for call in (call for holder in holders for call in ast.walk(holder)):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == MARK:
                yield name, [ast.literal_eval(argument) for argument in call.args]


def describe_evidence(row: str, rows: Rows, tests: Iterable[MarkedTest]) -> str:
    """Return the last cell of a row, empty where nothing shows it."""
    links = (
        f"[`{test.name}`]({os.path.relpath(test.path, DOCS)})" for test in tests if row in test.ids
    )
    commands = [f"`{command}`" for command in rows.commands.get(row, ())]
    open_parts = [f"Not yet: {topic}." for topic, ids in rows.not_yet.items() if row in ids]
    return "<br>".join([*links, *commands, *open_parts])
