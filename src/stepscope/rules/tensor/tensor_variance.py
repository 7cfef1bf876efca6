"""Tensors whose variance is outside of given limits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stepscope.analysis import Float, TensorSeries
from stepscope.quantities import number
from stepscope.rules.parameters import Limit
from stepscope.rules.tensor.base import Mask, StatelessTensorRule, TensorParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorVarianceParameters(TensorParameters):
    """Limits of the variance."""

    max_threshold: Limit = None
    """The rule fires if the variance of a tensor is above this."""
    min_threshold: Limit = None
    """The rule fires if the variance of a tensor is below this."""


class TensorVariance(StatelessTensorRule[TensorVarianceParameters]):
    """Checks whether the variance of a tensor stays within limits.

    ## What it checks
    For each recorded step of each selected tensor, the variance of its finite elements. The rule
    fires if it is above `max_threshold` or below `min_threshold`; without a limit it never does.
    Datapoints are recorded steps of all tensors, violations those outside of the limits.

    ## Why it matters
    Weights and activations whose variance grows or shrinks from layer to layer saturate activation
    functions and make gradients vanish or explode.

    ## What to do
    Choose an initialization that keeps the variance, such as Kaiming's or Xavier's, or add
    normalization layers.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger requires `collection_names` or `tensor_regex`; here all tensors are the default.
    """

    parameters_type = TensorVarianceParameters
    recommendation = "Choose an initialization that keeps the variance, or normalize."

    def value(self, series: TensorSeries) -> Float:
        return series.reduction("variance")

    def violates(self, values: Float) -> Mask:
        low, high = self.parameters.min_threshold, self.parameters.max_threshold
        too_low: Mask = values < (-math.inf if low is None else low)
        return np.logical_or(too_low, values > (math.inf if high is None else high))

    def describe(self, value: float) -> str:
        return f"the variance is {number(value)}"
