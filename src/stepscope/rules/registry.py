"""Registry of rules: built-in, installed and the user's own; settings and documentation pages.

A package offers rules through entry points of the group `stepscope.rules`, each naming a class. A
file offers one as `path.py:MyRule`. Names ignore case and underscores: `dataloader_bottleneck` is
`DataloaderBottleneck`. `ProfilerReport` stands for all rules of the report of SageMaker Debugger.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from stepscope import errors, quantities
from stepscope.entry_points import entry_points
from stepscope.rules.base import Rule
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import describe_parameters
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
            similar = errors.name_similar(name, self.names)
            raise errors.UsageError(
                f"Unknown rule {name!r}.{similar} Rules: {', '.join(self.names)}."
            )
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
        raise errors.UsageError(f"File not found: {path}. Specify a custom rule as path.py:MyRule.")
    module_spec = importlib.util.spec_from_file_location(f"stepscope_rules_{file.stem}", file)
    if module_spec is None or module_spec.loader is None:
        raise errors.UsageError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module  # dataclasses and the rule's page look it up there
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:  # user code may raise anything
        raise errors.UsageError(f"Cannot run {path}: {type(error).__name__}: {error}.") from error
    rule: object = getattr(module, name, None)
    if not _is_rule(rule):
        rules = [n for n, item in vars(module).items() if _is_rule(item) and item is not Rule]
        raise errors.UsageError(f"No rule {name!r} in {path}. Rules: {', '.join(rules) or 'none'}.")
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
            raise errors.UsageError(f"Invalid setting {text!r}. Expected: Name.parameter=value.")
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
        raise errors.UsageError("A rule configuration must be a table of parameters per rule.")
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise errors.UsageError(f"The configuration of {name} must be a table of parameters.")
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
    selected = registry.select(names) or list(registry)
    rules = {rule: rule(**settings.get(rule.__name__, {})) for rule in registry}
    return [rules[rule] for rule in selected]


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
        raise errors.UsageError(
            f"Invalid value {value!r} for opt_out_telemetry. Expected: true or false."
        )
    return True


def _split_target(target: str, registry: Registry) -> tuple[str, str]:
    """Split `Name_parameter` after the longest name of a rule."""
    separators = [index for index, letter in enumerate(target) if letter == "_"]
    for index in reversed(separators):
        try:
            return registry.get(target[:index]).__name__, target[index + 1 :]
        except errors.UsageError:
            continue
    raise errors.UsageError(
        f"No rule in {target!r}. Expected: Name.parameter=value, with one of "
        f"{', '.join(registry.names)}."
    )


HEADINGS = (
    "What it checks",
    "Why it matters",
    "What to do",
    "Parameters",
    "Where the numbers differ from SageMaker Debugger's",
)
"""Headings of the page of every built-in rule, in this order."""
AFTER_PARAMETERS = HEADINGS[4]
"""Heading that follows the parameters."""


def summary(rule: type[Rule[Any]]) -> str:
    """Return the first sentence of a rule's page."""
    return (inspect.getdoc(rule) or "").partition("\n\n")[0].replace("\n", " ")


def page(rule: type[Rule[Any]]) -> str:
    """Return the page of a rule in Markdown."""
    text = inspect.getdoc(rule) or "This rule has no page."
    body, heading, rest = text.partition(f"## {AFTER_PARAMETERS}")
    parts = [f"# {rule.__name__}", body.strip(), _parameters(rule)]
    if heading:
        parts.append(f"{heading}\n{rest.strip()}")
    return "\n\n".join(parts) + "\n"


def _parameters(rule: type[Rule[Any]]) -> str:
    rows = []
    for parameter in describe_parameters(rule.parameters_type):
        aliases = [alias for alias, name in rule.aliases.items() if name == parameter.name]
        note = f" Alias: `{'`, `'.join(aliases)}`." if aliases else ""
        default = parameter.default
        shown = quantities.number(default) if isinstance(default, float) else default
        rows.append(
            f"- `{parameter.name}` (default {shown}; {parameter.accepts}): {parameter.doc}{note}"
        )
    return "## Parameters\n" + ("\n".join(rows) or "None.")
