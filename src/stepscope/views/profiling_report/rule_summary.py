"""All rules in one table."""

from __future__ import annotations

from stepscope.quantities import count_of
from stepscope.rule_feed import DEFAULT_SCAN_NS
from stepscope.rules import summary
from stepscope.views.profiling_report.blocks import (
    Block,
    Cell,
    Section,
    Table,
    Text,
)
from stepscope.views.profiling_report.building import make_number_columns, make_text_columns
from stepscope.views.profiling_report.rule_results import RuleResults

SCANS = (
    f"A rule triggers once in each scan of {DEFAULT_SCAN_NS // 10**9} seconds in which its "
    "condition holds."
)


def build_rules_section(results: RuleResults) -> Section:
    """List the rules by how often they triggered, without rules that only summarize."""
    listed = [f for name, f in results.findings.items() if results.rules[name].can_fire]
    listed.sort(key=lambda finding: -finding.rule_triggered)
    if not listed:
        blocks: list[Block] = [Text(text="No rule was evaluated.", tone="missing")]
        return Section(id="rules", title="Rules summary", blocks=blocks)
    top = listed[0]
    sentence = (
        f"{top.rule} triggered most often: {count_of(top.rule_triggered, 'time')} for "
        f"{count_of(top.datapoints, 'datapoint')}."
        if top.rule_triggered
        else "No rule triggered."
    )
    rows: list[list[Cell]] = [
        [
            finding.rule,
            str(finding.status),
            finding.rule_triggered,
            finding.datapoints,
            summary(type(results.rules[finding.rule])),
            results.rules[finding.rule].recommendation,
            finding.rule_parameters,
        ]
        for finding in listed
    ]
    table = Table(
        title="Rules",
        columns=[
            *make_text_columns("Rule", "Status"),
            *make_number_columns(
                "Number of times rule triggered", "Number of datapoints", digits=0
            ),
            *make_text_columns("Description", "Recommendation", "Rule parameters"),
        ],
        rows=rows,
    )
    return Section(
        id="rules", title="Rules summary", blocks=[Text(text=f"{sentence} {SCANS}"), table]
    )
