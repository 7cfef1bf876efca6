"""Rules on losses and updates, with numbers from formulas."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from numpy.typing import NDArray

from stepscope import spool
from stepscope.analysis import LoggedScalars
from stepscope.quantities import multiple
from stepscope.rules.base import NotApplicable, NotRecorded, read_details
from stepscope.rules.tensor import losses
from stepscope.rules.tensor.loss_spike import LossSpike
from stepscope.rules.tensor.losses import LossNotDecreasing, NonFiniteLoss
from stepscope.rules.tensor.stalled_training import StalledTrainingDetails, StalledTrainingRule
from stepscope.rules.tensor.updates import LearningRateTooHigh, LearningRateTooLow
from stepscope.rules.tensor.validation import Overfit, Overtraining, ValidationDetails
from stepscope.schema import Finding
from tests.support.fake_rule_inputs import FakeRuleInputs, check_rule

STEPS = np.arange(100)
NOISE = np.random.default_rng(0).normal(0, 0.05, 400)


def test_names_of_losses() -> None:
    assert doctest.testmod(losses).attempted > 0
    assert doctest.testmod(losses).failed == 0


def test_loss_not_decreasing() -> None:
    # The fourth mean of ten values is the third one that is not lower.
    loss = np.full(60, 1.5)
    finding = check_rule(LossNotDecreasing(), FakeRuleInputs().scalar("loss", loss))
    assert finding.violations == 3
    assert finding.sentences == [
        "loss: its mean over 10 values does not decrease: 1.5 at record 39, after a lowest one of "
        "1.5; 2 more times later."
    ]
    assert (
        check_rule(LossNotDecreasing(patience=1), FakeRuleInputs().scalar("loss", loss)).violations
        == 5
    )
    falling = FakeRuleInputs().scalar("train/loss", 2 - 0.01 * STEPS)
    assert not check_rule(LossNotDecreasing(), falling).fired
    assert check_rule(LossNotDecreasing(diff_percent=60), falling).fired
    rising = check_rule(LossNotDecreasing(), FakeRuleInputs().scalar("loss", 1 + 0.1 * STEPS))
    assert "increases: 4.45 at record 39, after a lowest one of 1.45" in rising.sentences[0]
    accuracy = FakeRuleInputs().scalar("accuracy", STEPS)
    with pytest.raises(NotRecorded):
        LossNotDecreasing().check(accuracy)
    for name in ("test_loss_step", "val/loss"):  # of batches, while the model does not change
        with pytest.raises(NotRecorded):
            LossNotDecreasing().check(FakeRuleInputs().scalar(name, loss))
    assert check_rule(LossNotDecreasing(tensor_regex="^acc"), accuracy).fired
    with pytest.raises(NotApplicable, match="only 39 values of a loss so far"):
        LossNotDecreasing().check(FakeRuleInputs().scalar("loss", STEPS[:39]))


@pytest.mark.parametrize(
    ("expected", "fires"),
    [
        (1.4 * np.exp(-np.arange(400) / 30) + 0.15, False),  # has converged
        (np.where(np.arange(400) < 50, 2 - 0.01 * np.arange(400), 1.5), False),
        (np.full(400, 1.4), True),
        (np.abs(np.arange(400) - 200) / 100, True),  # rises after 200 values
    ],
    ids=["converges", "stays", "never falls", "rises"],
)
@pytest.mark.parametrize("deviation", [0.0, 0.02, 0.1])
def test_a_loss_is_judged_against_its_noise(
    expected: NDArray[np.float64], deviation: float, *, fires: bool
) -> None:
    """Three standard errors of chance are rare: one of twenty trainings may fire by it."""
    noise = np.random.default_rng(1).normal(0, deviation, (20, len(expected)))
    findings = [
        check_rule(LossNotDecreasing(), FakeRuleInputs().scalar("loss", expected + one))
        for one in noise
    ]
    count = sum(finding.fired for finding in findings)
    assert count >= 19 if fires else count <= 1, count
    trends = [finding.details["losses"][0]["trend"] for finding in findings]
    if not fires:  # by chance, the latest of the averages can be the lowest
        assert trends.count("has converged") >= 15, trends
    elif expected[-1] == expected[0]:
        assert trends.count("unclear") >= 19, trends


def test_values_that_are_not_finite_do_not_count() -> None:
    loss = 2 - 0.01 * STEPS
    with_nan = np.insert(loss, 15, [np.nan] * 30)
    finding = check_rule(LossNotDecreasing(), FakeRuleInputs().scalar("loss", with_nan))
    assert not finding.fired
    assert finding.datapoints == 100


@pytest.mark.parametrize(
    ("name", "values", "sentence"),
    [
        ("loss", [3.0, 2.0, np.nan, np.nan], "NaN or infinite at record 2, after 2; 1 more"),
        ("loss", [3.0, 2.0, np.inf], "NaN or infinite at record 2, after 2."),
        ("loss", [np.nan], "NaN or infinite at record 0."),
        ("loss", [3.0, np.nan, 2.0, 1.0], None),  # a step that a GradScaler left out
        ("train/grad_norm", [1.0, *[np.nan] * 10], "NaN or infinite at record 1, after 1; 9 more"),
        ("train/grad_norm", [*[np.inf] * 9], None),
        ("train/grad_norm", [*[np.inf] * 20, 1.0], None),
        ("loss", [3.0, 2.0], None),
    ],
)
def test_a_loss_that_is_not_finite(name: str, values: list[float], sentence: str | None) -> None:
    finding = check_rule(NonFiniteLoss(), FakeRuleInputs().scalar(name, values))
    assert finding.fired == (sentence is not None)
    assert finding.datapoints == len(values)
    if sentence is not None:
        assert finding.violations == int(np.sum(~np.isfinite(values)))
        assert finding.sentences[0].startswith(f"{name}: {sentence}")
    with pytest.raises(NotRecorded):
        NonFiniteLoss().check(FakeRuleInputs().scalar("accuracy", values))


def test_a_loss_that_the_trainer_replaces_is_explained() -> None:
    assert losses.UNFILTERED_LOSS == spool.UNFILTERED_LOSS
    inputs = FakeRuleInputs().scalar("loss", [3.0, 0.0]).scalar(spool.UNFILTERED_LOSS, [np.nan])
    finding = check_rule(NonFiniteLoss(), inputs)
    assert "logs a finite one instead (logging_nan_inf_filter)" in finding.sentences[-1]


def spike(at: int, height: float) -> FakeRuleInputs:
    loss = 1 + NOISE
    loss[at] = height
    return FakeRuleInputs().scalar("loss/NllLoss", loss)


def test_loss_spike() -> None:
    finding = check_rule(LossSpike(), spike(200, 6.0))
    assert finding.violations == 1
    ratio = 6 / np.median((1 + NOISE)[150:200])
    assert finding.sentences == [
        f"loss/NllLoss: 6 at record 200, {multiple(ratio)} the median of the 50 values before."
    ]
    assert not check_rule(LossSpike(), spike(200, 1.4)).fired  # not 1.5 times the median
    assert not check_rule(LossSpike(), spike(20, 6.0)).fired  # too early to compare
    with pytest.raises(NotApplicable):
        LossSpike().check(FakeRuleInputs().scalar("loss", NOISE[:50]))


def epochs(training: list[float], validation: list[float]) -> FakeRuleInputs:
    """Ten training losses per epoch, then two validation losses around the given mean."""
    inputs = FakeRuleInputs()
    inputs.scalar("train_loss", np.repeat([*training, training[-1]], 10), every_s=1)
    values = np.stack([np.array(validation) - 0.1, np.array(validation) + 0.1], axis=1)
    for number, pair in enumerate(values):
        inputs.scalar("val_loss", pair, from_s=10 * number + 9.6, every_s=0.2)
    joined = inputs.scalars[0], *inputs.scalars[1:]
    inputs.scalars = [
        joined[0],
        LoggedScalars(
            name="val_loss",
            process="p0",
            t_ns=np.concatenate([s.t_ns for s in joined[1:]]),
            value=np.concatenate([s.value for s in joined[1:]]),
        ),
    ]
    return inputs


def passes(finding: Finding) -> list[tuple[float, float]]:
    details = read_details(finding, ValidationDetails)
    assert details is not None
    return [(round(p.training, 9), round(p.validation, 9)) for p in details.losses[0].passes]


def test_overfit() -> None:
    inputs = epochs([1.0, 0.8, 0.6, 0.4], [1.0, 0.85, 0.7, 0.7])
    finding = check_rule(Overfit(), inputs)
    assert passes(finding) == [(1.0, 1.0), (0.8, 0.85), (0.6, 0.7), (0.4, 0.7)]
    assert finding.violations == 2  # 0.7 is 17 % above 0.6 and 75 % above 0.4
    assert finding.sentences == ["val_loss: 0.7, while train_loss is 0.6, in 2 of 4 passes."]
    assert check_rule(Overfit(patience=2), inputs).violations == 1
    assert check_rule(Overfit(start_step=3), inputs).violations == 1
    assert not check_rule(Overfit(ratio_threshold=1), inputs).fired
    with pytest.raises(NotApplicable, match="word for validation"):
        Overfit().check(FakeRuleInputs().scalar("loss", STEPS))


def test_overtraining() -> None:
    falling = [1 - 0.05 * n for n in range(12)]
    assert not check_rule(Overtraining(), epochs(falling, falling)).fired
    finding = check_rule(Overtraining(), epochs([1.0, *[0.5] * 9], [1.0, *[0.5] * 9]))
    assert finding.violations == 4  # the training loss is the same at passes 2 to 10
    assert finding.sentences == [
        "val_loss: train_loss has not fallen below 0.5 for 8 passes, in 4 of 10 passes."
    ]
    late = check_rule(
        Overtraining(patience_train=20, patience_validation=3), epochs(falling, [1.0] * 12)
    )
    assert late.violations == 9


def test_stalled_training() -> None:
    inputs = FakeRuleInputs().scalar("loss", STEPS[:3])
    inputs.scalar("later", STEPS[:3], from_s=2502.5 - 2)
    finding = check_rule(StalledTrainingRule(), inputs)
    details = read_details(finding, StalledTrainingDetails)
    assert details.longest_pause_s == pytest.approx(2500.5 - 2.5)
    assert (finding.violations, finding.datapoints) == (1, 6)
    assert not check_rule(StalledTrainingRule(threshold="2600"), inputs).fired
    hanging = FakeRuleInputs().scalar("loss", STEPS[:3]).sample("cpu_busy_ratio", [0] * 4000)
    finding = check_rule(StalledTrainingRule(threshold=60), hanging)
    assert finding.fired
    assert "up to the end of the recorded time" in finding.sentences[0]


@pytest.mark.parametrize(
    ("rule", "outside"), [(LearningRateTooHigh(), 0.11), (LearningRateTooLow(), 9e-7)]
)
def test_learning_rate(rule: LearningRateTooHigh, outside: float) -> None:
    def weights(bad_count: int, in_row: int) -> FakeRuleInputs:
        inputs = FakeRuleInputs()
        for number in range(5):
            bad = (in_row > STEPS) & (number < bad_count)
            inputs.tensor(f"w{number}", l2=2.0, update_l2=np.where(bad, 2 * outside, 2e-3))
        return inputs

    finding = check_rule(rule, weights(3, 22))
    assert finding.violations == 9
    assert "changes 3 weights" in finding.sentences[0]
    assert "the first is w0 at step 19" in finding.sentences[0]
    assert not check_rule(rule, weights(2, 22)).fired
    assert not check_rule(rule, weights(5, 19)).fired
