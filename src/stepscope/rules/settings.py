"""Settings: parameters of several rules, from a configuration or `Name.parameter=value`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepscope.errors import UsageError
from stepscope.rules.base import Rule
from stepscope.rules.registry import Registry

Settings = Mapping[str, Mapping[str, object]]
"""Values by rule and parameter."""


def read_assignments(texts: Iterable[str], registry: Registry) -> dict[str, dict[str, object]]:
    """Read settings from `Name.parameter=value` or `Name_parameter=value`; the last one wins.

    Raises:
        UsageError: text of another form, or an unknown rule.
    """
    settings: dict[str, dict[str, object]] = {}
    for text in texts:
        target, equals, value = text.partition("=")
        name, dot, parameter = target.strip().partition(".")
        if not equals or not target.strip():
            raise UsageError(f"Invalid setting {text!r}. Expected: Name.parameter=value.")
        if not dot:
            name, parameter = _split_target(name, registry)
        settings.setdefault(registry.get(name).__name__, {})[parameter.strip()] = value.strip()
    return settings


def read_configuration(content: Mapping[str, Any], registry: Registry) -> dict[str, dict[str, Any]]:
    """Read settings from a parsed TOML or JSON document: tables by rule, optionally below `rules`.

    Raises:
        UsageError: an unknown rule, or a value that is not a table of parameters.
    """
    tables = content.get("rules", content)
    settings: dict[str, dict[str, Any]] = {}
    if not isinstance(tables, Mapping):
        raise UsageError("A rule configuration must be a table of parameters per rule.")
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise UsageError(f"The configuration of {name} must be a table of parameters.")
        settings.setdefault(registry.get(name).__name__, {}).update(table)
    return settings


def make_rules(registry: Registry, names: Iterable[str], settings: Settings) -> list[Rule[Any]]:
    """Create rules with their parameters.

    Args:
        registry: available rules.
        names: rules to create; empty for all.
        settings: parameters by registered name.

    Raises:
        UsageError: an unknown rule or parameter, or a value that a parameter does not accept.
    """
    selected = list(dict.fromkeys(registry.get(name) for name in names)) or list(registry)
    rules = {rule: rule(**settings.get(rule.__name__, {})) for rule in registry}
    return [rules[rule] for rule in selected]


def _split_target(target: str, registry: Registry) -> tuple[str, str]:
    """Split `Name_parameter` after the longest name of a rule."""
    separators = [index for index, letter in enumerate(target) if letter == "_"]
    for index in reversed(separators):
        try:
            return registry.get(target[:index]).__name__, target[index + 1 :]
        except UsageError:
            continue
    raise UsageError(
        f"No rule in {target!r}. Expected: Name.parameter=value, with one of "
        f"{', '.join(registry.names)}."
    )
