"""Gradients that are almost zero."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.analysis import Float, TensorSeries
from stepscope.quantities import number
from stepscope.rules.parameters import Positive
from stepscope.rules.tensor.base import Mask, StatelessTensorRule, TensorParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class VanishingGradientParameters(TensorParameters):
    """Size of a gradient."""

    threshold: Positive = 1e-7
    """The rule fires if the mean of the absolute values of a gradient is below this."""


class VanishingGradient(StatelessTensorRule[VanishingGradientParameters]):
    """Checks whether a gradient has become too small to train with.

    ## What it checks
    For each recorded step of each gradient, the mean of the absolute values of its finite elements.
    The rule fires if it is below `threshold`. Datapoints are recorded steps of all gradients,
    violations those below the threshold.

    ## Why it matters
    A layer with such a gradient keeps its weights. In deep networks the first layers lose theirs
    first, because the derivatives of all later layers are multiplied.

    ## What to do
    Use ReLU or GELU instead of sigmoid and tanh, residual connections, normalization layers, and
    an initialization that fits the activation function.

    ## Where the numbers differ from SageMaker Debugger's
    None.
    """

    parameters_type = VanishingGradientParameters
    default_collections = ("gradients",)
    recommendation = "Use other activation functions, residual connections or normalization."

    def value(self, series: TensorSeries) -> Float:
        return series.reduction("abs_mean")

    def violates(self, values: Float) -> Mask:
        return values < self.parameters.threshold

    def describe(self, value: float) -> str:
        return f"the mean of the absolute values is {number(value)}"
