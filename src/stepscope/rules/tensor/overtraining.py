"""Losses that have not become better for several validation passes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from stepscope.quantities import count, number
from stepscope.rules.parameters import Count, NotNegative
from stepscope.rules.tensor.losses import LossParameters
from stepscope.rules.tensor.validation_passes import Pair, ValidationPass, ValidationRule


@dataclass(frozen=True, slots=True, kw_only=True)
class OvertrainingParameters(LossParameters):
    """Patience."""

    patience_train: Count = 5
    """The rule fires if the training loss has not become better for so many passes."""
    patience_validation: Count = 10
    """The rule fires if the validation loss has not become better for so many passes."""
    delta: NotNegative = 0.01
    """A loss is better if it is lower by more than this."""


@dataclass(slots=True)
class Best:
    """Lowest loss, and the passes since."""

    value: float = math.inf
    passes_since: int = 0

    def add(self, value: float, delta: float) -> None:
        """Add the loss of one more pass."""
        if value < self.value - delta:
            self.value, self.passes_since = value, 0
        else:
            self.passes_since += 1


@dataclass(slots=True, kw_only=True)
class OvertrainedPair(Pair):
    """State of a pair, with its lowest losses."""

    best_training: Best = field(default_factory=Best)
    best_validation: Best = field(default_factory=Best)


class Overtraining(ValidationRule[OvertrainingParameters, OvertrainedPair]):
    """Checks whether training goes on although the losses no longer become better.

    ## What it checks
    After each pass over the validation data, for how many passes the mean training loss and the
    mean validation loss have not been below their lowest values by more than `delta`. The rule
    fires after `patience_train` passes for the training loss or `patience_validation` passes for
    the validation loss. Datapoints are passes, violations those with which the condition holds.

    ## Why it matters
    These passes cost as much as the others and improve nothing.

    ## What to do
    Stop early and keep the checkpoint with the lowest validation loss, or lower the learning rate.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger counts the patience in steps; here it counts passes over the validation data, because
    the loss of a single batch varies by chance.
    """

    parameters_type = OvertrainingParameters
    pair_type = OvertrainedPair
    recommendation = "Stop early and keep the best checkpoint, or lower the learning rate."

    def violates(self, pair: OvertrainedPair, finished: ValidationPass) -> bool:
        pair.best_training.add(finished.training, self.parameters.delta)
        pair.best_validation.add(finished.validation, self.parameters.delta)
        return (
            pair.best_training.passes_since >= self.parameters.patience_train
            or pair.best_validation.passes_since >= self.parameters.patience_validation
        )

    def describe(self, pair: OvertrainedPair, first: ValidationPass) -> str:
        name, best = max(
            ((pair.training, pair.best_training), (pair.validation, pair.best_validation)),
            key=lambda named: named[1].passes_since,
        )
        passes = count(best.passes_since)
        return f"{name} has not fallen below {number(best.value)} for {passes} passes"
