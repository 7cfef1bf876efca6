"""Real trainings that learn and that do not: rules about tensors and losses, and the verdict."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import msgspec
import pytest

from stepscope.rule_feed import check_rules, choose_rules, recorded_rules
from stepscope.schema import Finding
from stepscope.store import open_run
from tests.support.tiers import extend_all_but
from tests.support.under_stepscope import E2E, FinishedJob, run_under

JOB = str(E2E / "learning_job.py")
TENSORS = ("--tensors", "weights,gradients,losses", "--window", "off")
VARIANCE = "TensorVariance.max_threshold=25"
"""The rule has no limit of its own; that of the weights of a healthy training is below 1."""
FIRED = {
    "healthy": set[str](),
    "unclipped": set[str](),
    "vanishing": {"VanishingGradient", "WeightUpdateRatio", "LossNotDecreasing"},
    "overfit": {"Overfit", "LossSpike"},
    "stale": {"Overtraining"},
    "steep": {"LearningRateTooHigh", "TensorVariance"},
    "initialization": {"PoorWeightInitialization"},
    "clipped": {"GradientClippingSaturation"},
    "overflow": {"LossScaleCollapse"},
}
"""Rules that have to fire; on the first two trainings, which are healthy, none may."""
NOT_IN_VERDICT = {"GradientClippingSaturation"}
ALSO_JUDGED = {"GradientClippingSaturation", "LossScaleCollapse"}
"""Rules on what only the second healthy training does."""


@pytest.fixture(
    scope="module",
    params=extend_all_but({"vanishing"}, FIRED, "a job for each fault of a training"),
)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    run = tmp_path_factory.mktemp(request.param) / request.param
    tensors = ("--tensors", "weights,gradients,losses,activations", "--tensors-every", "1")
    options = (*tensors, "--window", "off", "--set", VARIANCE)
    finished = run_under(run, sys.executable, JOB, request.param, options=options)
    assert finished.code == 0, finished.stderr
    return finished


def recorded_findings(run: Path) -> dict[str, Finding]:
    record = recorded_rules(open_run(run))
    assert record is not None
    return {finding.rule: finding for finding in record.findings}


@pytest.mark.seed("DBT-08")
def test_rules_and_verdict_are_right_live_and_afterwards(job: FinishedJob) -> None:
    live = recorded_findings(job.run)
    all_rules = choose_rules(assignments=[VARIANCE])
    rules = [rule for rule in all_rules if rule.topic in {"tensors", "losses"}]
    afterwards = check_rules(open_run(job.run), rules).findings
    assert afterwards
    for finding in afterwards:
        assert msgspec.to_builtins(live[finding.rule]) == msgspec.to_builtins(finding)
    fired = {finding.rule for finding in afterwards if finding.fired}
    expected = FIRED[job.run.name]
    assert expected <= fired
    learning = job.verdict["learning"]
    if not expected:
        assert fired == set()
        judged = {finding.rule for finding in afterwards if finding.datapoints}
        required = set().union(*FIRED.values()) - (
            ALSO_JUDGED if job.run.name == "healthy" else set()
        )
        assert required <= judged
    if "LossSpike" in expected:
        # The labels of step 140 are 20 times as large, and the last layer is the nearest to them.
        sentence = live["LossSpike"].sentences[1]
        assert "record 140: the gradient of 2." in sentence
        assert "grew first, at step 140: its norm was " in sentence
    expected = expected - NOT_IN_VERDICT
    if not expected:
        assert learning["state"] == "healthy"
        return
    assert learning["state"] == "issue"
    assert expected <= {learning["rule"], *learning["also"]} <= fired
    assert learning["evidence"] == live[learning["rule"]].sentences
    assert learning["advice"]
    assert "Is the model learning?" in job.stderr


@pytest.mark.extended("test_watch.py stops a job by a rule")
def test_a_rule_stops_the_job_that_explodes(tmp_path: Path) -> None:
    stop = ("--stop-on", "ExplodingTensor", "--scan-interval", "1")
    options = (*TENSORS, "--tensors-every", "10", *stop)
    job = run_under(tmp_path / "run", sys.executable, JOB, "nan", "100000", options=options)
    assert job.code == -signal.SIGTERM
    finding = recorded_findings(job.run)["ExplodingTensor"]
    assert finding.fired
    # The loss is recorded in every step, and may be the first to show it.
    assert job.verdict["learning"]["rule"] in {"ExplodingTensor", "NonFiniteLoss"}
