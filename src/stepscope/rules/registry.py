"""Which rules there are: built-in ones, those of installed packages, those in a user's file.

A package offers rules by entry points of the group `stepscope.rules`, each naming a class. A file
offers them as `path.py:MyRule`. Case and underscores of a name do not count, so that
`dataloader_bottleneck` is `DataloaderBottleneck`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeGuard

from stepscope.errors import UsageError
from stepscope.rules.base import Rule
from stepscope.rules.profiler import RULES
from stepscope.rules.signals import Signals

GROUP = "stepscope.rules"
AnyRule = type[Rule[Any]]


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
        """Add a rule; ValueError when there is one of that name."""
        key = _key(rule.__name__)
        if key in self._rules:
            raise ValueError(f"there are two rules called {rule.__name__}")
        self._rules[key] = rule

    def get(self, name: str) -> AnyRule:
        """The rule of a name; UsageError when there is none."""
        found = self._rules.get(_key(name))
        if found is None:
            raise UsageError(f"There is no rule {name!r}; there are {', '.join(self.names)}.")
        return found


def installed_rules() -> Registry:
    """Built-in rules and those of installed packages."""
    registry = Registry(RULES)
    for offered in entry_points(group=GROUP):
        registry.register(_load_entry_point(offered))
    return registry


def load_rule_file(place: str) -> AnyRule:
    """The rule at `path.py:Class`. UsageError when there is none, or its file cannot be run."""
    path, _, name = place.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"{path} is no file; a rule of your own is given as path.py:MyRule.")
    module_spec = importlib.util.spec_from_file_location(f"stepscope_rules_{file.stem}", file)
    if module_spec is None or module_spec.loader is None:
        raise UsageError(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module  # dataclasses and the rule's page look it up there
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:  # it is the user's code, and may raise anything
        raise UsageError(f"{path} cannot be run: {type(error).__name__}: {error}.") from error
    found: object = getattr(module, name, None)
    if not _is_rule(found):
        rules = [n for n, each in vars(module).items() if _is_rule(each) and each is not Rule]
        raise UsageError(f"{path} has no rule {name!r}; it has {', '.join(rules) or 'none'}.")
    return found


def _load_entry_point(offered: EntryPoint) -> AnyRule:
    """The rule of an entry point; where it cannot be had, one whose evaluation says why."""
    try:
        found: object = offered.load()
        if not _is_rule(found):
            raise TypeError(f"{offered.value} is no subclass of stepscope.rules.Rule")
    except Exception as error:  # noqa: BLE001 - a broken package must not harm the other rules
        return _unloadable(offered.name, error)
    return found


def _unloadable(name: str, error: Exception) -> AnyRule:
    def check(_self: Rule[Any], _signals: Signals) -> None:
        raise error

    return type(name, (Rule,), {"check": check, "__doc__": f"It cannot be loaded: {error}"})


def _is_rule(found: object) -> TypeGuard[AnyRule]:
    return isinstance(found, type) and issubclass(found, Rule)


def _key(name: str) -> str:
    return name.replace("_", "").lower()
