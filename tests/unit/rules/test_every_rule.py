"""Requirements on every rule: a page, a run on which it fires, a run on which it does not."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.analysis import Device, Series
from stepscope.rule_feed.feed import RuleFeed
from stepscope.rule_feed.learning import REFUSABLE
from stepscope.rules import Evaluation, Rule, page, summary
from stepscope.rules.parameters import describe_parameters, format_parameters
from stepscope.rules.profiler import RULES as PROFILER_RULES
from stepscope.rules.registry import BUILT_IN_RULES, HEADINGS, Registry
from stepscope.rules.tensor.nan_origin import NanOrigin
from stepscope.run import load_traces
from stepscope.schema import Finding, RuleStatus
from stepscope.store import RunReader
from stepscope.views import VIEWS
from tests.support import rule_runs
from tests.support.fake_rule_inputs import FakeRuleInputs

ADVICE = re.compile(r"(?i)\b(try|increase|load batches in|move)\b")

RULES = (*PROFILER_RULES, NanOrigin)
"""Rules with a drawn run; for those on statistics and losses see test_tensor_rules."""
every_rule = pytest.mark.parametrize("rule", BUILT_IN_RULES, ids=lambda rule: rule.__name__)


def evaluate(rules: list[Rule[Any]], feed: RuleFeed) -> dict[str, Finding]:
    evaluation = Evaluation(rules)
    for inputs in feed.ranges(final=True):
        evaluation.feed(inputs)
    return {finding.rule: finding for finding in evaluation.findings()}


@every_rule
def test_has_a_page_with_all_headings(rule: type[Rule[Any]]) -> None:
    text = page(rule)
    positions = [text.find(f"\n## {heading}\n") for heading in HEADINGS]
    assert -1 not in positions, f"headings of the docstring of {rule.__name__}: {HEADINGS}"
    assert positions == sorted(positions)
    assert summary(rule).endswith(".")
    for parameter in describe_parameters(rule.parameters_type):
        assert parameter.doc, parameter.name
        assert parameter.accepts != "any value", parameter.name
        assert f"`{parameter.name}`" in text


@every_rule
def test_has_a_recommendation_and_evidence(rule: type[Rule[Any]]) -> None:
    assert set(rule.evidence) <= set(VIEWS)
    assert rule.evidence
    assert bool(rule.recommendation) is rule.can_fire
    assert rule.topic != Rule.topic


def test_every_rule_that_can_fire_has_a_faulty_run() -> None:
    names = {rule.__name__ for rule in RULES if rule.can_fire}
    missing = names - rule_runs.FAULTY.keys()
    assert not missing, f"add a run that fires to FAULTY in tests/support/rule_runs.py: {missing}"
    assert rule_runs.FAULTY.keys() == names


def data_extent(reader: RunReader) -> tuple[int, int]:
    """Return the first and the last time of the data of a run."""
    spans = reader.table("spans", columns=["start_ns", "end_ns"])
    samples = reader.table("metrics", columns=["t_ns"])["t_ns"]
    traces = load_traces(reader)
    starts = [*spans["start_ns"], *samples, *(trace.start_ns for trace in traces)]
    ends = [*spans["end_ns"], *samples, *(trace.end_ns for trace in traces)]
    return int(min(starts)), int(max(ends))


@pytest.mark.parametrize("name", rule_runs.FAULTY)
def test_fires_on_its_faulty_run_within_its_data(name: str, tmp_path: Path) -> None:
    reader = rule_runs.open_drawn(tmp_path / "run", rule_runs.FAULTY[name])
    finding = evaluate([Registry(RULES).get(name)()], RuleFeed(reader))[name]
    assert finding.status is RuleStatus.ISSUES_FOUND, finding
    assert min(finding.rule_triggered, finding.violations, finding.datapoints) > 0
    assert finding.sentences
    assert finding.recommendation
    if name in REFUSABLE:  # what the verdict may refuse stands in the recommendation alone
        assert not ADVICE.search(" ".join(finding.sentences)), finding.sentences
    first, last = data_extent(reader)
    assert first <= finding.first_ns <= finding.last_ns <= last


@pytest.mark.seed("DBT-11")
def test_all_are_quiet_on_the_healthy_run(tmp_path: Path) -> None:
    reader = rule_runs.open_drawn(tmp_path / "run", rule_runs.healthy)
    rules = [rule(window=5) if rule.__name__ == "GPUMemoryLeak" else rule() for rule in RULES]
    findings = evaluate(rules, RuleFeed(reader))
    quiet = {RuleStatus.NO_ISSUES_FOUND}
    not_quiet = {name: finding for name, finding in findings.items() if finding.status not in quiet}
    assert not not_quiet, f"change `healthy` in tests/support/rule_runs.py: {not_quiet}"
    assert all(finding.datapoints for finding in findings.values())
    assert all(finding.rule_triggered == finding.violations == 0 for finding in findings.values())


class RequestedMetrics(FakeRuleInputs):
    """Inputs that record the requested metrics."""

    def series(self, metric: str) -> dict[Device, Series]:
        self.every_series.setdefault(metric, {})
        return super().series(metric)


@every_rule
def test_declares_the_metrics_that_it_reads(rule: type[Rule[Any]]) -> None:
    inputs = RequestedMetrics().node()
    Evaluation([rule()]).feed(inputs)
    assert set(rule.metrics) == inputs.every_series.keys(), (
        f"correct `metrics` of {rule.__name__} in {inspect.getsourcefile(rule)}"
    )


@every_rule
def test_abstains_without_its_inputs(rule: type[Rule[Any]]) -> None:
    evaluation = Evaluation([rule()])
    evaluation.feed(FakeRuleInputs())
    (finding,) = evaluation.findings()
    assert finding.status is RuleStatus.NOT_APPLICABLE
    assert finding.missing
    assert finding.rule_parameters == format_parameters(rule().parameters)


# --- a run with damaged data of every kind -------------------------------------------------------


def poor_run() -> FakeRuleInputs:
    """Two nodes; the second joins late, loses a GPU, and its clock jumps; readings fail."""
    inputs = FakeRuleInputs()
    random = np.random.default_rng(1)
    for node, from_s in (("n0", 0), ("n1", 400)):
        for gpu in ("0", "1"):
            busy = random.uniform(0, 1, 1500)
            busy[random.integers(0, 1500, 100)] = np.nan
            memory = np.cumsum(random.uniform(0, 1e8, 1500))
            memory[7] = np.inf
            inputs.sample("gpu_busy_ratio", busy, device=gpu, node=node, from_s=from_s)
            inputs.sample("gpu_memory_used_bytes", memory, device=gpu, node=node, from_s=from_s)
            reasons = np.where(np.isnan(busy), np.nan, 0x40)
            inputs.sample("gpu_throttle_reasons", reasons, device=gpu, node=node, from_s=from_s)
        for use in ("busy", "iowait"):
            for metric, core in ((f"cpu_{use}_ratio", ""), (f"core_{use}_ratio", "0")):
                values = random.uniform(0, 1, 1500)
                values[3] = np.nan
                inputs.sample(metric, values, device=core, node=node, from_s=from_s)
    utilization = inputs.every_series["gpu_busy_ratio"]
    utilization[Device("n1", "1")] = Series(np.empty(0, dtype=np.int64), np.empty(0))
    jumping_back = utilization[Device("n1", "0")]
    jumping_back.t_ns[700:] -= 100 * 1_000_000_000
    utilization[Device("n0", "1")].t_ns[1400:] += 40 * 365 * 86_400 * 1_000_000_000
    for rank, node in ((0, "n0"), (1, "n1")):
        work = random.uniform(0.1, 2, 500)
        inputs.rank(rank, node=node, from_s=400 * rank, forward=work, data_wait=work / 2)
        inputs.load(np.arange(500.0), 0.9, rank, node=node)
    return inputs.compile("rank 0", np.arange(100, 200, 0.3))


@every_rule
def test_survives_a_poor_run(rule: type[Rule[Any]]) -> None:
    for scans in ([], [1, 2, 5, 9, 10]):
        evaluation = Evaluation([rule()])
        for inputs in poor_run().ranges(scans):
            evaluation.feed(inputs)
        (finding,) = evaluation.findings()
        assert finding.error is None, finding.error
        assert finding.status is not RuleStatus.ERROR


@every_rule
def test_survives_inputs_of_a_single_kind(rule: type[Rule[Any]]) -> None:
    poor = poor_run()
    for kind in ("every_series", "steps", "batches", "compiler_time", "compilations"):
        inputs = FakeRuleInputs(nodes=poor.nodes, end_ns=poor.end_ns)
        setattr(inputs, kind, getattr(poor, kind))
        evaluation = Evaluation([rule()])
        evaluation.feed(inputs)
        (finding,) = evaluation.findings()
        assert finding.error is None, finding.error
