"""Findings on a run of which some files cannot be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from stepscope.rule_feed.feed import RuleFeed
from stepscope.rules import Evaluation, Rule
from stepscope.schema import Finding, RuleStatus
from stepscope.store import RunReader

UNREADABLE_INPUTS = (
    "a part of the data that this rule reads cannot be read, so its figures are withheld"
)


def withhold_damaged(
    reader: RunReader, rules: Iterable[Rule[Any]], findings: Iterable[Finding]
) -> list[Finding]:
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


def _reads_damage(reader: RunReader, rule: Rule[Any]) -> bool:
    """Evaluate a rule alone, which shows what it reads."""
    with reader.trace_use() as traced:
        evaluation = Evaluation([rule])
        for inputs in RuleFeed(reader, inputs_reader=traced).ranges(final=True):
            evaluation.feed(inputs)
        evaluation.findings()
        return bool(traced.damage_used)


def _withhold(finding: Finding) -> Finding:
    if finding.error is not None:
        return finding
    return msgspec.structs.replace(
        finding,
        status=RuleStatus.NOT_APPLICABLE
        if finding.status is RuleStatus.NO_ISSUES_FOUND
        else finding.status,
        details={},
        sentences=[],
        missing=UNREADABLE_INPUTS,
    )
