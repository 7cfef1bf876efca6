"""Updates that hardly change the weights."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.analysis import Float
from stepscope.rules.parameters import Positive
from stepscope.rules.tensor.base import Mask
from stepscope.rules.tensor.update_size import UpdateSize, UpdateSizeParameters


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

    def is_outside(self, ratio: Float) -> Mask:
        return ratio < self.parameters.threshold
