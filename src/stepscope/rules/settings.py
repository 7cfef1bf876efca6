"""Settings: parameters of several rules, from a configuration or `Name.parameter=value`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepscope.errors import UsageError
from stepscope.rules.base import Rule
from stepscope.rules.registry import Registry, is_profiler_report

Settings = Mapping[str, Mapping[str, object]]
"""Values by rule and parameter."""


def read_assignments(texts: Iterable[str], registry: Registry) -> dict[str, dict[str, object]]:
    """Read settings from `Name.parameter=value` or `Name_parameter=value`; the last one wins.

    `ProfilerReport.Name_parameter=value` sets the parameter of that rule.

    Raises:
        UsageError: text of another form, or an unknown rule.
    """
    settings: dict[str, dict[str, object]] = {}
    for text in texts:
        target, equals, value = text.partition("=")
        name, dot, parameter = target.strip().partition(".")
        if not equals or not target.strip():
            raise UsageError(f"Invalid setting {text!r}. Expected: Name.parameter=value.")
        if not dot or is_profiler_report(name):
            combined = parameter if dot else _remove_report_name(name)
            if _is_telemetry_setting(combined, value.strip()):
                continue
            name, parameter = _split_target(combined, registry)
        settings.setdefault(registry.get(name).__name__, {})[parameter.strip()] = value.strip()
    return settings


def read_configuration(content: Mapping[str, Any], registry: Registry) -> dict[str, dict[str, Any]]:
    """Read settings from a parsed TOML or JSON document: tables by rule, optionally below `rules`.

    A table `ProfilerReport` has keys such as `LowGPUUtilization_threshold`.

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
        if not is_profiler_report(name):
            settings.setdefault(registry.get(name).__name__, {}).update(table)
            continue
        for target, value in table.items():
            if _is_telemetry_setting(target, value):
                continue
            rule, parameter = _split_target(target, registry)
            settings.setdefault(rule, {})[parameter] = value
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
    requested = registry.select(names)
    rules = {rule: rule(**settings.get(rule.__name__, {})) for rule in registry}
    for rule in rules.values():
        rule.is_requested = type(rule) in requested
    return [rules[rule] for rule in requested or registry]


def _remove_report_name(target: str) -> str:
    """Remove `ProfilerReport_` from the start of a target."""
    first, _, rest = target.partition("_")
    return rest if rest and is_profiler_report(first) else target


def _is_telemetry_setting(target: str, value: object) -> bool:
    """Return True for a parameter of Debugger's report that stands for nothing here, where no
    telemetry is sent.

    Raises:
        UsageError: its value is not a boolean.
    """
    if target.strip().lower() != "opt_out_telemetry":
        return False
    if str(value).lower() not in {"true", "false"}:
        raise UsageError(f"Invalid value {value!r} for opt_out_telemetry. Expected: true or false.")
    return True


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
