"""`insights`: every rule with its finding, and the measurements at that time.

A range of time selects among the findings of the whole run. Rules are not evaluated on the range
alone: they compare an interval with earlier ones, and a finding must not depend on the selected
range.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from stepscope import analysis, rule_feed, schema
from stepscope.rules import Rule, describe_parameters, page, summary
from stepscope.run import BinSeries, Period, Rank, Run, aggregate_samples, choose_bins
from stepscope.views.options import DEFAULTS, Ranged, TimeRange, ViewOptions, describe_range

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
    recorded = rule_feed.recorded_rules(run.reader)
    record = recorded or run.derive(_evaluate)
    installed = {rule.name: rule for rule in rule_feed.choose_rules()}
    origin_ns = run.clock.origin_ns
    findings = [
        finding
        for finding in rule_feed.refuse_advice(record.findings, run)
        if not finding.fired or _overlaps(finding, period)
    ]
    rules = [_show_rule(run, finding, installed, origin_ns=origin_ns) for finding in findings]
    rules.sort(key=_rank)
    names = {rule.rule for rule in rules}
    return InsightsView(
        range=time_range,
        source="recorded" if recorded is not None else "evaluated now",
        progress=record.progress,
        until_after_ns=None if record.end_ns is None else record.end_ns - origin_ns,
        scan_ns=record.scan_ns,
        fired=[rule.rule for rule in rules if rule.status is schema.RuleStatus.ISSUES_FOUND],
        fired_count=len(record.fired),
        rules=rules,
        not_applicable=_group_by_reason(rules),
        deliveries=[delivery for delivery in record.deliveries if delivery.rule in names],
        notes=record.notes,
        missing=None if record.findings else NO_RULES,
    )


def _rank(rule: RuleInsight) -> tuple[float, ...]:
    """Rank a rule: those that fired first, by the scans in which their condition held, then by the
    time from the first to the last data that violated it and by the share of such data; then those
    that failed."""
    if rule.status is not schema.RuleStatus.ISSUES_FOUND:
        return (1, rule.status is not schema.RuleStatus.ERROR)
    span_ns = (rule.last_after_ns or 0) - (rule.first_after_ns or 0)
    share = rule.violation_count / max(1, rule.datapoint_count)
    return (0, -rule.triggered_count, -span_ns, -share)


def _group_by_reason(rules: Iterable[RuleInsight]) -> list[MissingInput]:
    """Group the rules that lack data by what they lack, the largest group first."""
    groups: dict[str, list[RuleInsight]] = {}
    for rule in rules:
        if rule.missing is not None and not rule.triggered_count:
            groups.setdefault(re.split("[:;]", rule.missing)[0], []).append(rule)
    return [
        MissingInput(
            reason=reason,
            explanations=list(dict.fromkeys(str(rule.missing) for rule in members)),
            rules=[rule.rule for rule in members],
        )
        for reason, members in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]


def _overlaps(finding: schema.Finding, period: Period) -> bool:
    """Return whether the data that violated the condition of a rule overlap a range."""
    if finding.first_ns is None or finding.last_ns is None:
        return True
    return finding.first_ns < period.end_ns and finding.last_ns >= period.start_ns


def _describe_range(run: Run) -> TimeRange:
    return msgspec.structs.replace(describe_range(run), range_of=FINDINGS_OF, notes=[])


def _evaluate(run: Run) -> schema.RuleRecord:
    """Evaluate all rules as the watch process would have."""
    rules = rule_feed.choose_rules()
    checked = rule_feed.check_rules(run.reader, rules)
    return schema.RuleRecord(
        progress=rule_feed.progress_of(run.reader),
        end_ns=checked.end_ns,
        scan_ns=rule_feed.DEFAULT_SCAN_NS,
        written_ns=checked.end_ns or 0,
        findings=rule_feed.withhold_damaged(run.reader, rules, checked.findings),
        deliveries=checked.deliveries,
        notes=[],
    )


def _show_rule(
    run: Run, finding: schema.Finding, installed: Mapping[str, Rule[Any]], *, origin_ns: int
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


def _show_parameters(finding: schema.Finding, rule: Rule[Any] | None) -> list[RuleParameter]:
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


class RuleParameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a rule."""

    name: str
    value: str
    """Value with which the rule was evaluated."""
    default: str | None
    """Default; null for a rule that is not installed here."""
    takes: str
    doc: Annotated[str, schema.field_label("meaning")]


class EvidenceSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements around the time of a finding, averaged in bins of time."""

    name: str
    node: str
    device: str
    """Core or GPU number, or rank; empty for the whole node."""
    after_ns: list[int]
    """Times after the run's origin."""
    value: list[float | None]
    """Null where nothing was measured."""


class EvidenceChart(msgspec.Struct, frozen=True, kw_only=True):
    """One chart of a finding."""

    title: str
    unit: str
    """Unit of the values: `ratio`, `ns`, `bytes`, …"""
    from_after_ns: int
    to_after_ns: int
    series: list[EvidenceSeries]
    left_out_count: Annotated[int, schema.field_label("omitted series")]
    """Series that exceed the limit and are omitted."""


class RuleInsight(msgspec.Struct, frozen=True, kw_only=True):
    """One rule and its finding."""

    rule: str
    summary: Annotated[str, schema.field_label("description")]
    status: schema.RuleStatus
    triggered_count: Annotated[int, schema.field_label("triggers")]
    violation_count: int
    datapoint_count: Annotated[int, schema.field_label("data points")]
    first_after_ns: int | None
    """Start of the first data that violated the condition, after the run's origin; null if the rule
    has not fired."""
    last_after_ns: int | None
    """End of the last data that violated it."""
    sentences: list[str]
    recommendation: str
    nodes: list[str]
    ranks: list[str]
    devices: list[str]
    evidence: list[str]
    """Views that show the evidence."""
    charts: list[EvidenceChart]
    """Measurements at that time, for a rule that fired."""
    parameters: list[RuleParameter]
    page: str
    """Documentation of the rule, in Markdown."""
    details: dict[str, Any]
    """Figures behind the sentences."""
    missing: str | None
    """Data that the rule needs and the run does not have."""
    error: str | None

    text_fields = (
        "rule",
        "status",
        "triggered_count",
        "violation_count",
        "datapoint_count",
        "summary",
    )


class MissingInput(msgspec.Struct, frozen=True, kw_only=True):
    """Data that the run does not have, and the rules that need them."""

    reason: str
    """Missing data in short."""
    explanations: list[str]
    """Missing data in full, as the rules state it."""
    rules: list[str]


class InsightsView(Ranged, frozen=True, kw_only=True):
    """Payload of `insights`."""

    source: Literal["recorded", "evaluated now"]
    """Time of evaluation: while the job ran, or for this answer."""
    progress: schema.Progress
    until_after_ns: int | None
    """End of the evaluated time, after the run's origin."""
    scan_ns: int
    """Interval of scans; a rule triggers once in each scan in which its condition holds."""
    fired: list[str]
    """Rules that fired in the range."""
    fired_count: int
    """Rules that fired in the whole run."""
    rules: list[RuleInsight]
    """Rules that fired first, the worst at the top, then the others. Rules that fired outside the
    range only are omitted."""
    not_applicable: list[MissingInput]
    """Rules that lack data, by what they lack; while the job runs, those that lack it so far."""
    deliveries: list[schema.Delivery]
    """Notifications sent while the job ran."""
    notes: list[str]
    missing: str | None


MARGIN_NS = 120_000_000_000
"""Time before and after a finding that is included."""
MAX_POINTS = 300
MAX_SERIES = 8
STEP = "step"
"""Name of whole steps among the plots of a rule; parts of steps have the name of their phase."""
_NAMES = {STEP: "step time", "other": "time outside all phases"}
"""Names of series that say more than those of the plots."""


class _Scope(NamedTuple):
    """Part of a run that a finding is about."""

    finding: schema.Finding
    start_ns: int
    end_ns: int
    origin_ns: int


def make_charts(
    run: Run, finding: schema.Finding, plots: Sequence[str], *, origin_ns: int
) -> list[EvidenceChart]:
    """Make one chart for each unit of the measurements that a rule reads.

    Args:
        run: the run.
        finding: finding of a rule that fired.
        plots: metrics, phases of steps, or `STEP`.
        origin_ns: origin of the times of the charts.
    """
    start_ns, end_ns = 0, sys.maxsize  # a finding about the whole run has no time
    if finding.first_ns is not None and finding.last_ns is not None:
        start_ns = finding.first_ns - MARGIN_NS
        end_ns = finding.last_ns + MARGIN_NS
    scope = _Scope(finding, start_ns, end_ns, origin_ns)
    by_unit: dict[str, list[EvidenceSeries]] = {}
    for unit, series in [
        *_read_metrics(run, scope, [plot for plot in plots if plot in schema.METRIC_TYPES]),
        *_read_steps(run, scope, [plot for plot in plots if plot in {STEP, *analysis.PHASES}]),
    ]:
        by_unit.setdefault(unit, []).append(series)
    return [_make_chart(unit, series) for unit, series in by_unit.items()]


def _make_chart(unit: str, series: list[EvidenceSeries]) -> EvidenceChart:
    shown = series[:MAX_SERIES]
    names = dict.fromkeys(line.name.replace("_", " ") for line in shown)
    return EvidenceChart(
        title=", ".join(names),
        unit=unit,
        from_after_ns=min(line.after_ns[0] for line in shown),
        to_after_ns=max(line.after_ns[-1] for line in shown),
        series=shown,
        left_out_count=len(series) - len(shown),
    )


def _read_metrics(
    run: Run, scope: _Scope, metrics: Sequence[str]
) -> Iterator[tuple[str, EvidenceSeries]]:
    """Read metrics with their units, those that concern the finding first."""
    within = (scope.start_ns, scope.end_ns)
    bins = choose_bins(run, MAX_POINTS, within=within) if metrics else None
    if bins is None:
        return
    finding = scope.finding
    all_series = aggregate_samples(run.reader, bins, metrics, nodes=finding.nodes)
    start = bins.start_ns - scope.origin_ns
    after_ns = [start + index * bins.width_ns for index in range(bins.count)]
    for series in sorted(all_series, key=lambda series: not _concerns(finding, series)):
        unit = schema.METRIC_TYPES[series.metric].unit
        line = EvidenceSeries(
            name=series.metric.removesuffix(f"_{unit}"),
            node=series.node,
            device=series.device,
            after_ns=after_ns,
            value=analysis.nan_to_none(series.mean),
        )
        yield unit, line


def _concerns(finding: schema.Finding, series: BinSeries) -> bool:
    """Return True if a finding concerns a device; it concerns series of the whole node."""
    return not series.device or f"{series.node}/{series.device}" in finding.devices


def _read_steps(
    run: Run, scope: _Scope, parts: Sequence[str]
) -> Iterator[tuple[str, EvidenceSeries]]:
    """Read durations of steps and of their phases with their unit."""
    if not parts:
        return
    ranks = scope.finding.ranks
    for rank in [rank for rank in run.all_ranks if not ranks or rank.name in ranks]:
        for part in parts:
            series = _read_durations(rank, part, scope)
            if series is not None:
                yield "ns", series


def _read_durations(rank: Rank, part: str, scope: _Scope) -> EvidenceSeries | None:
    """Read durations of steps, or means of consecutive steps where there are many."""
    steps = rank.steps.starting_within(scope.start_ns, scope.end_ns)
    if not len(steps):
        return None
    durations = steps.duration_ns if part == STEP else steps.phase_ns[part]
    if not durations.any():  # as communication is if gradients are exchanged in the backward pass
        return None
    start, means = analysis.downsample_steps(
        steps.start, steps.start + steps.duration_ns, durations, MAX_POINTS
    )
    return EvidenceSeries(
        name=_NAMES.get(part, part),
        node=rank.process.node,
        device=rank.name,
        after_ns=(start - scope.origin_ns).tolist(),
        value=analysis.nan_to_none(means),
    )
