"""Catalogue of the errors that users see, read from the source.

Finds every call that makes an error of users, or a fault of the environment, and the template of
its message: text, and names of what is inserted. Constants, variables and functions are followed.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "stepscope"
FLOORS = {path.stem for path in PACKAGE.iterdir()}
"""Names of the packages, which are imported whole."""
KINDS = ("StepscopeError", "Refusal", "ActionError")
"""Classes of errors of users; their subclasses are, too."""
INVALID_VALUE = "BadParameter"
"""Class of click for values of options, which is a usage error."""
FAULT, FAULT_TEXTS = "Fault", ("finding", "consequence", "remedy")
MAX_ALTERNATIVES = 12
SIMILAR = "name_similar"
"""Function for the sentence that may follow a message: "Did you mean …?"."""
MAX_DEPTH = 3
MIN_LETTERS = 8
"""Letters below which a template has no message of its own: it passes on another one."""

_REMEDY = re.compile(
    r"(?<=[.;:]) (?=(?:"
    "activate|add|attach|choose|copy|create|drag|expected|give|import|install|keep|leave|list|load|"
    "name|options|pass|please|raise|recover|record|repeat|remove|run|save|see|select|set|show|"
    "specify|tables|these can|try|upgrade|use|write|available|its tables|there are|the run has|"
    r"the verdict has|known are|rules|parameters|supported services|if)\b)",
    re.IGNORECASE,
)
"""Start of the part of a message that says what to do, or what is accepted."""

Template = tuple[str, ...]
"""Text, name, text, …, text: the names stand for what is inserted."""


class Message(NamedTuple):
    """Message that users may see."""

    kind: str
    location: str
    """File and line."""
    template: Template

    @property
    def text(self) -> str:
        """Message with names in braces."""
        return "".join(
            f"{{{part}}}" if index % 2 else part for index, part in enumerate(self.template)
        )


class Fault(NamedTuple):
    """Fault of the environment: finding, consequence and remedy."""

    location: str
    texts: list[list[Message]]
    """Alternatives of each of `FAULT_TEXTS`."""


class Catalogue(NamedTuple):
    """All errors of users."""

    docs: dict[str, str]
    """Docstring by kind, in the order of the source."""
    messages: list[Message]
    faults: list[Fault]


def list_faults() -> str:
    """Return the table of faults of the environment."""
    rows = (_row(map(_join_texts, fault.texts)) for fault in read_catalogue().faults)
    return "| fault | consequence | what to do |\n|---|---|---|\n" + "".join(rows)


def list_messages() -> str:
    """Return a section for each kind of error."""
    catalogue = read_catalogue()
    lines = []
    for kind, doc in catalogue.docs.items():
        messages = [message for message in catalogue.messages if message.kind == kind]
        lines.append(f"\n## {kind}\n\n{doc}\n")
        if messages:
            lines.append("\n| message | what to do |\n|---|---|\n")
            lines += sorted(map(_message_row, messages), key=lambda row: row.lstrip("| {").lower())
    return "".join(lines)


def _join_texts(messages: Iterable[Message]) -> str:
    return " / ".join(message.text for message in messages)


def _message_row(message: Message) -> str:
    start = _REMEDY.search(message.text)
    end = start.start() if start else len(message.text)
    return _row((message.text[:end].rstrip(":;"), message.text[end:].strip()))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


@cache
def read_catalogue() -> Catalogue:
    """Read the source."""
    modules = [_Module(path) for path in sorted(PACKAGE.rglob("*.py"))]
    docs = _find_kinds(modules)
    messages: dict[tuple[str, str], Message] = {}
    faults = []
    for module in modules:
        if not module.mentions({*docs, INVALID_VALUE, FAULT}):
            continue
        for call, functions in module.calls():
            name = _called_name(call)
            location = f"{module.path.relative_to(ROOT)}:{call.lineno}"
            if name == FAULT:
                values = {word.arg: word.value for word in call.keywords}
                texts = [
                    [Message(FAULT, location, t) for t in module.templates(values[text], functions)]
                    for text in FAULT_TEXTS
                ]
                faults.append(Fault(location, texts))
            elif name in docs or name == INVALID_VALUE:
                kind = name if name in docs else "UsageError"
                for argument in call.args[:2]:
                    for template in module.templates(argument, functions):
                        message = Message(kind, location, template)
                        if len(re.findall(r"[a-z]", "".join(template[::2]))) >= MIN_LETTERS:
                            messages.setdefault((kind, message.text), message)
    return Catalogue(docs, list(messages.values()), faults)


class _Module:
    """Syntax tree of a module."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = path.read_text()

    def mentions(self, names: Iterable[str]) -> bool:
        """Return True if one of the names is in the text; only then is parsing it worthwhile."""
        return any(name in self._text for name in names)

    @cached_property
    def _tree(self) -> ast.Module:
        return ast.parse(self._text)

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """Classes of the module."""
        return [node for node in self._tree.body if isinstance(node, ast.ClassDef)]

    @cached_property
    def _functions(self) -> dict[str, ast.FunctionDef]:
        return {node.name: node for node in self._tree.body if isinstance(node, ast.FunctionDef)}

    def calls(self) -> Iterator[tuple[ast.Call, list[ast.AST]]]:
        """Yield every call, with the module and the functions that it is in."""
        stack: list[tuple[ast.AST, list[ast.AST]]] = [(self._tree, [self._tree])]
        while stack:
            node, scopes = stack.pop()
            if isinstance(node, ast.Call):
                yield node, scopes
            inner = [*scopes, node] if isinstance(node, ast.FunctionDef) else scopes
            stack += [(child, inner) for child in reversed([*ast.iter_child_nodes(node)])]

    def templates(self, value: ast.expr, scopes: Sequence[ast.AST]) -> list[Template]:
        """Return the templates of a text."""
        return [_joined(parts) for parts in self._alternatives(value, scopes, depth=0)]

    def _alternatives(
        self, value: ast.expr, scopes: Sequence[ast.AST], depth: int
    ) -> list[list[str]]:
        """Return lists of text, name, text, …"""
        if isinstance(value, ast.Constant):
            return [[str(value.value)]]
        if isinstance(value, ast.IfExp):
            branches = (value.body, value.orelse)
            return [a for branch in branches for a in self._alternatives(branch, scopes, depth)]
        if isinstance(value, ast.JoinedStr):
            return self._product(value.values, scopes, depth)
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            return self._product([value.left, value.right], scopes, depth)
        if isinstance(value, ast.FormattedValue):
            return self._alternatives(value.value, scopes, depth + 1)
        if depth > MAX_DEPTH:
            return [["", _name_of(value), ""]]
        if isinstance(value, ast.Name) and (texts := self._assigned(value.id, scopes)):
            return [a for text in texts for a in self._alternatives(text, scopes, depth + 1)]
        if isinstance(value, ast.Call) and _called_name(value) == SIMILAR:
            return [[""]]
        if isinstance(value, ast.Call) and not depth:
            function = self._functions.get(_called_name(value))
            returned = [
                node.value
                for node in ast.walk(function or ast.Pass())
                if isinstance(node, ast.Return) and node.value is not None
            ]
            if function is not None and returned:
                inner = [self._tree, function]
                return [a for text in returned for a in self._alternatives(text, inner, 1)]
        return [["", _name_of(value), ""]]

    def _product(
        self, values: Sequence[ast.expr], scopes: Sequence[ast.AST], depth: int
    ) -> list[list[str]]:
        choices = [self._alternatives(value, scopes, depth) for value in values]
        products = itertools.islice(itertools.product(*choices), MAX_ALTERNATIVES)
        return [_concatenate(parts) for parts in products]

    @staticmethod
    def _assigned(name: str, scopes: Sequence[ast.AST]) -> list[ast.expr]:
        """Return the texts that a variable of the innermost scope that has one may be."""
        for scope in reversed(scopes):
            nodes = ast.walk(scope) if isinstance(scope, ast.FunctionDef) else scope.body
            values = [
                node.value
                for node in nodes
                if isinstance(node, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
            ]
            if values:
                return [value for value in values if _is_text(value)]
        return []


def _find_kinds(modules: Sequence[_Module]) -> dict[str, str]:
    """Find the docstrings of the classes of errors of users."""
    kinds: dict[str, str] = {}
    while True:
        names = {*KINDS, *kinds}
        more = {
            node.name: ast.get_docstring(node) or ""
            for module in modules
            if module.mentions(names)
            for node in module.classes
            if node.name in KINDS or any(_last_word(base) in kinds for base in node.bases)
        }
        if len(more) == len(kinds):
            return more
        kinds = more


def _is_text(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_text(value.body) or _is_text(value.orelse)
    is_constant = isinstance(value, ast.Constant) and value.value not in {0, None, ""}
    return is_constant or isinstance(value, ast.JoinedStr)


def _called_name(call: ast.Call) -> str:
    return _last_word(call.func)


def _last_word(expression: ast.expr) -> str:
    return getattr(expression, "id", getattr(expression, "attr", ""))


def _is_function(called: ast.expr) -> bool:
    """Tell a function, by its name or of a package, from a method."""
    return isinstance(called, ast.Name) or (
        isinstance(called, ast.Attribute)
        and isinstance(called.value, ast.Name)
        and called.value.id in FLOORS
    )


def _name_of(value: ast.AST) -> str:
    """Name what a message inserts: the last word of its expression."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            name = re.sub(r"_(ns|s|bytes)$", "", name.strip("_")).replace("strerror", "reason")
            return name.lower().replace("_", " ")
        case ast.Call(func=ast.Attribute(attr="join"), args=[argument]):
            return _name_of(argument)
        case ast.Call(func=function, args=[argument, *_]) if _is_function(function):
            return _name_of(argument)
        case ast.Call(func=function):
            return _name_of(function)
        case (
            ast.Subscript(value=inner) | ast.Starred(value=inner) | ast.FormattedValue(value=inner)
        ):
            return _name_of(inner)
        case ast.GeneratorExp(generators=[first, *_]):
            return _name_of(first.iter)
        case ast.BinOp(left=left, right=right):
            return _name_of(right if isinstance(left, ast.Constant) else left)
        case ast.IfExp(body=body):
            return _name_of(body)
        case ast.Constant(value=constant):
            return str(constant)
    return "…"


def _concatenate(parts: Sequence[Sequence[str]]) -> list[str]:
    """Concatenate lists of text, name, text, …"""
    joined = [""]
    for first, *rest in parts:
        joined[-1] += first
        joined += rest
    return joined


def _joined(parts: Sequence[str]) -> Template:
    """Merge names without text between them: the longer one says more."""
    joined = [*parts[:1]]
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        if joined[-1] == "" and len(joined) > 1:
            joined[-2] = max(joined[-2], name, key=len)
            joined[-1] = text
        else:
            joined += [name, text]
    return tuple(joined)
