"""Check that source uses plain terms of the field, in files and functions of bounded size.

    python tools/check_source.py [PATH ...]      default: everything that is kept in the repository

Reported, each with its place:
    a bound name (variable, parameter, field) from the list `names` of language.json, which does not
        say what the thing is
    a constant that starts with one of `bounds`: write MAX_, MIN_, or a limit with its unit
    a docstring that starts with one of `question_words`: start with a verb or a noun
    one of `archaic_words`, in code, comments and documents
    a Python file of more than MAX_FILE_LINES lines, a function of more than MAX_FUNCTION_LINES

web/eslint reads the same lists for TypeScript.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CHECKED = ("src", "tests", "benchmarks", "examples", "tools", "docs", "web", "hatch_build.py")
SKIPPED_DIRECTORIES = {"node_modules", "assets", "results", "__pycache__"}
TEXT_SUFFIXES = {".py", ".pyi", ".ts", ".tsx", ".md", ".css"}
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80

LISTS: dict[str, list[str]] = json.loads((ROOT / "tools" / "language.json").read_text())
NAMES = set(LISTS["names"])
BOUND = re.compile(rf"^_?({'|'.join(LISTS['bounds'])})(_|$)")
QUESTION_WORDS = set(LISTS["question_words"])
ARCHAIC = re.compile(rf"\b({'|'.join(LISTS['archaic_words'])})\b", re.IGNORECASE)


class Problem(NamedTuple):
    """One finding and its place."""

    line: int
    sentence: str


def check_text(text: str) -> Iterator[Problem]:
    """Find archaic words."""
    for number, line in enumerate(text.splitlines(), start=1):
        for match in ARCHAIC.finditer(line):
            yield Problem(number, f"'{match[0]}' is archaic")


def check_python(text: str) -> Iterator[Problem]:
    """Find names, docstrings and lengths of a Python file."""
    tree = ast.parse(text)
    count = len(text.splitlines())
    if count > MAX_FILE_LINES:
        yield Problem(1, f"the file has {count} lines; split it below {MAX_FILE_LINES}")
    for node in ast.walk(tree):
        yield from _check_names(node)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _check_docstring(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _check_length(node)


def _check_names(node: ast.AST) -> Iterator[Problem]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        name = node.id
    elif isinstance(node, ast.arg):
        name = node.arg
    else:
        return
    if name.strip("_") in NAMES:
        yield Problem(node.lineno, f"the name '{name}' does not say what the thing is")
    elif BOUND.match(name):
        yield Problem(node.lineno, f"the bound '{name}' is called MAX_, MIN_ or a limit")


def _check_docstring(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[Problem]:
    words = (ast.get_docstring(node) or "").split()
    if words and words[0].strip(".,:;`") in QUESTION_WORDS:
        yield Problem(
            node.body[0].lineno, f"the docstring starts with '{words[0]}', not a verb or noun"
        )


def _check_length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Problem]:
    count = (node.end_lineno or node.lineno) - node.lineno + 1
    if count > MAX_FUNCTION_LINES:
        yield Problem(
            node.lineno, f"{node.name} has {count} lines; split it below {MAX_FUNCTION_LINES}"
        )


def check_file(path: Path) -> Iterator[Problem]:
    """Find all problems of one file."""
    text = path.read_text(encoding="utf-8")
    yield from check_text(text)
    if path.suffix == ".py":
        yield from check_python(text)


def find_files(roots: list[Path]) -> Iterator[Path]:
    """Find the files to check below *roots*."""
    for root in roots:
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            inside = path.relative_to(root).parts[:-1] if root.is_dir() else ()
            if path.suffix in TEXT_SUFFIXES and not SKIPPED_DIRECTORIES & set(inside):
                yield path


def main(arguments: list[str]) -> int:
    """Print every problem; return 1 where there is one."""
    roots = [Path(argument) for argument in arguments]
    roots = roots or [*(ROOT / name for name in CHECKED), *sorted(ROOT.glob("*.md"))]
    count = 0
    for path in find_files(roots):
        for problem in check_file(path):
            count += 1
            print(f"{path}:{problem.line}: {problem.sentence}")
    if count:
        print(f"{count} problems")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
