"""Updates that replace much of the weights at each step."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.analysis import Float
from stepscope.rules.parameters import Positive
from stepscope.rules.tensor.base import Mask
from stepscope.rules.tensor.update_size import UpdateSize, UpdateSizeParameters


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

    def is_outside(self, ratio: Float) -> Mask:
        return ratio > self.parameters.threshold
