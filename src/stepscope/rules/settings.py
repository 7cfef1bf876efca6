"""Parameters of several rules at once: from a configuration, or `Name.parameter=value`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepscope.errors import UsageError
from stepscope.rules.base import Rule
from stepscope.rules.registry import Registry

Settings = Mapping[str, Mapping[str, object]]
"""Values by rule and parameter."""


def read_assignments(texts: Iterable[str], registry: Registry) -> dict[str, dict[str, object]]:
    """Settings from `Name.parameter=value` or `Name_parameter=value`, later ones winning.

    Raises:
        UsageError: text of another form, or of a rule that does not exist.
    """
    found: dict[str, dict[str, object]] = {}
    for text in texts:
        target, equals, value = text.partition("=")
        name, dot, parameter = target.strip().partition(".")
        if not equals or not target.strip():
            raise UsageError(f"{text!r} sets nothing; write Name.parameter=value.")
        if not dot:
            name, parameter = _divide(name, registry)
        found.setdefault(registry.get(name).__name__, {})[parameter.strip()] = value.strip()
    return found


def read_configuration(content: Mapping[str, Any], registry: Registry) -> dict[str, dict[str, Any]]:
    """Settings from a parsed TOML or JSON document: tables by rule, perhaps below `rules`.

    Raises:
        UsageError: a rule that does not exist, or something else than a table of parameters.
    """
    tables = content.get("rules", content)
    found: dict[str, dict[str, Any]] = {}
    if not isinstance(tables, Mapping):
        raise UsageError("A configuration of rules holds a table of parameters per rule.")
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise UsageError(f"The configuration of {name} is no table of parameters.")
        found.setdefault(registry.get(name).__name__, {}).update(table)
    return found


def make_rules(registry: Registry, names: Iterable[str], settings: Settings) -> list[Rule[Any]]:
    """Rules with their parameters.

    Args:
        registry: where they are.
        names: which; none for all of them.
        settings: by name of the rule as registered.

    Raises:
        UsageError: an unknown rule or parameter, or a value that a parameter does not take.
    """
    chosen = list(dict.fromkeys(registry.get(name) for name in names)) or list(registry)
    made = {rule: rule(**settings.get(rule.__name__, {})) for rule in registry}
    return [made[rule] for rule in chosen]


def _divide(target: str, registry: Registry) -> tuple[str, str]:
    """Name and parameter of `Name_parameter`, by the longest name that is a rule's."""
    places = [i for i, letter in enumerate(target) if letter == "_"]
    for place in reversed(places):
        try:
            return registry.get(target[:place]).__name__, target[place + 1 :]
        except UsageError:
            continue
    raise UsageError(
        f"{target!r} names no parameter of a rule; write Name.parameter=value, with one of "
        f"{', '.join(registry.names)}."
    )
