"""Tensors with elements that are NaN or infinite."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.analysis import Float, TensorSeries
from stepscope.quantities import count_of
from stepscope.rules.parameters import Switch
from stepscope.rules.tensor.base import Mask, StatelessTensorRule, TensorParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplodingTensorParameters(TensorParameters):
    """Kinds of elements."""

    only_nan: Switch = False
    """True if infinite elements are allowed."""


class ExplodingTensor(StatelessTensorRule[ExplodingTensorParameters]):
    """Checks whether a tensor has elements that are NaN or infinite.

    ## What it checks
    Each recorded step of each selected tensor, by default of all. The rule fires on the first
    element that is NaN or, unless `only_nan` is true, infinite. Datapoints are recorded steps of
    all tensors, violations those with such elements.

    ## Why it matters
    NaN spreads to all weights with the next steps, and everything that the job computes afterwards
    is lost.

    ## What to do
    Start again from the last checkpoint before the step, with a lower learning rate, gradient
    clipping or a warm-up. The option `--on-nan find` names the operation that NaN comes from.

    ## Where the numbers differ from SageMaker Debugger's
    None.
    """

    parameters_type = ExplodingTensorParameters
    recommendation = "Lower the learning rate or clip the gradients, and look for the first NaN."

    def value(self, series: TensorSeries) -> Float:
        values = series.reduction("nan_count")
        return values if self.parameters.only_nan else values + series.reduction("infinite_count")

    def violates(self, values: Float) -> Mask:
        return values > 0

    def describe(self, value: float) -> str:
        kind = "NaN" if self.parameters.only_nan else "NaN or infinite"
        return f"{count_of(int(value), 'element')} {'is' if value == 1 else 'are'} {kind}"
