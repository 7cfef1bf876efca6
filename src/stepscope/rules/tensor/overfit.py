"""Validation losses far above the training loss."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.quantities import count, number
from stepscope.rules.parameters import Count, NotNegative, Positive
from stepscope.rules.tensor.losses import LossParameters
from stepscope.rules.tensor.validation_passes import Pair, ValidationPass, ValidationRule


@dataclass(frozen=True, slots=True, kw_only=True)
class OverfitParameters(LossParameters):
    """Distance of the two losses."""

    start_step: NotNegative = 0
    """Passes over the validation data before this one are left out."""
    patience: Count = 1
    """The rule fires after so many passes in a row above the threshold."""
    ratio_threshold: Positive = 0.1
    """Threshold of the difference, as a share of the training loss."""


@dataclass(slots=True, kw_only=True)
class OverfittingPair(Pair):
    """State of a pair, with the number of its latest passes above the threshold."""

    in_row: int = 0


class Overfit(ValidationRule[OverfitParameters, OverfittingPair]):
    """Checks whether the model learns its training data by heart.

    ## What it checks
    For each pass over the validation data, the mean of its losses and that of the training losses
    since the pass before. The rule fires if the difference is above `ratio_threshold` of the
    training loss in `patience` passes in a row, from pass `start_step` on. Datapoints are passes,
    violations those with which the condition holds.

    ## Why it matters
    From then on training makes the model better on data that it has seen, and not on others.

    ## What to do
    Add data or augmentation, dropout or weight decay, use a smaller model, or stop earlier.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger counts `start_step` and `patience` in steps; here they count passes over the
    validation data, because only those have both losses.
    """

    parameters_type = OverfitParameters
    pair_type = OverfittingPair
    recommendation = "Add data, augmentation or regularization, or stop training earlier."

    def violates(self, pair: OverfittingPair, finished: ValidationPass) -> bool:
        difference = finished.validation - finished.training
        is_above = difference > self.parameters.ratio_threshold * abs(finished.training)
        counts = pair.pass_count > self.parameters.start_step
        pair.in_row = pair.in_row + 1 if is_above and counts else 0
        return pair.in_row >= self.parameters.patience

    def describe(self, pair: OverfittingPair, first: ValidationPass) -> str:
        return (
            f"{number(first.validation)}, while {pair.training} is {number(first.training)}, "
            f"for {count(self.parameters.patience)} or more passes in a row"
            if self.parameters.patience > 1
            else f"{number(first.validation)}, while {pair.training} is {number(first.training)}"
        )
