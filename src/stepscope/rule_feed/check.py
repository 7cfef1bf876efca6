"""Rules evaluated on a run, and what there is to know about rules: for commands and reports.

While a job runs under `stepscope run`, the watch process evaluates its rules and keeps what they
found in the run: `recorded_rules` reads that, at no cost.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stepscope.errors import UsageError
from stepscope.rule_feed.feed import DEFAULT_SCAN_NS, RunFeed
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
from stepscope.schema import Delivery, Finding, JobState, Progress, RuleRecord
from stepscope.store import RunReader

RULES_DOCUMENT = "rules"
"""Name of the document among a run's findings that the watch process writes."""


class RuleDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One rule that can be evaluated."""

    rule: str
    summary: str
    page: str
    """Markdown."""


class RuleReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules found in a run."""

    findings: list[Finding]
    end_ns: int | None
    """Up to when the run was looked at."""
    fired: list[str]
    """Rules that found issues."""
    deliveries: list[Delivery] = []
    """Who was told while the job ran."""
    damage: list[str] = []
    """What of the run could not be read."""


def describe_rules(names: Sequence[str] = ()) -> list[RuleDescription]:
    """Rules by name, or all of them. UsageError for a name that is none."""
    registry, chosen = _registry(names)
    rules = [registry.get(name) for name in chosen] or list(registry)
    return [
        RuleDescription(rule=rule.__name__, summary=summary(rule), page=page(rule))
        for rule in rules
    ]


def choose_rules(
    names: Iterable[str] = (),
    *,
    also: Iterable[str] = (),
    config: Path | None = None,
    assignments: Sequence[str] = (),
) -> list[Rule[Any]]:
    """Rules with the parameters that a user wants.

    Args:
        names: names, or `path.py:MyRule`; none for all rules.
        also: further ones, which may be among them.
        config: a TOML or JSON file with a table of parameters per rule.
        assignments: `Name.parameter=value`; they win over the file.

    Raises:
        UsageError: a rule, parameter or value that does not exist, or a file that cannot be read.
    """
    asked = list(names)
    registry, chosen = _registry([*asked, *also])
    settings = read_configuration(_read(config), registry) if config else {}
    for name, values in read_assignments(assignments, registry).items():
        settings.setdefault(name, {}).update(values)
    return make_rules(registry, chosen if asked else (), settings)


def rule_names(names: Sequence[str], among: Sequence[str] = ()) -> list[str]:
    """Rules as they are called; UsageError for one that does not exist.

    Args:
        names: as users write them.
        among: rules that are known besides those installed, as `path.py:MyRule`.
    """
    registry, chosen = _registry([*names, *among])
    return [registry.get(name).__name__ for name in chosen[: len(names)]]


def recorded_rules(reader: RunReader) -> RuleRecord | None:
    """What the watch process has recorded of the rules so far; None where there was none."""
    return reader.document(RULES_DOCUMENT, as_type=RuleRecord)


def check_rules(
    reader: RunReader, rules: Iterable[Rule[Any]], *, scan_ns: int = DEFAULT_SCAN_NS
) -> RuleReport:
    """What rules find in a run, as far as it has been written."""
    evaluation = Evaluation(rules)
    for signals in RunFeed(reader, scan_ns=scan_ns).ranges(final=True):
        evaluation.feed(signals)
    return rule_report(reader, evaluation)


def rule_report(reader: RunReader, evaluation: Evaluation) -> RuleReport:
    """What an evaluation has found so far."""
    findings = evaluation.findings(progress_of(reader))
    recorded = recorded_rules(reader)
    return RuleReport(
        findings=findings,
        end_ns=evaluation.end_ns,
        fired=[finding.rule for finding in findings if finding.fired],
        deliveries=recorded.deliveries if recorded else [],
        damage=list(reader.damage),
    )


def progress_of(reader: RunReader) -> Progress:
    """Whether more may come of a run, by its job's status."""
    states = [status.state for status in reader.statuses().values()]
    growing = {JobState.IN_PROGRESS, JobState.STOPPING}
    return "running" if any(state in growing for state in states) else "ended"


def _registry(names: Sequence[str]) -> tuple[Registry, list[str]]:
    """Installed rules and those of the files among the names; and the names without files."""
    registry = installed_rules()
    called: dict[str, str] = {}
    for place in dict.fromkeys(name for name in names if ":" in name):
        rule = load_rule_file(place)
        try:
            registry.register(rule)
        except ValueError as error:
            raise UsageError(f"{place}: {error}; give yours another name.") from error
        called[place] = rule.__name__
    return registry, [called.get(name, name) for name in names]


def _read(config: Path) -> dict[str, Any]:
    try:
        text = config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{config} cannot be read: {error}.") from error
    try:
        found = json.loads(text) if config.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise UsageError(f"{config} is neither TOML nor, as .json, JSON: {error}.") from error
    if not isinstance(found, dict):
        raise UsageError(f"{config} holds no table of parameters per rule.")
    return found
