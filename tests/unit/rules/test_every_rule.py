"""What holds for every rule: a page, a run that it fires on, one that it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.rule_feed.feed import RunFeed
from stepscope.rules import Device, Evaluation, Rule, Series, page, summary
from stepscope.rules.pages import HEADINGS
from stepscope.rules.parameters import describe, parameters_text
from stepscope.rules.profiler import RULES
from stepscope.rules.registry import Registry
from stepscope.schema import Finding, RuleStatus
from stepscope.views import VIEWS
from tests.support import rule_runs
from tests.support.fake_signals import FakeSignals

STATISTICS = {"OverallSystemUsage", "OverallFrameworkMetrics"}
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
every_that_fires = pytest.mark.parametrize(
    "name", [r.__name__ for r in RULES if r.__name__ not in STATISTICS]
)


def evaluated(rules: list[Rule[Any]], feed: RunFeed) -> dict[str, Finding]:
    evaluation = Evaluation(rules)
    for signals in feed.ranges(final=True):
        evaluation.feed(signals)
    return {finding.rule: finding for finding in evaluation.findings()}


@every_rule
def test_has_a_page_with_all_headings(rule: type[Rule[Any]]) -> None:
    found = page(rule)
    places = [found.find(f"\n## {heading}\n") for heading in HEADINGS]
    assert -1 not in places
    assert places == sorted(places)
    assert summary(rule).endswith(".")
    for parameter in describe(rule.parameters_type):
        assert parameter.doc, parameter.name
        assert parameter.takes != "anything", parameter.name
        assert f"`{parameter.name}`" in found


@every_rule
def test_says_what_to_do_and_where_to_look(rule: type[Rule[Any]]) -> None:
    assert set(rule.evidence) <= set(VIEWS)
    assert rule.evidence
    assert bool(rule.recommendation) is (rule.__name__ not in STATISTICS)


def test_every_rule_that_can_fire_has_a_faulty_run() -> None:
    assert {*rule_runs.FAULTY, *STATISTICS} == set(Registry(RULES).names)


@every_that_fires
def test_fires_on_its_faulty_run(name: str, tmp_path: Path) -> None:
    reader = rule_runs.open_drawn(tmp_path / "run", rule_runs.FAULTY[name])
    finding = evaluated([Registry(RULES).get(name)()], RunFeed(reader))[name]
    assert finding.status is RuleStatus.ISSUES_FOUND, finding
    assert finding.rule_triggered > 0
    assert finding.violations > 0
    assert finding.datapoints > 0
    assert finding.sentences
    assert finding.recommendation


def test_all_are_quiet_on_the_healthy_run(tmp_path: Path) -> None:
    reader = rule_runs.open_drawn(tmp_path / "run", rule_runs.healthy)
    rules = [rule(window=5) if rule.__name__ == "GPUMemoryLeak" else rule() for rule in RULES]
    findings = evaluated(rules, RunFeed(reader))
    quiet = {RuleStatus.NO_ISSUES_FOUND}
    assert {name: f.status for name, f in findings.items() if f.status not in quiet} == {}
    assert all(finding.datapoints for finding in findings.values())
    assert all(finding.rule_triggered == finding.violations == 0 for finding in findings.values())


@every_rule
def test_abstains_without_its_inputs(rule: type[Rule[Any]]) -> None:
    evaluation = Evaluation([rule()])
    evaluation.feed(FakeSignals())
    (finding,) = evaluation.findings()
    assert finding.status is RuleStatus.NOT_APPLICABLE
    assert finding.missing
    assert finding.rule_parameters == parameters_text(rule().parameters)


# --- a run in which everything is bad in its way ------------------------------------------------


def poor_run() -> FakeSignals:
    """Two nodes; the second joins late, loses a GPU, and its clock jumps; readings fail."""
    signals = FakeSignals()
    chance = np.random.default_rng(1)
    for node, from_s in (("n0", 0), ("n1", 400)):
        for gpu in ("0", "1"):
            busy = chance.uniform(0, 1, 1500)
            busy[chance.integers(0, 1500, 100)] = np.nan
            memory = np.cumsum(chance.uniform(0, 1e8, 1500))
            memory[7] = np.inf
            signals.sample("gpu_busy_ratio", busy, device=gpu, node=node, from_s=from_s)
            signals.sample("gpu_memory_used_bytes", memory, device=gpu, node=node, from_s=from_s)
            reasons = np.where(np.isnan(busy), np.nan, 0x40)
            signals.sample("gpu_throttle_reasons", reasons, device=gpu, node=node, from_s=from_s)
        for what in ("busy", "iowait"):
            for metric, core in ((f"cpu_{what}_ratio", ""), (f"core_{what}_ratio", "0")):
                values = chance.uniform(0, 1, 1500)
                values[3] = np.nan
                signals.sample(metric, values, device=core, node=node, from_s=from_s)
    gone = signals.every_series["gpu_busy_ratio"]
    gone[Device("n1", "1")] = Series(np.empty(0, dtype=np.int64), np.empty(0))
    backwards = gone[Device("n1", "0")]
    backwards.t_ns[700:] -= 100 * 1_000_000_000
    gone[Device("n0", "1")].t_ns[1400:] += 40 * 365 * 86_400 * 1_000_000_000
    for rank, node in ((0, "n0"), (1, "n1")):
        work = chance.uniform(0.1, 2, 500)
        signals.rank(rank, node=node, from_s=400 * rank, forward=work, data_wait=work / 2)
        signals.load(np.arange(500.0), 0.9, rank, node=node)
    return signals.compile("rank 0", np.arange(100, 200, 0.3))


@every_rule
def test_survives_a_poor_run(rule: type[Rule[Any]]) -> None:
    for scans in ([], [1, 2, 5, 9, 10]):
        evaluation = Evaluation([rule()])
        for signals in poor_run().ranges(scans):
            evaluation.feed(signals)
        (finding,) = evaluation.findings()
        assert finding.error is None, finding.error
        assert finding.status is not RuleStatus.ERROR


@every_rule
def test_survives_signals_of_one_kind_only(rule: type[Rule[Any]]) -> None:
    poor = poor_run()
    for kept in ("every_series", "steps", "batches", "compiling"):
        signals = FakeSignals(nodes=poor.nodes, end_ns=poor.end_ns)
        setattr(signals, kept, getattr(poor, kept))
        evaluation = Evaluation([rule()])
        evaluation.feed(signals)
        (finding,) = evaluation.findings()
        assert finding.error is None, finding.error
