"""Commands of stepscope that the code, the page and the documents suggest."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from stepscope.cli import COMMANDS, root

ROOT = Path(__file__).parents[2]
_NAME = rf"stepscope (?:{'|'.join(COMMANDS)})\b"
_PLACEHOLDER = r"(?:[A-Z]+\b|\{[^{}]*\})"
_QUOTED = re.compile(rf"(?:`|<code>)({_NAME}[^`<]*)(?:\\?`|</code>)")
_UNQUOTED = re.compile(
    rf"(?<![`>])\b(stepscope show {_PLACEHOLDER} (?:{_PLACEHOLDER}|[a-z-]+)"
    rf"|{_NAME}(?: (?:check|explain)\b)?(?: (?:--?[a-z][\w-]*|--|{_PLACEHOLDER}))+)"
)
"""A command in a message without quotation, up to what is neither an option nor a placeholder."""
_TYPED = re.compile(
    r"^ *(?:\$|\$ (?:srun|mpirun) .*?|\(cd .*?&&|taskset -c .*?\)\))"
    rf" ({_NAME}.*?)(?:  +#.*| &|\))?$",
    re.M,
)
"""A command in an example of a shell."""

_PROGRAM = re.compile(r"""stepscope[ "']""")
"""The program in any form; only files with it are parsed."""


@dataclass(frozen=True)
class Suggestion:
    """A command as it is suggested.

    Attributes:
        source: file, of code also the line.
        text: the command with placeholders: RUN, FILE, N, …; f-strings have expressions in braces.
        is_message: True if users see it while they work: in a string of the program or a rule's
            page; False in documents and docstrings, which may use the name of a command as a noun.
    """

    source: str
    text: str
    is_message: bool

    @property
    def words(self) -> list[str]:
        """Words after `stepscope`; optional ones in brackets are included."""
        text = re.sub(r"\{[^{}]*\b(view|python|source)\b[^{}]*\}", r"\1", self.text)
        text = re.sub(r"\{[^{}]*\}", "RUN", text).replace("\\", "")
        return shlex.split(re.sub(r"\[options\]|[\[\]]", "", text))[1:]

    @property
    def is_noun(self) -> bool:
        """True for the name of a command in a document."""
        is_name = len(self.words) == 1 or self.words in (["rules", "check"], ["rules", "explain"])
        return is_name and not self.is_message


def find_suggestions() -> list[Suggestion]:
    """Find all suggestions, each text once, preferably as a message."""
    by_text: dict[str, Suggestion] = {}
    for suggestion in (*_in_documents(), *_in_page(), *_in_code()):
        if suggestion.is_message or suggestion.text not in by_text:
            by_text[suggestion.text] = suggestion
    return list(by_text.values())


def _in_documents() -> Iterator[Suggestion]:
    pages = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    for path in (*pages, *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text().replace("\\\n", " ")
        for pattern in (_QUOTED, _TYPED):
            yield from _find(pattern, text, path, is_message=False)


def _in_page() -> Iterator[Suggestion]:
    for path in sorted((ROOT / "web" / "src").rglob("*.ts*")):
        if ".test." not in path.name and path.parent.name != "api":
            yield from _find(_QUOTED, path.read_text(), path, is_message=True)


def _in_code() -> Iterator[Suggestion]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text()
        if not _PROGRAM.search(text):
            continue
        tree = ast.parse(text)
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        is_rule = path.parent.name == "profiler"
        for node, text in _strings(tree):
            is_message = is_rule or id(node) not in docstrings
            for pattern in (_QUOTED, _UNQUOTED) if is_message else (_QUOTED,):
                yield from _find(pattern, text, path, line=node.lineno, is_message=is_message)


def _strings(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield the strings of a program; f-strings as a whole, with their expressions in braces."""
    if isinstance(node, ast.JoinedStr):
        parts = [
            str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        ]
        yield node, "".join(parts)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(child)


def _find(
    pattern: re.Pattern[str], text: str, path: Path, *, is_message: bool, line: int | None = None
) -> Iterator[Suggestion]:
    source = str(path.relative_to(ROOT)) + ("" if line is None else f":{line}")
    for match in pattern.finditer(text):
        yield Suggestion(source, " ".join(match[1].split()).rstrip("\\"), is_message)


def parse_words(words: list[str]) -> click.Context:
    """Parse a command with the parser of the command line, to its innermost command."""
    context = root.make_context("stepscope", list(words))
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        assert name is not None
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context
