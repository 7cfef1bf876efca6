"""Selection of rules, and the second verdict from their findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.diagnosis import Learning
from stepscope.errors import UsageError
from stepscope.rule_feed import change_rules, choose_rules, judge_learning, list_rules, make_verdict
from stepscope.rules import Evaluation
from stepscope.run import Run
from stepscope.schema import Finding, RuleSelection, RuleStatus
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.fake_rule_inputs import FakeRuleInputs
from tests.support.tensor_rows import add_tensors

ALL = list_rules(RuleSelection())
FEW = RuleSelection(names=["StepOutlier", "BatchSize"], assignments=["StepOutlier.stddev=2"])


@pytest.fixture
def mine(tmp_path: Path) -> str:
    module = tmp_path / "mine.py"
    module.write_text("from stepscope.rules import Rule\nclass Mine(Rule):\n    pass\n")
    return f"{module}:Mine"


def test_a_rule_is_left_out_of_all_and_comes_back(mine: str) -> None:
    without = change_rules(RuleSelection(), remove=["step_outlier"])
    assert without == RuleSelection(without=["StepOutlier"])
    assert list_rules(without) == [name for name in ALL if name != "StepOutlier"]
    assert change_rules(without, add=["StepOutlier"]) == RuleSelection()
    assert change_rules(RuleSelection(), add=[mine]).names == [*ALL, mine], "of a file"


@pytest.mark.seed("DBP-10")
def test_rules_and_parameters_change_together(mine: str) -> None:
    changed = change_rules(
        FEW,
        add=["LowGPUUtilization", mine],
        remove=["BatchSize"],
        assignments=["LowGPUUtilization_window=250", "StepOutlier.stddev=4"],
    )
    assert changed == RuleSelection(
        names=["StepOutlier", "LowGPUUtilization", mine],
        assignments=["LowGPUUtilization.window=250", "StepOutlier.stddev=4"],
    )
    rules = choose_rules(changed.names, assignments=changed.assignments)
    assert [type(rule).__name__ for rule in rules] == ["StepOutlier", "LowGPUUtilization", "Mine"]
    assert rules[0].parameters.stddev == 4
    assert change_rules(changed, remove=["Mine", "StepOutlier"]) == RuleSelection(
        names=["LowGPUUtilization"], assignments=["LowGPUUtilization.window=250"]
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"add": ["Nope"]}, "Unknown rule 'Nope'"),
        ({"remove": ["Nope"]}, "Unknown rule 'Nope'"),
        ({"add": ["nowhere.py:Mine"]}, "File not found"),
        ({"remove": ["CPUBottleneck"]}, "CPUBottleneck is not evaluated, and cannot be removed"),
        ({"remove": ["StepOutlier", "BatchSize"]}, "No rule would remain"),
        ({"add": ["IOBottleneck"], "remove": ["IOBottleneck"]}, "added and removed at once"),
        (
            {"assignments": ["IOBottleneck.window=5"]},
            "is not evaluated; add it with --rule IOBottleneck",
        ),
        ({"assignments": ["StepOutlier.nope=5"]}, "StepOutlier has no parameter 'nope'"),
        ({"assignments": ["StepOutlier.stddev=many"]}, "Invalid value 'many'"),
        ({"remove": ["BatchSize"], "fixed": ["BatchSize"]}, "--stop-on or --fail-on"),
    ],
)
def test_what_cannot_be(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        change_rules(FEW, **changes)


def finding(rule: str, *, first_ns: int | None = None, **fields: Any) -> Finding:
    """Make a finding that has judged 100 datapoints; it fired if it has a time."""
    status = RuleStatus.NO_ISSUES_FOUND if first_ns is None else RuleStatus.ISSUES_FOUND
    violations = 0 if first_ns is None else 100
    fields = {"datapoints": 100, "violations": violations} | fields
    return Finding(rule=rule, status=status, first_ns=first_ns, **fields)


def judge(*findings: Finding) -> Learning:
    learning = judge_learning(findings)
    assert learning is not None
    return learning


def quiet_loss(trend: str) -> Finding:
    losses = [{"name": "loss", "record_count": 100, "trend": trend}]
    return finding("LossNotDecreasing", details={"losses": losses})


QUIET = [quiet_loss("decreases"), finding("VanishingGradient"), finding("UnchangedTensor")]


@pytest.mark.parametrize(
    ("trend", "headline", "state"),
    [
        ("decreases", "The model is learning: the loss decreases, and 3", "healthy"),
        ("has converged", "The loss has decreased, and lately stays where it is; 3", "healthy"),
        ("unclear", "The loss has no trend beyond chance so far; 3", "not_judged"),
    ],
)
def test_a_quiet_run_is_judged_by_the_trend_of_its_loss(
    trend: str, headline: str, state: str
) -> None:
    learning = judge(quiet_loss(trend), *QUIET[1:])
    assert learning.lines == [f"{headline} rules found no problem."]
    assert learning.state == state


def test_a_loss_that_is_nan_comes_first() -> None:
    learning = judge(finding("LossSpike", first_ns=5), finding("NonFiniteLoss", first_ns=7), *QUIET)
    assert learning.lines == [
        "The model no longer learns: its loss or its gradients are NaN or infinite.",
        "Fired later: LossSpike.",
    ]


def test_the_rule_that_fired_first_is_named_with_its_evidence() -> None:
    learning = judge(
        finding("LossSpike", first_ns=7),
        finding("ExplodingTensor", first_ns=5, sentences=["fc: NaN."], recommendation="Clip."),
        *QUIET,
    )
    assert learning.state == "issue"
    assert learning.first_ns == 5
    assert learning.lines == [
        "The model may not learn as it should: ExplodingTensor fired first.",
        "fc: NaN.",
        "What to do: Clip.",
        "Fired later: LossSpike.",
    ]


def test_without_losses_it_is_not_judged() -> None:
    learning = judge(
        finding("LossNotDecreasing", datapoints=8, missing="only 8 values of a loss"),
        finding("VanishingGradient"),
    )
    assert learning.state == "not_judged"
    assert learning.not_recorded == [
        "Losses were not judged: only 8 values of a loss.",
        "Weights were not judged: they were not recorded.",
    ]


@pytest.mark.parametrize(
    ("violations", "state"), [(1, "healthy"), (9, "healthy"), (10, "issue"), (100, "issue")]
)
def test_a_condition_of_a_few_records_is_normal(violations: int, state: str) -> None:
    """The weights do not change in the first steps of a warm-up."""
    tensors = [{"tensor": "fc", "violation_count": violations, "record_count": 100}]
    update = finding("WeightUpdateRatio", first_ns=1, datapoints=900, details={"tensors": tensors})
    assert judge(*QUIET, update).state == state
    assert judge(*QUIET, finding("Overfit", first_ns=1, violations=violations)).state == state


def test_other_rules_and_a_stall_do_not_count() -> None:
    assert judge_learning([finding("LowGPUUtilization", first_ns=3)]) is None
    assert judge(*QUIET, finding("StalledTrainingRule", first_ns=3)).state == "healthy"


def test_a_run_without_tensors_has_no_second_verdict(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    rank = run.rank(0).draw("forward 60 | backward 30 | optimizer 10", 30)
    run.write()
    assert make_verdict(Run(open_run(tmp_path / "run"))).learning is None
    rows = [{"tensor": "fc", "step": n, "l2": 1.0, "nan_count": int(n == 9)} for n in range(20)]
    add_tensors(tmp_path / "run", rank.info.process, rows)
    learning = make_verdict(Run(open_run(tmp_path / "run"))).learning
    assert learning.rule == "ExplodingTensor"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("slope", "state"), [(-0.004, "healthy"), (0, "issue"), (0.004, "issue")])
def test_noise_of_batches_does_not_hide_the_decrease(slope: float, state: str, seed: int) -> None:
    noise = np.random.default_rng(seed).normal(0, 0.3, 400)
    inputs = FakeRuleInputs().scalar("loss", 4 + slope * np.arange(400) + noise)
    evaluation = Evaluation(choose_rules())
    evaluation.feed(inputs)
    findings = evaluation.findings()
    learning = judge_learning(findings)
    assert learning.state == state
