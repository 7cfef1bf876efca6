"""`insights`: every rule with its finding, and the measurements at that time.

A range of time selects among the findings of the whole run. Rules are not evaluated on the range
alone: they compare an interval with earlier ones, and a finding must not depend on the selected
range.
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
    withhold_damaged,
)
from stepscope.rules import Rule, describe_parameters, page, summary
from stepscope.run import Period, Run
from stepscope.schema import Finding, RuleRecord
from stepscope.views.evidence import make_charts
from stepscope.views.insights_payload import InsightsView, RuleInsight, RuleParameter
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import TimeRange, describe_range

FINDINGS_OF = (
    "findings whose scans overlap the range, and findings about the whole run; their figures are "
    "those of the whole run"
)
NO_PAGE = "This rule is not installed here, so its documentation is not available."
NO_RULES = "no rule was evaluated"


def show_insights(run: Run, _options: ViewOptions = DEFAULTS) -> InsightsView:
    """Show every rule with its finding, and the measurements at that time."""
    period, time_range = run.period, None if run.is_whole else _describe_range(run)
    run = run.whole_run
    recorded = recorded_rules(run.reader)
    record = recorded or _evaluate(run)
    installed = {rule.name: rule for rule in choose_rules()}
    origin_ns = run.clock.origin_ns
    findings = [
        finding for finding in record.findings if not finding.fired or _overlaps(finding, period)
    ]
    rules = [_show_rule(run, finding, installed, origin_ns=origin_ns) for finding in findings]
    fired = [finding.rule for finding in findings if finding.fired]
    names = {finding.rule for finding in findings}
    return InsightsView(
        range=time_range,
        source="recorded" if recorded is not None else "evaluated now",
        progress=record.progress,
        until_after_ns=None if record.end_ns is None else record.end_ns - origin_ns,
        scan_ns=record.scan_ns,
        fired=fired,
        fired_count=len(record.fired),
        rules=sorted(rules, key=lambda rule: (rule.rule not in fired, -rule.triggered_count)),
        deliveries=[delivery for delivery in record.deliveries if delivery.rule in names],
        notes=record.notes,
        missing=None if record.findings else NO_RULES,
    )


def _overlaps(finding: Finding, period: Period) -> bool:
    """Return whether the data that violated the condition of a rule overlap a range."""
    if finding.first_ns is None or finding.last_ns is None:
        return True
    return finding.first_ns < period.end_ns and finding.last_ns >= period.start_ns


def _describe_range(run: Run) -> TimeRange:
    return msgspec.structs.replace(describe_range(run), range_of=FINDINGS_OF, notes=[])


def _evaluate(run: Run) -> RuleRecord:
    """Evaluate all rules as the watch process would have."""
    rules = choose_rules()
    checked = check_rules(run.reader, rules)
    return RuleRecord(
        progress=progress_of(run.reader),
        end_ns=checked.end_ns,
        scan_ns=DEFAULT_SCAN_NS,
        written_ns=checked.end_ns or 0,
        findings=withhold_damaged(run.reader, rules, checked.findings),
        deliveries=checked.deliveries,
        notes=[],
    )


def _show_rule(
    run: Run,
    finding: Finding,
    installed: Mapping[str, Rule[Any]],
    *,
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
        first_after_ns=_count_until(run, finding.first_ns),
        last_after_ns=_count_until(run, finding.last_ns),
        sentences=finding.sentences,
        recommendation=finding.recommendation,
        nodes=finding.nodes,
        ranks=finding.ranks,
        devices=finding.devices,
        evidence=finding.evidence,
        charts=make_charts(run, finding, rule.plots, origin_ns=origin_ns)
        if rule is not None and finding.fired
        else [],
        parameters=_show_parameters(finding, rule),
        page=page(type(rule)) if rule is not None else NO_PAGE,
        details=finding.details,
        missing=finding.missing,
        error=finding.error,
    )


def _count_until(run: Run, t_ns: int | None) -> int | None:
    return None if t_ns is None else run.clock.count_until(t_ns)


def _show_parameters(finding: Finding, rule: Rule[Any] | None) -> list[RuleParameter]:
    """Show parameters with the values that the rule was evaluated with."""
    descriptions = describe_parameters(rule.parameters_type) if rule is not None else []
    by_name = {description.name: description for description in descriptions}
    parameters = []
    for line in finding.rule_parameters.splitlines():
        name, _, value = line.partition(":")
        description = by_name.get(name)
        parameters.append(
            RuleParameter(
                name=name,
                value=value,
                default=str(description.default) if description is not None else None,
                takes=description.accepts if description is not None else "",
                doc=description.doc if description is not None else "",
            )
        )
    return parameters
