"""Findings of rules and `insights` as text."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from stepscope import quantities, rule_feed, schema, views
from stepscope.cli.text import clock_time, table
from stepscope.cli.writers.generic import write_damage, write_sentences

EXPORT_NOTE = "The export to "
"""Start of the note about figures that a receiver did not take while the job ran."""
MAX_TARGET_LENGTH = 40


def write_report(out: Console, report: rule_feed.RuleReport) -> None:
    """Write the findings of rules that fired, then a table of all rules."""
    write_damage(out, report.damage)
    for finding in report.findings:
        if finding.fired:
            _write_finding(out, finding)
    overview = table("rule", "status", "triggered", "violations", "datapoints")
    for finding in report.findings:
        overview.add_row(
            finding.rule,
            finding.status.words,
            str(finding.rule_triggered),
            str(finding.violations),
            str(finding.datapoints),
        )
    out.print(overview)
    for finding in report.findings:
        if finding.status is schema.RuleStatus.ERROR:
            out.print(Text(f"{finding.rule} failed: {finding.error}"))
    missing = [f for f in report.findings if f.missing]
    if missing:
        out.print()
    for finding in missing:
        out.print(Text(f"{finding.rule}: {finding.missing}", style="dim"))
    write_deliveries(out, report.deliveries)


def write_summary(out: Console, record: schema.RuleRecord) -> None:
    """Write the rules that fired while a job ran, one line each, and the deliveries."""
    if record.fired:
        out.print()
        out.print("[bold]Rules that fired[/bold]")
    for finding in record.fired:
        out.print(finding_line(finding), soft_wrap=True)
    for finding in record.findings:
        if finding.status is schema.RuleStatus.ERROR:
            out.print(Text(f"the rule {finding.rule} failed: {finding.error}"))
    write_deliveries(out, record.deliveries)
    for note in record.notes:
        if note.startswith(EXPORT_NOTE):
            out.print(Text(note), soft_wrap=True)


def write_deliveries(out: Console, deliveries: list[schema.Delivery]) -> None:
    """Write the deliveries of findings."""
    if deliveries:
        out.print()
    for line in delivery_lines(deliveries):
        out.print(Text(line, style="dim"), soft_wrap=True)


def delivery_lines(deliveries: list[schema.Delivery]) -> list[str]:
    """Summarize deliveries in one line per receiver and outcome."""
    rules_by_delivery: dict[tuple[str, str], list[str]] = {}
    for delivery in deliveries:
        rules_by_delivery.setdefault((_receiver(delivery), _outcome(delivery)), []).append(
            delivery.rule
        )
    return [
        f"{receiver} ({', '.join(rules)}): {outcome}"
        for (receiver, outcome), rules in rules_by_delivery.items()
    ]


def _receiver(delivery: schema.Delivery) -> str:
    target = delivery.target
    short = target if len(target) <= MAX_TARGET_LENGTH else f"{target[: MAX_TARGET_LENGTH - 1]}…"
    return f"{delivery.action} {short}"


def _outcome(delivery: schema.Delivery) -> str:
    match delivery.state:
        case schema.DeliveryState.SENT:
            return "done" if delivery.action in {"stop", "command"} else "sent"
        case schema.DeliveryState.FAILED:
            tries = f" after {delivery.try_count} tries" if delivery.try_count > 1 else ""
            return f"failed{tries} ({delivery.error})"
        case schema.DeliveryState.PENDING:
            return "not done yet"


def finding_line(finding: schema.Finding) -> Text:
    """Write a finding as one line."""
    sentence = finding.sentences[0] if finding.sentences else ""
    since = "" if finding.first_ns is None else f"  since {clock_time(finding.first_ns)}"
    return Text.assemble("  ", (finding.rule, "bold"), f"  {sentence}", (since, "dim"))


def _write_finding(out: Console, finding: schema.Finding) -> None:
    out.print(Text(finding.rule, style="bold"))
    for sentence in finding.sentences:
        out.print(Padding(Text(sentence), (0, 0, 0, 2)))
    out.print(Padding(Text(f"-> {finding.recommendation}"), (0, 0, 0, 2)))
    for view in finding.evidence:
        out.print(Padding(Text(f"stepscope show RUN {view}", style="dim"), (0, 0, 0, 4)))
    out.print()


def write_insights(out: Console, payload: views.InsightsView) -> None:
    """Write what each rule found."""
    until = (
        ""
        if payload.until_after_ns is None
        else f" up to {quantities.duration(payload.until_after_ns)}"
    )
    out.print(f"[dim]rules {payload.source}{until}[/dim]")
    if payload.range is not None:
        out.print(
            f"[dim]{len(payload.fired)} of {payload.fired_count} findings are in this range[/dim]"
        )
    if payload.missing is not None:
        out.print(escape(payload.missing))
    for rule in payload.rules:
        if rule.rule in payload.fired:
            _write_fired(out, rule)
    write_sentences(
        out, [f"{rule.rule} failed: {rule.error}" for rule in payload.rules if rule.error]
    )
    _write_quiet(out, payload)
    write_sentences(out, payload.notes)


def _write_quiet(out: Console, payload: views.InsightsView) -> None:
    """Write the rules that found nothing by status, and those that lack data by what they lack."""
    lacking = {name for group in payload.not_applicable for name in group.rules}
    by_status: dict[schema.RuleStatus, list[str]] = {}
    for rule in payload.rules:
        if rule.rule not in {*payload.fired, *lacking} and not rule.error:
            by_status.setdefault(rule.status, []).append(rule.rule)
    for status, names in by_status.items():
        out.print(f"\n[bold]{len(names)} {status.words}[/bold]: {escape(', '.join(names))}")
    if lacking:
        so_far = " so far" if payload.progress == "running" else ""
        out.print(f"\n[bold]{len(lacking)} not applicable{so_far}[/bold]")
    for group in payload.not_applicable:
        line = f"{group.reason} ({len(group.rules)}): {', '.join(group.rules)}"
        out.print(Padding(Text(line), (0, 0, 0, 2)))


def _write_fired(out: Console, rule: views.RuleInsight) -> None:
    out.print()
    parts = []
    if rule.first_after_ns is not None and rule.last_after_ns is not None:
        first, last = (
            quantities.duration(rule.first_after_ns),
            quantities.duration(rule.last_after_ns),
        )
        parts.append(f"at {first}" if first == last else f"from {first} to {last}")
    if rule.datapoint_count:
        violations = quantities.count(rule.violation_count)
        parts.append(f"{violations} of {quantities.count_of(rule.datapoint_count, 'data point')}")
    out.print(f"[bold]{escape(rule.rule)}[/bold]  [dim]{', '.join(parts)}[/dim]")
    write_sentences(out, rule.sentences)
    out.print(f"What to do: {escape(rule.recommendation)}")
