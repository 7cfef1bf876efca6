"""`insights`: what rules found, and what was measured then."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from stepscope.cli.writers import write
from stepscope.diagnosis import Signals
from stepscope.diagnosis.rule_check import RULES_DOCUMENT, check_rules, choose_rules
from stepscope.diagnosis.rule_signals import DEFAULT_SCAN_NS
from stepscope.rules import installed_rules
from stepscope.schema import METRIC_TYPES, Finding, RuleRecord, RuleStatus
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views.evidence import MARGIN_NS, POINTS, STEP
from stepscope.views.insights import NO_PAGE, insights
from stepscope.views.insights_payload import RuleInsight

MS = 1_000_000
S = 1_000 * MS


def starving(path: Path) -> RunBuilder:
    """An hour of it: GPUs wait for cores that are full, but only after a while."""
    run = RunBuilder(path)
    run.rank(0, workers=1).draw("wait=0 600 | forward 120 | backward 200 | optimizer 80", 1800)
    run.metric("gpu_busy_ratio", lambda s: 0.9 if s < 700 else 0.05, device="0")
    run.metric("cpu_busy_max_ratio", lambda s: 0.4 if s < 700 else 1.0)
    return run


def by_name(signals: Signals) -> dict[str, RuleInsight]:
    return {each.rule: each for each in insights(signals).rules}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return starving(tmp_path / "run").write()


def test_rules_are_evaluated_where_nobody_did(run: Path) -> None:
    signals = Signals(open_run(run))
    found = insights(signals)
    expected = check_rules(signals.reader, choose_rules())
    assert found.source == "evaluated now"
    assert set(found.fired) == set(expected.fired)
    assert [each.rule for each in found.rules[: len(found.fired)]] == sorted(
        found.fired, key=lambda rule: -by_name(signals)[rule].triggered_count
    )
    rules = {each.rule: each for each in found.rules}
    for finding in expected.findings:
        own = rules[finding.rule]
        assert (own.status, own.triggered_count) == (finding.status, finding.rule_triggered)
        assert own.details == finding.details
        assert "## What it checks" in own.page
        assert own.summary
    (threshold, *_) = rules["CPUBottleneck"].parameters
    assert threshold.default == threshold.value.removesuffix(".0") or threshold.doc


def test_evidence_is_plotted_around_the_finding(run: Path) -> None:
    signals = Signals(open_run(run))
    found = by_name(signals)["CPUBottleneck"]
    assert found.status is RuleStatus.ISSUES_FOUND
    (chart,) = found.charts
    assert chart.unit == "ratio"
    assert found.first_after_ns is not None
    assert found.last_after_ns is not None
    assert chart.from_after_ns >= found.first_after_ns - DEFAULT_SCAN_NS - MARGIN_NS
    cpu, gpu = chart.series
    assert (cpu.name, gpu.name, gpu.device) == ("cpu_busy_max", "gpu_busy", "0")
    assert len(cpu.value) == len(cpu.after_ns) <= POINTS
    at = np.array(gpu.after_ns)
    width = int(at[1] - at[0])
    late, early = at >= 700 * S, at + width <= 700 * S
    assert np.array(gpu.value)[late].astype(float) == pytest.approx(0.05)
    assert np.array(gpu.value)[early].astype(float) == pytest.approx(0.9)


def test_steps_are_plotted_too(run: Path) -> None:
    found = by_name(Signals(open_run(run)))["DataloaderBottleneck"]
    (chart,) = found.charts
    assert chart.unit == "ns"
    whole, waiting = chart.series
    assert (whole.name, waiting.name, whole.device) == (STEP, "data_wait", "rank 0")
    assert len(whole.value) <= POINTS
    assert whole.value == pytest.approx([1000 * MS] * len(whole.value))
    assert waiting.value == pytest.approx([600 * MS] * len(waiting.value))


def test_what_was_recorded_while_the_job_ran(run: Path) -> None:
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
    with RunWriter(run, "n0") as writer:
        writer.put_document("findings", RULES_DOCUMENT, record)
    found = insights(Signals(open_run(run)))
    (rule,) = found.rules
    assert (found.source, found.progress, found.notes) == ("recorded", "running", ["n"])
    assert (rule.page, rule.charts, rule.first_after_ns) == (NO_PAGE, [], 60 * S)
    assert [(p.name, p.value, p.default) for p in rule.parameters] == [("limit", "5", None)]


def test_text(run: Path) -> None:
    stream = io.StringIO()
    write(Console(file=stream, width=100), insights(Signals(open_run(run))))
    assert "CPUBottleneck" in stream.getvalue()


def test_what_rules_plot_exists() -> None:
    phases = {STEP, "data_wait", "h2d", "communication", "checkpoint", "other"}
    for rule in installed_rules():
        assert set(rule.plots) <= METRIC_TYPES.keys() | phases, rule
