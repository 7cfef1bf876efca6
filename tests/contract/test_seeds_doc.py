"""docs/seeds.md: every feature of the replaced tools has a test; `make generate` writes the page.

Rows are in tests/support/seeds.toml, the marks `@pytest.mark.seed(ID, …)` at the tests. Marks are
read from the source, so that no test file is imported.
"""

from __future__ import annotations

import ast
import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "seeds.md"
MARK = "pytest.mark.seed"
INTRODUCTION = """\
# Features of the tools that stepscope replaces

Every feature of SageMaker Profiler, SageMaker Debugger and the TensorBoard plugin of the PyTorch
profiler has a row here, with the test that shows it in stepscope. The last table is the usual way
to diagnose a slow job. A row without a test names the command that shows it, or what is not there
yet.

How to use them: [capture](capture.md), [views](views.md), [web UI](ui.md), [Python](python.md),
[rules](rules.md), [report](report.md).
"""


class Rows(msgspec.Struct, forbid_unknown_fields=True):
    """Content of seeds.toml."""

    features: dict[str, dict[str, str]]  # by tool and id
    not_yet: dict[str, list[str]]  # ids by the feature in work
    commands: dict[str, list[str]]  # by id


class MarkedTest(NamedTuple):
    """A test, or a file of tests, and the ids of the rows that it shows."""

    path: Path
    name: str
    ids: list[str]


def read_rows() -> Rows:
    text = (ROOT / "tests" / "support" / "seeds.toml").read_text()
    return msgspec.convert(tomllib.loads(text), Rows)


def read_marks(source: str) -> Iterator[tuple[str | None, list[str]]]:
    """Find the marks of functions and classes, and those of the whole file, which have no name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            name, holders = None, [node.value]
        else:
            name, holders = getattr(node, "name", None), getattr(node, "decorator_list", [])
        for call in (call for holder in holders for call in ast.walk(holder)):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == MARK:
                yield name, [ast.literal_eval(argument) for argument in call.args]


def find_marked_tests() -> Iterator[MarkedTest]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text()
        if f"{MARK}(" in source and path != Path(__file__):
            marks = list(read_marks(source))
            assert len(marks) == source.count(f"{MARK}("), f"{path.name}: mark tests or the file"
            yield from (MarkedTest(path, name or path.name, ids) for name, ids in marks)


def describe_evidence(row: str, rows: Rows, tests: Iterable[MarkedTest]) -> str:
    """Return the last cell of a row, empty where nothing shows it."""
    links = (
        f"[`{test.name}`]({os.path.relpath(test.path, DOC.parent)})"
        for test in tests
        if row in test.ids
    )
    commands = [f"`{command}`" for command in rows.commands.get(row, ())]
    open_parts = [f"Not yet: {topic}." for topic, ids in rows.not_yet.items() if row in ids]
    return "<br>".join([*links, *commands, *open_parts])


def generate_page(rows: Rows, tests: list[MarkedTest]) -> str:
    lines = [INTRODUCTION]
    for tool, features in rows.features.items():
        lines += [f"## {tool}", "", "| id | feature | shown by |", "|---|---|---|"]
        for row, feature in features.items():
            lines.append(f"| {row} | {feature} | {describe_evidence(row, rows, tests)} |")
        lines.append("")
    return "\n".join(lines)


def test_page_is_up_to_date() -> None:
    page = generate_page(read_rows(), list(find_marked_tests()))
    if os.environ.get("REWRITE"):
        DOC.write_text(page)
        return
    assert DOC.read_text() == page, "docs/seeds.md differs from the marks: run `make generate`"


def test_every_row_has_evidence() -> None:
    rows, tests = read_rows(), list(find_marked_tests())
    ids = [row for features in rows.features.values() for row in features]
    without = [row for row in ids if not describe_evidence(row, rows, tests)]
    assert without == [], "mark the tests that show these rows"


def test_ids_belong_to_rows() -> None:
    rows, tests = read_rows(), list(find_marked_tests())
    ids = Counter(row for features in rows.features.values() for row in features)
    assert max(ids.values()) == 1
    assert ids.keys() >= set().union(rows.commands, *rows.not_yet.values())
    for test in tests:
        assert test.ids, test.name
        assert set(test.ids) <= ids.keys(), test.name


def test_marks_are_read_from_source() -> None:
    source = """
pytestmark = [pytest.mark.slow, pytest.mark.seed("A-1")]

@pytest.mark.slow
@pytest.mark.seed("A-2", "A-3")
def test_a(): ...

@pytest.mark.seed("B-1")
class TestB:
    @pytest.mark.seed("B-2")
    async def test_c(self): ...
    def test_d(self): ...
"""
    assert dict(read_marks(source)) == {
        None: ["A-1"],
        "test_a": ["A-2", "A-3"],
        "TestB": ["B-1"],
        "test_c": ["B-2"],
    }
