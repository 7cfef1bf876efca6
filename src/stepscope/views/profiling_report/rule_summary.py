"""All rules in one table."""

from __future__ import annotations

from stepscope.rule_feed import DEFAULT_SCAN_NS
from stepscope.rules import summary
from stepscope.views.profiling_report.blocks import (
    Block,
    Cell,
    Column,
    Missing,
    Section,
    Table,
    Text,
)
from stepscope.views.profiling_report.evaluated import Evaluated

SCANS = (
    f"A rule triggers once in each scan of {DEFAULT_SCAN_NS // 10**9} seconds in which its "
    "condition holds."
)


def build_rules_section(evaluated: Evaluated) -> Section:
    """List the rules by how often they triggered, without rules that only summarize."""
    listed = [f for name, f in evaluated.findings.items() if evaluated.rules[name].can_fire]
    listed.sort(key=lambda finding: -finding.rule_triggered)
    if not listed:
        blocks: list[Block] = [Missing(text="No rule was evaluated.")]
        return Section(id="rules", title="Rules summary", blocks=blocks)
    top = listed[0]
    sentence = (
        f"{top.rule} was triggered most often: it processed {top.datapoints:,} datapoints and "
        f"was triggered {top.rule_triggered:,} times."
        if top.rule_triggered
        else "No rule was triggered."
    )
    rows: list[list[Cell]] = []
    for finding in listed:
        rule = evaluated.rules[finding.rule]
        rows.append(
            [
                finding.rule,
                str(finding.status),
                finding.rule_triggered,
                finding.datapoints,
                summary(type(rule)),
                rule.recommendation,
                finding.rule_parameters,
            ]
        )
    table = Table(
        title="Rules",
        columns=[
            Column(label="Rule"),
            Column(label="Status"),
            Column(label="Number of times rule triggered", digits=0),
            Column(label="Number of datapoints", digits=0),
            Column(label="Description"),
            Column(label="Recommendation"),
            Column(label="Rule parameters"),
        ],
        rows=rows,
    )
    return Section(
        id="rules", title="Rules summary", blocks=[Text(text=f"{sentence} {SCANS}"), table]
    )
