"""Rules on models of XGBoost, on real trainings with and without the fault."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import msgspec
import pytest

from stepscope.rule_feed import check_rules, choose_rules, recorded_rules
from stepscope.schema import Finding
from stepscope.store import open_run
from tests.support.under_stepscope import E2E, FinishedJob, run_under

pytest.importorskip("xgboost")

pytestmark = pytest.mark.extended("a job for each rule; rules of XGBoost are in tests/unit/rules")

SCRIPT = str(E2E / "scripts" / "boosting_faults.py")
TENSORS = ("--tensors", "feature_importance,trees,labels,predictions")
RULES = ("FeatureImportanceOverweight", "TreeDepth")
FIRED = {"healthy": set[str](), "leak": {RULES[0]}, "deep": {RULES[1]}}


@pytest.fixture(scope="module", params=FIRED)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    run = tmp_path_factory.mktemp(request.param) / request.param
    finished = run_under(run, sys.executable, SCRIPT, request.param, options=TENSORS)
    assert finished.code == 0, finished.stderr
    return finished


def recorded_findings(run: Path) -> dict[str, Finding]:
    record = recorded_rules(open_run(run))
    assert record is not None
    return {finding.rule: finding for finding in record.findings}


def test_rules_are_right_live_and_afterwards(job: FinishedJob) -> None:
    live = recorded_findings(job.run)
    afterwards = check_rules(open_run(job.run), choose_rules(RULES)).findings
    assert {finding.rule for finding in afterwards} == set(RULES)
    for finding in afterwards:
        assert msgspec.to_builtins(live[finding.rule]) == msgspec.to_builtins(finding)
        assert 0 < finding.datapoints <= 6  # rounds 0, 5, … 25
    assert {finding.rule for finding in afterwards if finding.fired} == FIRED[job.run.name]


def test_the_feature_that_is_the_label_is_named(job: FinishedJob) -> None:
    if job.run.name != "leak":
        return
    finding = recorded_findings(job.run)[RULES[0]]
    assert ": f4 " in finding.sentences[0]
    learning = job.verdict["learning"]
    assert learning["state"] == "issue"
    assert RULES[0] in {learning["rule"], *learning["also"]}


def test_deep_trees_do_not_answer_whether_a_model_learns(job: FinishedJob) -> None:
    learning = job.verdict["learning"]
    assert RULES[1] not in {learning["rule"], *learning["also"]}


def test_a_rule_stops_a_job(tmp_path: Path) -> None:
    stop = ("--stop-on", RULES[1], "--scan-interval", "1")
    options = (*TENSORS, *stop)
    job = run_under(tmp_path / "run", sys.executable, SCRIPT, "deep", "1000000", options=options)
    assert job.code == -signal.SIGTERM
    assert recorded_findings(job.run)[RULES[1]].fired
