"""The text of `insights`."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from stepscope.cli.text import table
from stepscope.cli.writers.generic import write_sentences
from stepscope.quantities import count, duration
from stepscope.views import InsightsView, RuleInsight


def write_insights(out: Console, payload: InsightsView) -> None:
    """Write what each rule found."""
    until = "" if payload.until_after_ns is None else f" up to {duration(payload.until_after_ns)}"
    out.print(f"[dim]rules {payload.source}{until}[/dim]")
    if payload.range is not None:
        out.print(
            f"[dim]{len(payload.fired)} of {payload.fired_count} findings are in this range[/dim]"
        )
    if payload.missing is not None:
        out.print(escape(payload.missing))
    rows = table("rule", "status", "triggered", "violations", "datapoints")
    for rule in payload.rules:
        rows.add_row(
            escape(rule.rule),
            str(rule.status),
            count(rule.triggered_count),
            count(rule.violation_count),
            count(rule.datapoint_count),
        )
    out.print(rows)
    for rule in payload.rules:
        if rule.rule in payload.fired:
            _write_fired(out, rule)
    write_sentences(out, payload.notes)


def _write_fired(out: Console, rule: RuleInsight) -> None:
    out.print()
    when = ""
    if rule.first_after_ns is not None and rule.last_after_ns is not None:
        first, last = duration(rule.first_after_ns), duration(rule.last_after_ns)
        when = f"  at {first}" if first == last else f"  from {first} to {last}"
    out.print(f"[bold]{escape(rule.rule)}[/bold][dim]{when}[/dim]")
    write_sentences(out, rule.sentences)
    out.print(escape(rule.recommendation))
