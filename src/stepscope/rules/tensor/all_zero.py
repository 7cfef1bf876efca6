"""Tensors whose elements are all zero."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.analysis import Float, TensorSeries
from stepscope.quantities import percent
from stepscope.rules.parameters import Percentage
from stepscope.rules.tensor.base import Mask, StatelessTensorRule, TensorParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class AllZeroParameters(TensorParameters):
    """Share of zeros."""

    threshold: Percentage = 100.0
    """The rule fires if at least this share (%) of the elements of a tensor is zero."""


class AllZero(StatelessTensorRule[AllZeroParameters]):
    """Checks whether a tensor is zero.

    ## What it checks
    For each recorded step of each selected tensor, the share of zeros in its elements. The rule
    fires if it is at least `threshold` percent. Datapoints are recorded steps of all tensors,
    violations those above the threshold. By default gradients and weights are judged.

    ## Why it matters
    A gradient of zeros updates nothing: a branch is dead, its input is detached, or its units no
    longer become active. A weight of zeros passes nothing on.

    ## What to do
    Look at the layer before it: at the activation function, at `detach()` and `no_grad`, and at the
    initial values. A layer that the loss does not use should be frozen.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger requires `collection_names` or `tensor_regex`; here gradients and weights are the
    default.
    """

    parameters_type = AllZeroParameters
    default_collections = ("gradients", "weights")
    recommendation = "Check the activation function and the detached parts before this layer."

    def value(self, series: TensorSeries) -> Float:
        return series.reduction("zero_ratio")

    def violates(self, values: Float) -> Mask:
        return values >= self.parameters.threshold / 100

    def describe(self, value: float) -> str:
        return f"{percent(value)} of the elements are zero"
