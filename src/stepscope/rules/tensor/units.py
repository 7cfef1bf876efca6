"""Units of activation functions that have stopped to respond: never active, or saturated."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope import analysis, quantities
from stepscope.rules.parameters import Percentage
from stepscope.rules.tensor.base import Mask, StatelessTensorRule, TensorParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedUnitsParameters(TensorParameters):
    """Share of units that have stopped to respond."""

    threshold_layer: Percentage = 50.0
    """The rule fires if more than this share (%) of the units of a layer have stopped."""


class StoppedUnitsRule(StatelessTensorRule[StoppedUnitsParameters]):
    """Judges the share of the units of a layer that have stopped; a tensor has a 1 for each."""

    parameters_type = StoppedUnitsParameters
    missing = "no activations of such modules were recorded"
    advice = "run the job with `--tensors activations`"
    adjective = ""
    """Describes such units."""

    def value(self, series: analysis.TensorSeries) -> analysis.Float:
        return series.reduction("mean")

    def violates(self, values: analysis.Float) -> Mask:
        return values > self.parameters.threshold_layer / 100

    def describe(self, value: float) -> str:
        return f"{quantities.percent(value)} of the units are {self.adjective}"


class DeadRelu(StoppedUnitsRule):
    """Checks whether the units of a ReLU layer have died.

    ## What it checks
    For each recorded call of each `ReLU` and `ReLU6` module, the share of its units (features or
    channels) whose output is positive in less than 1% of the elements of the call. The rule fires
    if more than `threshold_layer` percent of the units are dead. Datapoints are recorded calls of
    all such modules, violations those above the threshold. Record them with
    `--tensors activations`.

    ## Why it matters
    A unit that is never active has no gradient, so it does not come back: the layer has lost it.

    ## What to do
    Lower the learning rate, use LeakyReLU or GELU, initialize biases with small positive numbers,
    or normalize the input of the layer.

    ## Where the numbers differ from SageMaker Debugger's
    `threshold_inactivity` is 1% and applied when the job is recorded. Modules are found by their
    class instead of their name, so `tensor_regex` is not needed.
    """

    default_collections = ("dead_units",)
    recommendation = "Lower the learning rate, or use LeakyReLU or GELU."
    adjective = "dead"


class SaturatedActivation(StoppedUnitsRule):
    """Checks whether the units of a tanh or sigmoid layer are saturated.

    ## What it checks
    For each recorded call of each `Tanh` and `Sigmoid` module, the share of its units (features or
    channels) whose input is in less than 1% of the elements of the call between -9.4999 and 9.4999
    (tanh), or between -23 and 16.99999 (sigmoid). Outside, the derivative is below 1e-7. The rule
    fires if more than `threshold_layer` percent of the units are saturated. Datapoints are recorded
    calls of all such modules, violations those above the threshold. Record them with
    `--tensors activations`.

    ## Why it matters
    A saturated unit passes almost no gradient on, so the layers before it stop to learn.

    ## What to do
    Initialize the weights with smaller numbers, normalize the input of the layer, lower the
    learning rate, or use ReLU or GELU.

    ## Where the numbers differ from SageMaker Debugger's
    `threshold_inactivity` (1%) and the limits of the inputs are applied when the job is recorded.
    Modules are found by their class instead of their name, so `tensor_regex` is not needed.
    """

    default_collections = ("saturated_units",)
    recommendation = "Normalize the input of the layer, or use smaller initial weights."
    adjective = "saturated"
