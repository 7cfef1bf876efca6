"""Registry of rules: built-in ones, those of installed packages, and a user's own.

A package offers rules through entry points of the group `stepscope.rules`, each naming a class. A
file offers one as `path.py:MyRule`. Names ignore case and underscores: `dataloader_bottleneck` is
`DataloaderBottleneck`. `ProfilerReport` stands for all rules of the report of SageMaker Debugger.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from stepscope.entry_points import entry_points
from stepscope.errors import UsageError, name_similar
from stepscope.rules.base import Rule
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.profiler import PROFILER_REPORT, RULES as PROFILER_RULES
from stepscope.rules.tensor import RULES as TENSOR_RULES

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "stepscope.rules"
PROFILER_REPORT_NAME = "ProfilerReport"
AnyRule = type[Rule[Any]]
BUILT_IN_RULES: tuple[AnyRule, ...] = (*PROFILER_RULES, *TENSOR_RULES)


class Registry:
    """Rules by name."""

    def __init__(self, rules: Iterable[AnyRule] = ()) -> None:
        self._rules: dict[str, AnyRule] = {}
        for rule in rules:
            self.register(rule)

    def __iter__(self) -> Iterator[AnyRule]:
        return iter(self._rules.values())

    @property
    def names(self) -> list[str]:
        """Names, in the order of registration."""
        return [rule.__name__ for rule in self]

    def register(self, rule: AnyRule) -> None:
        """Add a rule; ValueError if there is one of that name."""
        key = _key(rule.__name__)
        if key in self._rules:
            raise ValueError(f"there are two rules called {rule.__name__}")
        self._rules[key] = rule

    def get(self, name: str) -> AnyRule:
        """Return the rule of a name; UsageError if there is none."""
        rule = self._rules.get(_key(name))
        if rule is None:
            similar = name_similar(name, self.names)
            raise UsageError(f"Unknown rule {name!r}.{similar} Rules: {', '.join(self.names)}.")
        return rule

    def select(self, names: Iterable[str]) -> list[AnyRule]:
        """Return the rules of names, each once; all rules of the report for `ProfilerReport`.

        Raises:
            UsageError: there is no rule of a name.
        """
        expanded: list[str] = []
        for name in names:
            expanded += PROFILER_REPORT if is_profiler_report(name) else (name,)
        return list(dict.fromkeys(self.get(name) for name in expanded))


def is_profiler_report(name: str) -> bool:
    """Return True for the name that stands for all rules of Debugger's report."""
    return _key(name) == _key(PROFILER_REPORT_NAME)


def installed_rules() -> Registry:
    """Return the built-in rules and those of installed packages."""
    registry = Registry(BUILT_IN_RULES)
    for entry_point in entry_points(GROUP):
        registry.register(_load_entry_point(entry_point))
    return registry


def load_rule_file(reference: str) -> AnyRule:
    """Load the rule at `path.py:Class`.

    Raises:
        UsageError: the file has no such rule, or raises when it runs.
    """
    path, _, name = reference.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"File not found: {path}. Specify a custom rule as path.py:MyRule.")
    module_spec = importlib.util.spec_from_file_location(f"stepscope_rules_{file.stem}", file)
    if module_spec is None or module_spec.loader is None:
        raise UsageError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module  # dataclasses and the rule's page look it up there
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:  # user code may raise anything
        raise UsageError(f"Cannot run {path}: {type(error).__name__}: {error}.") from error
    rule: object = getattr(module, name, None)
    if not _is_rule(rule):
        rules = [n for n, item in vars(module).items() if _is_rule(item) and item is not Rule]
        raise UsageError(f"No rule {name!r} in {path}. Rules: {', '.join(rules) or 'none'}.")
    return rule


def _load_entry_point(entry_point: EntryPoint) -> AnyRule:
    """Load the rule of an entry point; on failure return a rule that reports the error."""
    try:
        rule: object = entry_point.load()
        if not _is_rule(rule):
            raise TypeError(f"{entry_point.value} is not a subclass of stepscope.rules.Rule")
    except Exception as error:  # noqa: BLE001 - a broken package must not affect other rules
        return _failing_rule(entry_point.name, error)
    return rule


def _failing_rule(name: str, error: Exception) -> AnyRule:
    def check(_self: Rule[Any], _inputs: RuleInputs) -> None:
        raise error

    return type(name, (Rule,), {"check": check, "__doc__": f"Cannot be loaded: {error}"})


def _is_rule(value: object) -> TypeGuard[AnyRule]:
    return isinstance(value, type) and issubclass(value, Rule)


def _key(name: str) -> str:
    return name.replace("_", "").lower()
