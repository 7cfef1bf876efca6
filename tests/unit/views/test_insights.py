"""`insights`: what rules found, and what was measured then."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.rule_feed import RULES_DOCUMENT, check_rules, choose_rules
from stepscope.rule_feed.feed import DEFAULT_SCAN_NS
from stepscope.rules import installed_rules
from stepscope.run import Run
from stepscope.schema import METRIC_TYPES, Delivery, Finding, RuleRecord, RuleStatus
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views import VIEWS, ViewOptions
from stepscope.views.job.insights import (
    MARGIN_NS,
    MAX_POINTS,
    NO_PAGE,
    STEP,
    InsightsView,
    RuleInsight,
    show_insights,
)
from stepscope.views.job.overview import show_overview
from tests.support.printed import print_text

MS = 1_000_000
S = 1_000 * MS


def starving(path: Path) -> RunBuilder:
    """Make a run of an hour in which GPUs wait for busy cores after some time."""
    builder = RunBuilder(path)
    builder.rank(0, workers=1).draw("wait=0 600 | forward 120 | backward 200 | optimizer 80", 1800)
    builder.metric("gpu_busy_ratio", lambda s: 0.9 if s < 700 else 0.05, device="0")
    builder.metric("cpu_busy_max_ratio", lambda s: 0.4 if s < 700 else 1.0)
    return builder


@pytest.fixture(scope="module")
def run(drawn_once: Callable[..., Run]) -> Run:
    return drawn_once(starving)


@pytest.fixture(scope="module")
def payload(run: Run) -> InsightsView:
    return show_insights(run)


@pytest.fixture(scope="module")
def by_name(payload: InsightsView) -> dict[str, RuleInsight]:
    return {insight.rule: insight for insight in payload.rules}


@pytest.fixture
def run_path(run: Run, tmp_path: Path) -> Path:
    """Copy the run: findings are written to it."""
    return shutil.copytree(run.reader.location, tmp_path / "run")


@pytest.mark.seed("DBI-08")
def test_rules_are_evaluated_where_nobody_did(
    run: Run, payload: InsightsView, by_name: dict[str, RuleInsight]
) -> None:
    expected = check_rules(run.reader, choose_rules())
    assert payload.source == "evaluated now"
    assert set(payload.fired) == set(expected.fired)
    assert payload.fired == [insight.rule for insight in payload.rules[: len(payload.fired)]]
    triggered = [insight.triggered_count for insight in payload.rules]
    assert triggered == sorted(triggered, reverse=True)
    for finding in expected.findings:
        insight = by_name[finding.rule]
        assert (insight.status, insight.triggered_count) == (finding.status, finding.rule_triggered)
        assert insight.details == finding.details
        assert "## What it checks" in insight.page
        assert insight.summary
    (threshold, *_) = by_name["CPUBottleneck"].parameters
    assert threshold.default == threshold.value.removesuffix(".0") or threshold.doc


def test_evidence_is_plotted_around_the_finding(by_name: dict[str, RuleInsight]) -> None:
    payload = by_name["CPUBottleneck"]
    assert payload.status is RuleStatus.ISSUES_FOUND
    (chart,) = payload.charts
    assert chart.unit == "ratio"
    assert payload.first_after_ns is not None
    assert payload.last_after_ns is not None
    assert chart.from_after_ns >= payload.first_after_ns - DEFAULT_SCAN_NS - MARGIN_NS
    cpu, gpu = chart.series
    assert (cpu.name, gpu.name, gpu.device) == ("cpu_busy_max", "gpu_busy", "0")
    assert len(cpu.value) == len(cpu.after_ns) <= MAX_POINTS
    at = np.array(gpu.after_ns)
    width = int(at[1] - at[0])
    late, early = at >= 700 * S, at + width <= 700 * S
    assert np.array(gpu.value)[late].astype(float) == pytest.approx(0.05)
    assert np.array(gpu.value)[early].astype(float) == pytest.approx(0.9)


def test_steps_are_plotted_too(by_name: dict[str, RuleInsight]) -> None:
    payload = by_name["DataloaderBottleneck"]
    (chart,) = payload.charts
    assert chart.unit == "ns"
    steps, waiting = chart.series
    assert (steps.name, waiting.name, steps.device) == ("step time", "data_wait", "rank 0")
    assert len(steps.value) <= MAX_POINTS
    assert steps.value == pytest.approx([1000 * MS] * len(steps.value))
    assert waiting.value == pytest.approx([600 * MS] * len(waiting.value))


def test_what_was_recorded_while_the_job_ran(run_path: Path) -> None:
    finding = Finding(
        rule="MyOwn",
        status=RuleStatus.ISSUES_FOUND,
        rule_triggered=2,
        rule_parameters="limit:5",
        first_ns=EPOCH_NS + 60 * S,
        last_ns=EPOCH_NS + 120 * S,
    )
    record = RuleRecord(
        progress="running", end_ns=None, scan_ns=S, written_ns=1, findings=[finding], notes=["n"]
    )
    with RunWriter(run_path, "n0") as writer:
        writer.put_document("findings", RULES_DOCUMENT, record)
    payload = show_insights(Run(open_run(run_path)))
    (rule,) = payload.rules
    assert (payload.source, payload.progress, payload.notes) == ("recorded", "running", ["n"])
    assert (rule.page, rule.charts, rule.first_after_ns) == (NO_PAGE, [], 60 * S)
    assert [(p.name, p.value, p.default) for p in rule.parameters] == [("limit", "5", None)]


def test_a_rule_fires_within_the_run_however_long_its_scans_are(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    builder.rank(0).draw("wait 600 | forward 320 | optimizer 80", 34)
    finding = Finding(
        rule="Once",
        status=RuleStatus.ISSUES_FOUND,
        rule_triggered=1,
        first_ns=EPOCH_NS + 60 * S,
        last_ns=EPOCH_NS + 60 * S,
    )
    run = recorded(builder.write(), finding)
    (rule,) = show_insights(run).rules
    assert (rule.first_after_ns, rule.last_after_ns) == (34 * S, 34 * S)
    (short,) = show_overview(run).findings
    assert (short.first_after_ns, short.last_after_ns) == (34 * S, 34 * S)
    (mark,) = VIEWS["timeline"](run, ViewOptions()).findings
    assert (mark.first_after_ns, mark.last_after_ns) == (34 * S, 34 * S)
    assert "Once  at 34 s" in print_text(show_insights(run), width=200)


def recorded(run_path: Path, *findings: Finding, **fields: Any) -> Run:
    """Make a run whose watch process has recorded these, scanning every ten seconds."""
    record = RuleRecord(
        progress="ended",
        end_ns=None,
        scan_ns=10 * S,
        written_ns=1,
        findings=list(findings),
        **fields,
    )
    with RunWriter(run_path, "n0") as writer:
        writer.put_document("findings", RULES_DOCUMENT, record)
    return Run(open_run(run_path))


def fired(rule: str, first_s: int | None, last_s: int | None) -> Finding:
    first, last = (None if s is None else EPOCH_NS + s * S for s in (first_s, last_s))
    return Finding(rule=rule, status=RuleStatus.ISSUES_FOUND, first_ns=first, last_ns=last)


RANGES = [
    (0, 60, ["Always"]),
    (0, 61, ["Early", "Always"]),
    (120, 130, ["Early", "Always"]),
    (121, 130, ["Always"]),
    (80, 700, ["Early", "Late", "Always"]),
    (600, None, ["Late", "Always"]),
]


def test_findings_of_a_range(run_path: Path) -> None:
    run = recorded(
        run_path,
        fired("Early", 60, 120),
        fired("Late", 610, 650),
        fired("Always", None, None),
        Finding(rule="Fine", status=RuleStatus.NO_ISSUES_FOUND),
        deliveries=[
            Delivery(action="notify", number=0, target="x", rule=rule) for rule in ("Early", "Late")
        ],
    )
    for begin_s, end_s, expected in RANGES:
        options = ViewOptions(from_ns=begin_s * S, to_ns=None if end_s is None else end_s * S)
        payload = VIEWS["insights"](run, options)
        assert isinstance(payload, InsightsView)
        assert payload.fired == expected
        assert [rule.rule for rule in payload.rules] == [*expected, "Fine"]
        assert payload.fired_count == 3
        assert {delivery.rule for delivery in payload.deliveries} == {"Early", "Late"} & set(
            expected
        )
        assert payload.range is not None
        assert "findings" in payload.range.range_of
    unrestricted = VIEWS["insights"](run)
    assert isinstance(unrestricted, InsightsView)
    assert (unrestricted.range, unrestricted.fired_count, len(unrestricted.rules)) == (None, 3, 4)


def test_a_finding_is_the_same_through_any_range(run: Run, by_name: dict[str, RuleInsight]) -> None:
    """It is neither evaluated again nor is its evidence cut."""
    at = by_name["CPUBottleneck"].first_after_ns
    assert at is not None
    payload = VIEWS["insights"](run, ViewOptions(from_ns=at, to_ns=at + S))
    assert isinstance(payload, InsightsView)
    assert "CPUBottleneck" in payload.fired
    assert all(rule == by_name[rule.rule] for rule in payload.rules)
    share = f"{len(payload.fired)} of {payload.fired_count} findings are in this range"
    assert share in print_text(payload)


def test_rules_are_grouped_by_what_they_lack(
    payload: InsightsView, by_name: dict[str, RuleInsight]
) -> None:
    lacking = {insight.rule for insight in payload.rules if insight.missing is not None}
    assert lacking == {rule for group in payload.not_applicable for rule in group.rules}
    sizes = [len(group.rules) for group in payload.not_applicable]
    assert sizes == sorted(sizes, reverse=True)
    for group in payload.not_applicable:
        missing = {by_name[rule].missing for rule in group.rules}
        assert missing == set(group.explanations)
        assert all(str(text).startswith(group.reason) for text in missing)


def test_text(payload: InsightsView, by_name: dict[str, RuleInsight]) -> None:
    text = print_text(payload, width=500)
    rule = by_name["CPUBottleneck"]
    assert f"{rule.violation_count:,} of {rule.datapoint_count:,} data points" in text
    passed = [one.rule for one in payload.rules if one.status is RuleStatus.NO_ISSUES_FOUND]
    assert f"{len(passed)} passed: {', '.join(passed)}" in text
    for group in payload.not_applicable:
        assert f"{group.reason} ({len(group.rules)}): {', '.join(group.rules)}" in text
    assert "NoIssuesFound" not in text


def test_what_rules_plot_exists() -> None:
    phases = {STEP, "data_wait", "h2d", "communication", "backward", "checkpoint", "other"}
    for rule in installed_rules():
        assert set(rule.plots) <= METRIC_TYPES.keys() | phases, rule
