"""Updates of weights that are too large or too small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis import Float, TensorSeries
from stepscope.quantities import number
from stepscope.rules.parameters import Positive
from stepscope.rules.tensor.base import Mask, StatelessTensorRule, TensorParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdateRatioParameters(TensorParameters):
    """Limits of the ratio."""

    large_threshold: Positive = 10.0
    """The rule fires if the ratio is above this."""
    small_threshold: Positive = 1e-8
    """The rule fires if the ratio is below this."""
    epsilon: Positive = 1e-9
    """Added to the norm of the weights, so that weights of zero have a ratio."""


class WeightUpdateRatio(StatelessTensorRule[WeightUpdateRatioParameters]):
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

    def value(self, series: TensorSeries) -> Float:
        norm = series.reduction("l2") + self.parameters.epsilon
        return series.reduction("update_l2") / norm

    def violates(self, values: Float) -> Mask:
        too_large: Mask = values > self.parameters.large_threshold
        return np.logical_or(too_large, values < self.parameters.small_threshold)

    def describe(self, value: float) -> str:
        return f"the optimizer step changes it by {number(value)} times its norm"
