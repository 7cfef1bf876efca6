"""Rules on gradients, loss scales and initial weights, with numbers from formulas."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.quantities import multiple
from stepscope.rules.base import NotApplicable, NotRecorded, read_details
from stepscope.rules.tensor.loss_spike import GradientGrowth, LossSpike, SpikesOfLoss
from stepscope.rules.tensor.poor_weight_initialization import (
    MAX_RANGE_PER_STD,
    PoorWeightInitialization,
    PoorWeightInitializationDetails,
    ProcessStart,
)
from stepscope.rules.tensor.precision import GradientClippingSaturation, LossScaleCollapse
from stepscope.schema import Finding
from tests.support.fake_rule_inputs import FakeRuleInputs, check_rule

NOISE = np.random.default_rng(0).normal(0, 0.05, (8, 300))
SPIKE = 200


# --- the gradient that grew first ----------------------------------------------------------------


def training(
    grown: dict[str, dict[int, float]], *, interval: int = 1, spike: int = SPIKE, length: int = 300
) -> FakeRuleInputs:
    """Draw a loss with a spike a second after the start of each step, and gradients half a second
    later, at every Nth step, whose norm is 2 but at some steps."""
    loss = 1 + NOISE[0][:length]
    loss[spike] = 6
    inputs = FakeRuleInputs().scalar("loss/NllLoss", loss, from_s=0.5)
    for number, (name, norms) in enumerate(grown.items()):
        norm = 2 + NOISE[number + 1][:length]
        for step, value in norms.items():
            norm[step] = value
        inputs.tensor(f"gradient/{name}", l2=norm[::interval], from_s=1.0, every_s=interval)
        series = inputs.tensors[-1]
        series.step[:] *= interval
    return inputs


def growth_in(finding: Finding) -> GradientGrowth | None:
    (loss,) = msgspec.convert(finding.details["losses"], list[SpikesOfLoss])
    return loss.growths[0] if loss.growths else None


def test_the_layer_whose_gradient_grew_first_is_named() -> None:
    rising = {"a": {199: 9, 200: 30}, "b": {200: 50}, "c": {}, "d": {150: 90}}
    finding = check_rule(LossSpike(), training(rising))
    growth = growth_in(finding)
    ratio = 9 / np.median(2 + NOISE[1][149:199])
    assert (growth.record, growth.step, growth.tensor) == (SPIKE, 199, "gradient/a")
    assert growth.ratio == pytest.approx(ratio)
    assert finding.sentences[1] == (
        "loss/NllLoss, record 200: the gradient of a grew first, at step 199: its norm was "
        f"{multiple(ratio)} the median before."
    )


def test_of_several_layers_the_one_that_grew_most_is_named() -> None:
    finding = check_rule(LossSpike(), training({"a": {200: 9}, "b": {200: 50}, "c": {200: 8}}))
    assert "the gradient of b grew first, at step 200" in finding.sentences[1]
    assert finding.sentences[1].endswith(", and 2 others grew too.")


@pytest.mark.parametrize(
    "grown",
    [
        {"a": {}},
        {"a": {198: 9}},  # over before the spike
        {"a": {201: 9}},  # the optimizer has done the step
        {"a": {200: 2.8}},  # not 1.5 times the median
    ],
)
def test_no_layer_is_named_without_growth(grown: dict[str, dict[int, float]]) -> None:
    finding = check_rule(LossSpike(), training(grown))
    assert finding.fired
    assert growth_in(finding) is None
    assert len(finding.sentences) == 1


def test_gradients_of_every_tenth_step() -> None:
    """The last record before the spike counts, and none of a later step."""
    grown = {"a": {190: 9, 200: 9}, "b": {200: 9}}
    growth = growth_in(check_rule(LossSpike(), training(grown, interval=10, spike=205)))
    assert (growth.step, growth.tensor, growth.others_count) == (190, "gradient/a", 0)
    # The record after the step; and one without ten before it, that would tell what is usual.
    for step, spike in ((210, 205), (90, 90)):
        drawn = training({"a": {step: 9}}, interval=10, spike=spike)
        assert growth_in(check_rule(LossSpike(), drawn)) is None


def test_the_last_value_of_a_training_may_be_the_spike() -> None:
    growth = growth_in(check_rule(LossSpike(), training({"a": {99: 9}}, spike=99, length=100)))
    assert growth.step == 99


def test_a_gradient_that_is_not_finite_has_grown() -> None:
    inputs = training({"a": {}, "b": {}})
    inputs.tensors[1].stored["infinite_count"][SPIKE] = 3
    finding = check_rule(LossSpike(), inputs)
    assert finding.sentences[1].endswith(
        "the gradient of b grew first, at step 200: its norm became infinite, NaN or larger than "
        "zero."
    )


# --- loss scales and clipping --------------------------------------------------------------------


def test_loss_scale_collapse() -> None:
    scales = 2.0 ** np.array([4, 3, 2, 1, 0, -1, -2, -2, -3])
    inputs = FakeRuleInputs().scalar("grad_scaler/scale", scales).scalar("loss", scales)
    finding = check_rule(LossScaleCollapse(), inputs)
    assert (finding.violations, finding.datapoints) == (3, 9)
    assert finding.sentences == [
        "grad_scaler/scale: the scale has fallen from 16 to 0.5 at update 5; 7 updates of 9 "
        "decreased it; 2 more times later."
    ]
    assert not check_rule(LossScaleCollapse(threshold=0.125), inputs).fired
    healthy = FakeRuleInputs().scalar("grad_scaler/scale", 2.0 ** np.array([16, 15, 14, 15, 16, 0]))
    assert not check_rule(LossScaleCollapse(), healthy).fired
    deliberate = FakeRuleInputs().scalar("grad_scaler/scale", [0.5, 0.5, 0.25, 0.125])
    assert not check_rule(LossScaleCollapse(), deliberate).fired
    with pytest.raises(NotRecorded, match="the scale of no GradScaler was recorded"):
        LossScaleCollapse().check(FakeRuleInputs().scalar("loss", scales))


@pytest.mark.parametrize(
    ("name", "free", "clipped", "size"),
    [
        ("norm_ratio", 1.0, 3.0, "the norm is 3x max_norm"),
        ("clipped_ratio#2", 0.5, 0.75, "75% of the elements are at the limit"),
    ],
)
def test_gradient_clipping_saturation(name: str, free: float, clipped: float, size: str) -> None:
    """Of 100 calls in a row 95 are enough, and 94 are not."""

    def clip(free_count: int) -> FakeRuleInputs:
        values = np.full(300, clipped)
        values[np.arange(3, 300, 5)] = free
        values[100:200] = clipped
        values[150 : 150 + free_count] = free
        return FakeRuleInputs().scalar(f"gradient_clipping/{name}", values)

    finding = check_rule(GradientClippingSaturation(), clip(5))
    is_free = clip(5).scalars[0].value == free
    counts = [int(is_free[end - 100 : end].sum()) for end in range(100, 301)]
    assert finding.violations == sum(count <= 5 for count in counts) > 0
    first = 99 + next(n for n, count in enumerate(counts) if count <= 5)
    assert finding.sentences[0].startswith(
        f"gradient_clipping/{name}: 95% of 100 calls up to record {first} clipped the gradients; "
        f"at the median {size}"
    )
    assert not check_rule(GradientClippingSaturation(), clip(6)).fired
    assert check_rule(GradientClippingSaturation(threshold=94), clip(6)).fired
    with pytest.raises(NotApplicable, match="only 99 recorded calls so far"):
        GradientClippingSaturation().check(
            FakeRuleInputs().scalar(f"gradient_clipping/{name}", [clipped] * 99)
        )
    with pytest.raises(NotRecorded, match="no clipping of gradients was recorded"):
        GradientClippingSaturation().check(FakeRuleInputs().scalar("loss", [1.0]))


# --- initial weights -----------------------------------------------------------------------------

STUCK = [1.0, 0.9, 0.9, 0.95, 0.9, 0.8995, 0.91, 0.92, 0.9, 0.9]
FALLING = [1 - 0.02 * n for n in range(10)]


def beginning(
    losses: list[float] | None,
    *,
    variances: dict[str, Any] | None = None,
    gradients: dict[str, Any] | None = None,
) -> FakeRuleInputs:
    """Draw the start of a training: variances of the inputs of modules, and standard deviations of
    gradients, by step."""
    inputs = FakeRuleInputs()
    if losses is not None:
        inputs.scalar("loss", losses)
    for name, variance in (variances or {}).items():
        inputs.tensor(f"input/{name}", collection="inputs", std=np.sqrt(variance))
        inputs.tensor(f"dead_units/{name}", collection="dead_units", mean=[0.0] * 2)
    for name, std in (gradients or {}).items():
        inputs.tensor(f"gradient/{name}", std=std)
    return inputs


def start_in(finding: Finding) -> ProcessStart:
    details = read_details(finding, PoorWeightInitializationDetails)
    assert details is not None
    return details.processes[0]


def test_uneven_variances_with_a_stuck_loss() -> None:
    uneven = {"act1": [2.2, 1.0], "act2": [0.2, 0.5], "act3": [0.9, 0.9]}
    finding = check_rule(PoorWeightInitialization(), beginning(STUCK, variances=uneven))
    assert finding.sentences == [
        "input/act1: its variance is 11x that of input/act2 at step 0.",
        "loss: 5 of the first 10 values in a row are no lower than before; the lowest is 0.9.",
    ]
    assert (finding.violations, finding.datapoints) == (2, 1 + 10)
    assert start_in(finding).loss_decreases is False
    learning = check_rule(PoorWeightInitialization(), beginning(FALLING, variances=uneven))
    assert not learning.fired
    assert start_in(learning).loss_decreases is True
    assert not check_rule(
        PoorWeightInitialization(threshold=12), beginning(STUCK, variances=uneven)
    ).fired
    # Later, the optimizer may be the cause. Debugger fires on each condition in each step.
    either = PoorWeightInitialization(any_condition=True)
    for step, is_found in ((1, True), (9, True), (10, False)):
        later = {name: [0.5] * step + values for name, values in uneven.items()}
        assert not check_rule(PoorWeightInitialization(), beginning(STUCK, variances=later)).fired
        assert check_rule(either, beginning(FALLING, variances=later)).fired is is_found
    assert check_rule(either, beginning(FALLING, variances=uneven)).fired
    assert check_rule(either, beginning(None, variances=uneven)).fired
    assert check_rule(either, beginning(STUCK, gradients={"a": 1.0})).fired


def test_only_inputs_of_rectifiers_are_compared() -> None:
    inputs = beginning(STUCK, variances={"act1": [1.0], "act2": [1.0]}, gradients={"a": 1.0})
    inputs.tensor("input/fc", collection="inputs", std=[9.0])
    assert not check_rule(PoorWeightInitialization(), inputs).fired
    by_name = PoorWeightInitialization(activation_inputs_regex="^input/")
    assert "input/fc" in check_rule(by_name, inputs).sentences[0]


@pytest.mark.parametrize(("factor", "is_found"), [(0.99, True), (1.01, False)])
def test_narrow_gradients_with_a_stuck_loss(factor: float, is_found: bool) -> None:
    """The percentiles are surely less than 0.001 apart if the deviation is below 0.001 / √40."""
    narrow = {"a": [factor * 0.001 / np.sqrt(40), 1.0], "b": [1.0, 0.0], "c": [1.0]}
    finding = check_rule(PoorWeightInitialization(), beginning(STUCK, gradients=narrow))
    assert finding.fired is is_found
    if is_found:
        assert finding.sentences[0].startswith(
            "gradient/a: 90% of the elements are less than 0.001 apart at step 0"
        )
    # A loss that is divided by something makes all gradients small.
    small = beginning(STUCK, gradients={"a": narrow["a"], "b": 0.1})
    assert not check_rule(PoorWeightInitialization(), small).fired
    assert check_rule(PoorWeightInitialization(any_condition=True), small).fired
    short = beginning(STUCK, gradients=narrow)
    short.tensors[0].stored["element_count"][:] = 19
    assert not check_rule(PoorWeightInitialization(), short).fired


@pytest.mark.parametrize("tail_count", [0, 1, 2, 5, 40])
@pytest.mark.parametrize("seed", range(20))
def test_the_bound_of_the_percentiles_holds(seed: int, tail_count: int) -> None:
    """For symmetric tails of 5% each, with all others at the mean, it is the distance itself."""
    elements = np.random.default_rng(seed).standard_t(1.5, 80)
    elements[:tail_count] = 0
    tails = np.concatenate([np.zeros(90), [-1.0] * 5, [1.0] * 5])
    for values, slack in ((elements, 1.0), (tails, 1e-9)):
        outer_count = len(values) // 20
        low, high = np.sort(values)[[outer_count - 1, -outer_count]]
        bound = MAX_RANGE_PER_STD * values.std()
        assert high - low <= bound * (1 + 1e-9)
        assert slack == 1.0 or high - low == pytest.approx(bound, rel=slack)


def test_what_initial_weights_are_judged_by() -> None:
    with pytest.raises(NotRecorded, match="neither gradients nor inputs of two ReLU modules"):
        PoorWeightInitialization().check(beginning(STUCK, variances={"act": [1.0]}))
    with pytest.raises(NotRecorded, match="no loss was recorded"):
        PoorWeightInitialization().check(beginning(None, gradients={"a": 1.0}))
    with pytest.raises(NotApplicable, match="only 5 values of a loss so far"):
        PoorWeightInitialization().check(beginning(STUCK[:5], gradients={"a": 1.0}))
    early = check_rule(PoorWeightInitialization(), beginning(FALLING[:8], gradients={"a": 1.0}))
    assert start_in(early).loss_decreases is None
