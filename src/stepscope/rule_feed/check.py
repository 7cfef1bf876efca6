"""Evaluation of rules on a run, also where files cannot be read; descriptions of rules."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stepscope import errors, schema, store
from stepscope.rule_feed.feed import DEFAULT_SCAN_NS, RuleFeed
from stepscope.rule_feed.learning import progress_of, recorded_rules
from stepscope.rules import (
    Evaluation,
    Registry,
    Rule,
    installed_rules,
    load_rule_file,
    make_rules,
    page,
    read_assignments,
    read_configuration,
    summary,
)


class RuleDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One rule that can be evaluated."""

    rule: str
    summary: str
    page: str
    """Markdown."""


class RuleReport(msgspec.Struct, frozen=True, kw_only=True):
    """Findings of the rules in a run."""

    findings: list[schema.Finding]
    end_ns: int | None
    """End of the evaluated part of the run."""
    fired: list[str]
    """Rules that fired."""
    deliveries: list[schema.Delivery] = []
    """Alerts that were delivered while the job ran."""
    damage: list[str] = []
    """Parts of the run that could not be read."""


def describe_rules(names: Sequence[str] = ()) -> list[RuleDescription]:
    """Describe rules by name, or all of them; UsageError for an unknown name."""
    registry, registered_names = make_registry(names)
    rules = registry.select(registered_names) or list(registry)
    return [
        RuleDescription(rule=rule.__name__, summary=summary(rule), page=page(rule))
        for rule in rules
    ]


def choose_rules(
    names: Iterable[str] = (),
    *,
    also: Iterable[str] = (),
    without: Collection[str] = (),
    config: Path | None = None,
    assignments: Sequence[str] = (),
) -> list[Rule[Any]]:
    """Create rules with the parameters of a user.

    Args:
        names: names, or `path.py:MyRule`; none for all rules.
        also: additional names; duplicates are allowed.
        without: registered names of rules to leave out.
        config: a TOML or JSON file with a table of parameters per rule.
        assignments: `Name.parameter=value`; they win over the file.

    Raises:
        UsageError: a rule, parameter or value that does not exist, or a file that cannot be read.
    """
    requested = list(names)
    registry, registered_names = make_registry([*requested, *also])
    settings = read_configuration(_read(config), registry) if config else {}
    for name, values in read_assignments(assignments, registry).items():
        settings.setdefault(name, {}).update(values)
    rules = make_rules(registry, registered_names if requested else (), settings)
    requested_rules = registry.select(registered_names)
    for rule in rules:
        rule.is_requested = type(rule) in requested_rules
    return [rule for rule in rules if rule.name not in without]


def rule_names(names: Sequence[str], among: Sequence[str] = ()) -> list[str]:
    """Return the registered names of rules; UsageError for one that does not exist.

    Args:
        names: as users write them.
        among: rules known in addition to the installed ones, as `path.py:MyRule`.
    """
    registry, registered_names = make_registry([*names, *among])
    return [rule.__name__ for rule in registry.select(registered_names[: len(names)])]


def check_rules(
    reader: store.RunReader, rules: Iterable[Rule[Any]], *, scan_ns: int = DEFAULT_SCAN_NS
) -> RuleReport:
    """Evaluate rules on a run, as far as it has been written."""
    evaluation = Evaluation(rules)
    for inputs in RuleFeed(reader, scan_ns=scan_ns).ranges(final=True):
        evaluation.feed(inputs)
    return rule_report(reader, evaluation)


def rule_report(reader: store.RunReader, evaluation: Evaluation) -> RuleReport:
    """Report the findings of an evaluation so far."""
    findings = [
        msgspec.structs.replace(finding, evidence=_list_filled_views(reader, finding.evidence))
        for finding in evaluation.findings(progress_of(reader))
    ]
    recorded = recorded_rules(reader)
    return RuleReport(
        findings=findings,
        end_ns=evaluation.end_ns,
        fired=[finding.rule for finding in findings if finding.fired],
        deliveries=recorded.deliveries if recorded else [],
        damage=list(reader.damage),
    )


_TABLES_OF_VIEWS = {
    "system": ("metrics",),
    "memory": ("memory_events", "memory_categories", "metrics"),
    "gpu-metrics": ("kernels",),
}
"""Tables that views show."""


def _list_filled_views(reader: store.RunReader, evidence: Sequence[str]) -> list[str]:
    """List the views of a finding that have something to show."""
    return [
        view
        for view in evidence
        if view not in _TABLES_OF_VIEWS
        or any(reader.row_count(table) for table in _TABLES_OF_VIEWS[view])
    ]


def make_registry(names: Sequence[str]) -> tuple[Registry, list[str]]:
    """Return installed rules with those of files among the names, and the registered names."""
    registry = installed_rules()
    registered_names: dict[str, str] = {}
    for file_rule in dict.fromkeys(name for name in names if ":" in name):
        rule = load_rule_file(file_rule)
        try:
            registry.register(rule)
        except ValueError as error:
            raise errors.UsageError(f"{file_rule}: {error}; give yours another name.") from error
        registered_names[file_rule] = rule.__name__
    return registry, [registered_names.get(name, name) for name in names]


def _read(config: Path) -> dict[str, Any]:
    try:
        text = config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.UsageError(f"{config} cannot be read: {error}.") from error
    try:
        settings = json.loads(text) if config.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise errors.UsageError(
            f"{config} is neither TOML nor, as .json, JSON: {error}."
        ) from error
    if not isinstance(settings, dict):
        raise errors.UsageError(f"{config} holds no table of parameters per rule.")
    return settings


UNREADABLE_INPUTS = (
    "a part of the data that this rule reads cannot be read, so its figures are withheld"
)


def withhold_damaged(
    reader: store.RunReader, rules: Iterable[Rule[Any]], findings: Iterable[schema.Finding]
) -> list[schema.Finding]:
    """Withhold the figures of rules that read damaged files.

    Args:
        reader: reader with which the rules were evaluated: its `damage` is complete.
        rules: the rules.
        findings: their findings.

    Returns:
        The findings. Those of rules that read a damaged file have no sentences and no details;
        the files may hold what such a rule looks for, so it does not report that there is no issue.
    """
    if not reader.damage:
        return list(findings)
    damaged = {rule.name for rule in rules if _reads_damage(reader, rule)}
    return [_withhold(item) if item.rule in damaged else item for item in findings]


def _reads_damage(reader: store.RunReader, rule: Rule[Any]) -> bool:
    """Evaluate a rule alone, which shows what it reads."""
    with reader.trace_use() as traced:
        evaluation = Evaluation([rule])
        for inputs in RuleFeed(reader, inputs_reader=traced).ranges(final=True):
            evaluation.feed(inputs)
        evaluation.findings()
        return bool(traced.damage_used)


def _withhold(finding: schema.Finding) -> schema.Finding:
    if finding.error is not None:
        return finding
    return msgspec.structs.replace(
        finding,
        status=schema.RuleStatus.NOT_APPLICABLE
        if finding.status is schema.RuleStatus.NO_ISSUES_FOUND
        else finding.status,
        details={},
        sentences=[],
        missing=UNREADABLE_INPUTS,
    )
