"""Findings on the screen of the tensors: the rules that fired, and the tensors that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.rules import Evaluation, name_tensors
from stepscope.rules.tensor.loss_spike import LossSpike
from stepscope.rules.tensor.poor_weight_initialization import PoorWeightInitialization
from stepscope.run import Run
from stepscope.schema import Finding
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views.tensors.tensors import (
    NamingRules,
    TensorFinding,
    TensorOfFinding,
    TensorsView,
    show_tensors,
)
from tests.support.command import run_command
from tests.support.fake_rule_inputs import FakeRuleInputs
from tests.support.tensor_rows import add_tensors
from tests.unit.rules.test_gradient_rules import STUCK, beginning, training

STEPS = 20


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    """Draw two ranks: a gradient vanishes on the second one, a weight explodes on the first."""
    builder = RunBuilder(tmp_path / "run")
    processes = [builder.rank(rank) for rank in (0, 1)]
    for process in processes:
        process.draw("forward 400 | backward 400 | optimizer 200", STEPS)
    processes[0].fact("nan_search", first_step=0, step_count=9, loss_step=None, loss=None)
    processes[0].fact(
        "nan_origin", step=9, phase="loss", operator="div", file="/home/user/train.py", line=31,
        result={"shape": [4], "dtype": "float32", "element_count": 4, "nan_count": 1},
        inputs=[], reached="loss", reached_step=9,
    )  # fmt: skip
    builder.write()
    for number, process in enumerate(processes):
        rows = [
            {
                "tensor": name, "collection": collection, "step": step, "update_l2": 0.1,
                **dict.fromkeys(("min", "max", "mean", "l2"), float(step + 1)),
                "l1": 1e-9 if number == 1 and name.startswith("gradient") and step >= 5 else 1.0,
                "nan_count": int(number == 0 and name == "a" and step >= 12),
            }
            for name, collection in (("a", "weights"), ("gradient/a", "gradients"))
            for step in range(STEPS)
        ]  # fmt: skip
        add_tensors(tmp_path / "run", process.info.process, rows)
    return tmp_path / "run"


def show(run: Run) -> TensorsView:
    return show_tensors(run)


def test_findings_name_their_tensors_and_steps(drawn: Path) -> None:
    view = show(Run(open_run(drawn)))
    by_rule = {finding.rule: finding for finding in view.findings}
    # By time: step 5 is before step 12, and the origin is in step 9.
    rules = [finding.rule for finding in view.findings]
    assert rules == ["VanishingGradient", "NanOrigin", "ExplodingTensor"]
    (vanishing,), (exploding,) = (
        by_rule[rule].tensors for rule in ("VanishingGradient", "ExplodingTensor")
    )
    assert (vanishing.name, vanishing.rank, vanishing.first_step) == ("gradient/a", 1, 5)
    assert (vanishing.violation_count, vanishing.record_count) == (15, 20)
    assert (exploding.name, exploding.rank, exploding.first_step) == ("a", 0, 12)
    assert by_rule["VanishingGradient"].recommendation
    assert view.nan_origin is not None
    assert view.nan_origin_step == 9
    assert view.sentence.startswith("Step 9: `div` in train.py:31 (loss) produced the first NaN")
    rows = [(tensor.name, tensor.rank, tensor.rules) for tensor in view.tensors]
    assert rows == [
        ("a", 0, ["ExplodingTensor"]),
        ("gradient/a", 1, ["VanishingGradient"]),
        ("gradient/a", 0, []),
        ("a", 1, []),
    ]


def test_a_range_has_the_findings_of_its_time(drawn: Path) -> None:
    """Tensors are recorded once a second."""
    run = Run(open_run(drawn))
    early = run.between(EPOCH_NS, EPOCH_NS + 11 * 10**9)
    assert [finding.rule for finding in show(early).findings] == ["VanishingGradient", "NanOrigin"]


def test_the_text_has_the_findings(drawn: Path) -> None:
    text = run_command(drawn.parent, "show", str(drawn), "tensors").stdout
    assert "VanishingGradient gradient/a, rank 1: the mean" in " ".join(text.split())


def evaluate(rule: LossSpike | PoorWeightInitialization, inputs: FakeRuleInputs) -> Finding:
    evaluation = Evaluation([rule])
    evaluation.feed(inputs)
    (finding,) = evaluation.findings()
    return finding


def test_tensors_of_rules_with_other_details() -> None:
    spike = evaluate(LossSpike(), training({"a": {199: 9, 200: 30}, "b": {200: 50}}))
    assert [(t.tensor, t.first_step) for t in name_tensors(spike)] == [("gradient/a", 199)]
    start = beginning(
        STUCK,
        variances={"act1": [1.0], "act2": [0.01], "act3": [0.5]},
        gradients={"a": 1e-9, "b": 1.0},
    )
    tensors = name_tensors(evaluate(PoorWeightInitialization(), start))
    assert [t.tensor for t in tensors] == ["gradient/a", "input/act1", "input/act2"]
    quiet = evaluate(PoorWeightInitialization(), beginning(STUCK, gradients={"a": 1.0}))
    assert name_tensors(quiet) == []


def test_rules_that_name_a_tensor() -> None:
    """By its name, mode and rank; a finding without a rank names that of all, one of rank 0 that
    of a process without ranks."""

    def finding(rule: str, *tensors: tuple[str, int | None, str]) -> TensorFinding:
        listed = [
            TensorOfFinding(
                name=name, rank=rank, mode=mode, first_step=0, violation_count=1, record_count=1
            )
            for name, rank, mode in tensors
        ]
        return TensorFinding(
            rule=rule, sentences=[], recommendation="", first_after_ns=0, tensors=listed
        )

    naming = NamingRules([
        finding("Second", ("a", 1, "TRAIN"), ("a", 2, "TRAIN"), ("b", 0, "TRAIN")),
        finding("First", ("a", None, "TRAIN"), ("a", 1, "TRAIN"), ("a", 0, "EVAL")),
    ])  # fmt: skip
    assert naming.find("a", 1, "TRAIN") == ["Second", "First"]
    assert naming.find("a", 0, "TRAIN") == ["First"]
    assert naming.find("a", None, "EVAL") == ["First"]
    assert naming.find("a", 1, "EVAL") == []
    assert naming.find("b", None, "TRAIN") == ["Second"]
    assert naming.find("c", 0, "TRAIN") == []
