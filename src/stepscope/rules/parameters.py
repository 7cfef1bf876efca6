"""Parameters of rules: which values they take, and how text becomes one."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints

from stepscope.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """The numbers that a parameter may be."""

    words: str
    whole: bool = False
    above: float = -math.inf
    """Exclusive."""
    least: float = -math.inf
    most: float = math.inf

    def read(self, value: object) -> float | int:
        """The number that a value states; ValueError when it is not one of these."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        number = float(value)
        if not (self.above < number and self.least <= number <= self.most):
            raise ValueError
        if self.whole:
            if number != int(number):
                raise ValueError
            return int(number)
        return number


@dataclass(frozen=True, slots=True)
class Choice:
    """The words that a parameter may be; case does not count. None stands for no choice."""

    options: tuple[str, ...]

    @property
    def words(self) -> str:
        """The choices, for people."""
        return "None or one of " + ", ".join(self.options)

    def read(self, value: object) -> str | None:
        """The option that a value states; ValueError when it states none."""
        if value is None or str(value).lower() in {"none", ""}:
            return None
        found = [option for option in self.options if option.lower() == str(value).lower()]
        if not found:
            raise ValueError
        return found[0]


Percentage = Annotated[float, Number(words="a percentage from 0 to 100", least=0, most=100)]
Positive = Annotated[float, Number(words="a finite number above 0", above=0, most=1e300)]
Ratio = Annotated[float, Number(words="a number from 0 to 1", least=0, most=1)]
Count = Annotated[int, Number(words="a whole number from 1 on", whole=True, least=1, most=1e15)]


@dataclass(frozen=True, slots=True)
class NoParameters:
    """For rules that have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a rule as its page shows it."""

    name: str
    default: Any
    takes: str
    doc: str


def describe(kind: type) -> list[Parameter]:
    """The parameters that a dataclass declares, with the docstrings of its fields."""
    kinds, docs = _kinds(kind), _docs(kind)
    return [
        Parameter(
            name=each.name,
            default=each.default,
            takes=kinds[each.name].words if each.name in kinds else "anything",
            doc=docs.get(each.name, ""),
        )
        for each in fields(kind)
    ]


def make_parameters(
    kind: type, given: Mapping[str, object], *, rule: str, aliases: Mapping[str, str]
) -> Any:
    """An instance of a parameter dataclass.

    Args:
        kind: the dataclass.
        given: values by name, text accepted; case does not count.
        rule: name of the rule, for errors.
        aliases: other names of parameters.

    Raises:
        UsageError: a name that is not declared, or a value that the parameter does not take.
    """
    known = {each.name.lower(): each.name for each in fields(kind)}
    known |= {alias.lower(): name for alias, name in aliases.items()}
    kinds = _kinds(kind)
    chosen: dict[str, Any] = {}
    for name, value in given.items():
        if name.lower() not in known:
            valid = ", ".join(each.name for each in fields(kind)) or "none"
            raise UsageError(f"{rule} has no parameter {name!r}; it has {valid}.")
        target = known[name.lower()]
        chosen[target] = _read(kinds, target, value, rule)
    return kind(**chosen)


def parameters_text(parameters: Any) -> str:
    """One `name:value` per line.

    >>> parameters_text(NoParameters())
    ''
    """
    shown = ((each.name, getattr(parameters, each.name)) for each in fields(parameters))
    return "\n".join(f"{name}:{_shown(value)}" for name, value in shown)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _read(kinds: Mapping[str, Number | Choice], name: str, value: object, rule: str) -> Any:
    if name not in kinds:
        return value
    try:
        return kinds[name].read(value)
    except (ValueError, OverflowError):
        raise UsageError(f"{rule}.{name} is {kinds[name].words}, not {value!r}.") from None


def _kinds(kind: type) -> dict[str, Number | Choice]:
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for name, hint in hints.items():
        for part in get_args(hint)[1:]:
            if isinstance(part, Number | Choice):
                found[name] = part
    return found


def _docs(kind: type) -> dict[str, str]:
    """Docstrings of fields, inherited ones included."""
    found: dict[str, str] = {}
    for declaring in reversed(kind.__mro__[:-1]):
        found |= _own_docs(declaring)
    return found


def _own_docs(kind: type) -> dict[str, str]:
    """Docstrings of the fields that a class declares, which Python itself forgets: read from the
    source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):  # made without a source file
        return {}
    definition = tree.body[0]
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    found = {}
    for field, doc in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            value = doc.value if isinstance(doc, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[field.target.id] = " ".join(value.value.split())
    return found
