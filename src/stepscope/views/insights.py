"""`insights`: every rule, what it found, and what was measured at that time.

A range of time chooses among the findings of the whole run. Rules are not evaluated on the range
alone: what they compare a moment with lies before it, and a finding must not change with the range
through which it is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stepscope.rule_feed import (
    DEFAULT_SCAN_NS,
    check_rules,
    choose_rules,
    progress_of,
    recorded_rules,
)
from stepscope.rules import Rule, describe_parameters, page, summary
from stepscope.run import Run, RunRange
from stepscope.schema import Finding, RuleRecord
from stepscope.views.evidence import charts
from stepscope.views.insights_payload import InsightsView, RuleInsight, RuleParameter
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import TimeRange, time_range

FINDINGS_OF = (
    "findings between whose first and last scan it lies, or a part of it, and those about no time "
    "in particular; their numbers are those of the whole run"
)
NO_PAGE = "This rule is not installed here: its page cannot be shown."


def insights(run: Run, _options: ViewOptions = DEFAULTS) -> InsightsView:
    """Every rule, what it found, and what was measured at that time."""
    whole, within = _whole(run)
    recorded = recorded_rules(whole.reader)
    record = recorded or _evaluate(whole)
    installed = {rule.name: rule for rule in choose_rules()}
    origin = whole.clock.origin_ns
    shown = [
        finding
        for finding in record.findings
        if within is None or not finding.fired or _reaches_into(finding, record.scan_ns, within)
    ]
    found = [
        _insight(whole, finding, installed, scan_ns=record.scan_ns, origin_ns=origin)
        for finding in shown
    ]
    fired = [finding.rule for finding in shown if finding.fired]
    names = {finding.rule for finding in shown}
    return InsightsView(
        range=None if within is None else _range(within),
        source="recorded" if recorded is not None else "evaluated now",
        progress=record.progress,
        until_after_ns=None if record.end_ns is None else record.end_ns - origin,
        scan_ns=record.scan_ns,
        fired=fired,
        fired_count=len(record.fired),
        rules=sorted(found, key=lambda rule: (rule.rule not in fired, -rule.triggered_count)),
        deliveries=[told for told in record.deliveries if told.rule in names],
        notes=record.notes,
        missing=None if record.findings else "no rule was evaluated",
    )


def _whole(run: Run) -> tuple[Run, RunRange | None]:
    """The whole run, and the range that was asked for."""
    return (run.unrestricted, run) if isinstance(run, RunRange) else (run, None)


def _reaches_into(finding: Finding, scan_ns: int, within: RunRange) -> bool:
    if finding.first_ns is None or finding.last_ns is None:
        return True
    return finding.first_ns - scan_ns < within.end_ns and finding.last_ns >= within.start_ns


def _range(within: RunRange) -> TimeRange:
    return msgspec.structs.replace(time_range(within), range_of=FINDINGS_OF, notes=[])


def _evaluate(run: Run) -> RuleRecord:
    """What the watch process would have recorded."""
    checked = check_rules(run.reader, choose_rules())
    return RuleRecord(
        progress=progress_of(run.reader),
        end_ns=checked.end_ns,
        scan_ns=DEFAULT_SCAN_NS,
        written_ns=checked.end_ns or 0,
        findings=checked.findings,
        deliveries=checked.deliveries,
        notes=checked.damage,
    )


def _insight(
    run: Run,
    finding: Finding,
    installed: Mapping[str, Rule[Any]],
    *,
    scan_ns: int,
    origin_ns: int,
) -> RuleInsight:
    rule = installed.get(finding.rule)
    return RuleInsight(
        rule=finding.rule,
        summary=summary(type(rule)) if rule is not None else "",
        status=finding.status,
        triggered_count=finding.rule_triggered,
        violation_count=finding.violations,
        datapoint_count=finding.datapoints,
        first_after_ns=_after(finding.first_ns, origin_ns),
        last_after_ns=_after(finding.last_ns, origin_ns),
        sentences=finding.sentences,
        recommendation=finding.recommendation,
        nodes=finding.nodes,
        ranks=finding.ranks,
        devices=finding.devices,
        evidence=finding.evidence,
        charts=charts(run, finding, rule.plots, scan_ns=scan_ns, origin_ns=origin_ns)
        if rule is not None and finding.fired
        else [],
        parameters=_parameters(finding, rule),
        page=page(type(rule)) if rule is not None else NO_PAGE,
        details=finding.details,
        missing=finding.missing,
        error=finding.error,
    )


def _after(t_ns: int | None, origin_ns: int) -> int | None:
    return None if t_ns is None else t_ns - origin_ns


def _parameters(finding: Finding, rule: Rule[Any] | None) -> list[RuleParameter]:
    """With the values that the rule was evaluated with."""
    parameters = describe_parameters(rule.parameters_type) if rule is not None else []
    declared = {parameter.name: parameter for parameter in parameters}
    found = []
    for line in finding.rule_parameters.splitlines():
        name, _, value = line.partition(":")
        known = declared.get(name)
        found.append(
            RuleParameter(
                name=name,
                value=value,
                default=str(known.default) if known is not None else None,
                takes=known.accepts if known is not None else "",
                doc=known.doc if known is not None else "",
            )
        )
    return found
