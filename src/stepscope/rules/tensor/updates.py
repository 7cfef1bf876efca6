"""Updates of weights that are too large or too small, and tensors that do not change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np

from stepscope import analysis, quantities
from stepscope.quantities import count
from stepscope.rules.parameters import Count, NotNegative, Positive, Switch
from stepscope.rules.tensor import base


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSizeParameters(base.TensorParameters):
    """Size of updates, and how long."""

    threshold: Positive
    """Limit of the L2 norm of an update, as a share of the norm of its weight."""
    patience: Count = 20
    """Recorded steps in a row at which the update of a weight is outside of the limit."""


class UpdatedWeight(base.TensorState, kw_only=True):
    """State of a weight."""

    in_row: int = 0
    """Latest recorded steps in a row outside of the limit."""


P = TypeVar("P", bound=UpdateSizeParameters)


class UpdateSize(base.PerTensorRule[P, UpdatedWeight], Generic[P]):
    """Fires if the updates of more than half of the weights are outside of a limit for long."""

    state_type = UpdatedWeight
    default_collections = ("weights",)
    comparison: ClassVar[str]
    """Words for being outside of the limit, such as `more than`."""

    def is_outside(self, ratio: analysis.Float) -> base.Mask:
        """Return which ratios of update to weight are outside of the limit."""
        raise NotImplementedError

    def judge(
        self, tensor: UpdatedWeight, series: analysis.TensorSeries
    ) -> tuple[analysis.Float, base.Mask]:
        ratio = series.reduction("update_ratio")
        with np.errstate(invalid="ignore"):
            is_outside = self.is_outside(ratio)
        in_row = base.count_in_row(is_outside, tensor.in_row)
        tensor.in_row = int(in_row[-1])
        return ratio, in_row >= self.parameters.patience

    def select_fired(
        self, tensors: list[UpdatedWeight], violated: list[UpdatedWeight]
    ) -> list[UpdatedWeight]:
        return violated if 2 * len(violated) > len(tensors) else []

    def sentences(self, fired: list[UpdatedWeight]) -> Iterable[str]:
        if fired:
            first, weights = fired[0], quantities.count_of(len(fired), "weight")
            yield (
                f"Each optimizer step changes {weights} by {self.comparison} "
                f"{quantities.number(self.parameters.threshold)} times their norm, at "
                f"{count(self.parameters.patience)} recorded steps in a row; the first is "
                f"{first.title} at step {first.extent[0].step}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateTooHighParameters(UpdateSizeParameters):
    """Largest updates."""

    threshold: Positive = 0.1
    """Largest L2 norm of an update, as a share of the norm of its weight."""


class LearningRateTooHigh(UpdateSize[LearningRateTooHighParameters]):
    """Checks whether the optimizer changes the weights too much at each step.

    ## What it checks
    For each recorded step of each weight, the L2 norm of its change by the optimizer step, divided
    by its norm. The rule fires if that is above `threshold` at `patience` recorded steps in a row
    for more than half of the weights. Datapoints are recorded steps of all weights, violations
    those with which this holds for a weight.

    ## Why it matters
    A [common rule](https://karpathy.github.io/2019/04/25/recipe/) expects updates of about 0.001 of
    the weights. With updates a hundred times as large the loss jumps or diverges.

    ## What to do
    Lower the learning rate, or raise the warm-up.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    parameters_type = LearningRateTooHighParameters
    recommendation = "Lower the learning rate, or raise the warm-up."
    comparison = "more than"

    def is_outside(self, ratio: analysis.Float) -> base.Mask:
        return ratio > self.parameters.threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateTooLowParameters(UpdateSizeParameters):
    """Smallest updates."""

    threshold: Positive = 1e-6
    """Smallest L2 norm of an update, as a share of the norm of its weight."""


class LearningRateTooLow(UpdateSize[LearningRateTooLowParameters]):
    """Checks whether the optimizer hardly changes the weights.

    ## What it checks
    For each recorded step of each weight, the L2 norm of its change by the optimizer step, divided
    by its norm. The rule fires if that is below `threshold` at `patience` recorded steps in a row
    for more than half of the weights. Datapoints are recorded steps of all weights, violations
    those with which this holds for a weight.

    ## Why it matters
    With updates of a millionth of the weights, it takes a million steps to replace them: the job
    trains for a long time and learns little.

    ## What to do
    Raise the learning rate, end a warm-up or a schedule that has reached zero, or check whether
    the loss or the gradients are scaled down.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    parameters_type = LearningRateTooLowParameters
    recommendation = "Raise the learning rate, or check its schedule."
    comparison = "less than"

    def is_outside(self, ratio: analysis.Float) -> base.Mask:
        return ratio < self.parameters.threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdateRatioParameters(base.TensorParameters):
    """Limits of the ratio."""

    large_threshold: Positive = 10.0
    """The rule fires if the ratio is above this."""
    small_threshold: Positive = 1e-8
    """The rule fires if the ratio is below this."""
    epsilon: Positive = 1e-9
    """Added to the norm of the weights, so that weights of zero have a ratio."""


class WeightUpdateRatio(base.StatelessTensorRule[WeightUpdateRatioParameters]):
    """Checks whether the updates of weights fit their size.

    ## What it checks
    For each recorded step of each weight, the L2 norm of its change by the optimizer step, divided
    by that of the weight plus `epsilon`. The rule fires if it is above `large_threshold` or below
    `small_threshold`. Datapoints are recorded steps of all weights, violations those outside of
    the limits.

    ## Why it matters
    A weight that changes by more than itself forgets what it has learned; one that does not change
    learns nothing.

    ## What to do
    Change the learning rate, or that of the parameter group. A weight that should not change need
    not be in the optimizer.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger compares the weights at two saved steps, `num_steps` apart; here the change is that by
    one optimizer step, so there is no `num_steps`. Debugger does not say which norm it uses.
    """

    parameters_type = WeightUpdateRatioParameters
    default_collections = ("weights",)
    recommendation = "Change the learning rate of these weights."

    def value(self, series: analysis.TensorSeries) -> analysis.Float:
        norm = series.reduction("l2") + self.parameters.epsilon
        return series.reduction("update_l2") / norm

    def violates(self, values: analysis.Float) -> base.Mask:
        too_large: base.Mask = values > self.parameters.large_threshold
        return np.logical_or(too_large, values < self.parameters.small_threshold)

    def describe(self, value: float) -> str:
        return f"the optimizer step changes it by {quantities.number(value)} times its norm"


COMPARED = ("min", "max", "mean", "std", "l1", "l2")
"""Statistics of equal tensors are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchangedTensorParameters(base.TensorParameters):
    """Tolerance of the comparison."""

    num_steps: Count = 3
    """The rule fires if a tensor is the same at so many recorded steps in a row."""
    rtol: NotNegative = 1e-5
    """Relative tolerance of the statistics."""
    atol: NotNegative = 1e-8
    """Absolute tolerance of the statistics."""
    equal_nan: Switch = False
    """True if statistics that are not known, as of a tensor of NaN, count as equal."""


class ComparedTensor(base.TensorState, kw_only=True):
    """State of a tensor, with its latest statistics."""

    latest: analysis.Float | None = None
    in_row: int = 0
    """Latest recorded steps that are the same as the one before."""


class UnchangedTensor(base.PerTensorRule[UnchangedTensorParameters, ComparedTensor]):
    """Checks whether a tensor has stopped changing.

    ## What it checks
    For each selected tensor, by default each weight and gradient, whether its smallest and largest
    element, mean, standard deviation, L1 and L2 norm are the same at the last `num_steps` recorded
    steps, each compared with the step before: |a - b| <= `atol` + `rtol` |b|. Unknown statistics
    are equal if `equal_nan` is true. Datapoints are recorded steps of all tensors, violations
    those at which the tensor has not changed for so long.

    ## Why it matters
    A weight that does not change learns nothing: it is frozen, not in the optimizer, or its
    gradient is zero.

    ## What to do
    Check `requires_grad`, the parameters that the optimizer was given, and the learning rate.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger compares all elements. A tensor whose elements change while all six statistics stay
    within the tolerances counts as unchanged here.
    """

    parameters_type = UnchangedTensorParameters
    state_type = ComparedTensor
    default_collections = ("weights", "gradients")
    recommendation = "Check requires_grad, the parameters of the optimizer, and its learning rate."

    def judge(
        self, tensor: ComparedTensor, series: analysis.TensorSeries
    ) -> tuple[analysis.Float, base.Mask]:
        rows = np.stack([series.reduction(name) for name in COMPARED], axis=1)
        before = np.concatenate([rows[:1] if tensor.latest is None else [tensor.latest], rows[:-1]])
        is_same = np.isclose(
            rows,
            before,
            rtol=self.parameters.rtol,
            atol=self.parameters.atol,
            equal_nan=self.parameters.equal_nan,
        ).all(axis=1)
        if tensor.latest is None:
            is_same[0] = False
        in_row = base.count_in_row(is_same, tensor.in_row)
        tensor.latest, tensor.in_row = rows[-1], int(in_row[-1])
        same_count = in_row + 1
        return same_count.astype(np.float64), same_count >= self.parameters.num_steps

    def describe(self, value: float) -> str:
        return f"the same at the last {count(value)} recorded steps"
