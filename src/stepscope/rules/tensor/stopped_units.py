"""Base of the rules on units of activation functions that have stopped to respond."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.analysis import Float, TensorSeries
from stepscope.quantities import percent
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

    def value(self, series: TensorSeries) -> Float:
        return series.reduction("mean")

    def violates(self, values: Float) -> Mask:
        return values > self.parameters.threshold_layer / 100

    def describe(self, value: float) -> str:
        return f"{percent(value)} of the units are {self.adjective}"
