"""Base of LearningRateTooHigh and LearningRateTooLow: updates of most weights, for long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np

from stepscope.analysis import Float, TensorSeries
from stepscope.quantities import count, count_of, number
from stepscope.rules.parameters import Count, Positive
from stepscope.rules.tensor.base import (
    Mask,
    PerTensorRule,
    TensorParameters,
    TensorState,
    count_in_row,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSizeParameters(TensorParameters):
    """Size of updates, and how long."""

    threshold: Positive
    """Limit of the L2 norm of an update, as a share of the norm of its weight."""
    patience: Count = 20
    """Recorded steps in a row at which the update of a weight is outside of the limit."""


@dataclass(slots=True, kw_only=True)
class UpdatedWeight(TensorState):
    """State of a weight."""

    in_row: int = 0
    """Latest recorded steps in a row outside of the limit."""


P = TypeVar("P", bound=UpdateSizeParameters)


class UpdateSize(PerTensorRule[P, UpdatedWeight], Generic[P]):
    """Fires if the updates of more than half of the weights are outside of a limit for long."""

    state_type = UpdatedWeight
    default_collections = ("weights",)
    comparison: ClassVar[str]
    """Words for being outside of the limit, such as `more than`."""

    def is_outside(self, ratio: Float) -> Mask:
        """Return which ratios of update to weight are outside of the limit."""
        raise NotImplementedError

    def judge(self, tensor: UpdatedWeight, series: TensorSeries) -> tuple[Float, Mask]:
        ratio = series.reduction("update_ratio")
        with np.errstate(invalid="ignore"):
            is_outside = self.is_outside(ratio)
        in_row = count_in_row(is_outside, tensor.in_row)
        tensor.in_row = int(in_row[-1])
        return ratio, in_row >= self.parameters.patience

    def select_fired(
        self, tensors: list[UpdatedWeight], violated: list[UpdatedWeight]
    ) -> list[UpdatedWeight]:
        return violated if 2 * len(violated) > len(tensors) else []

    def sentences(self, fired: list[UpdatedWeight]) -> Iterable[str]:
        if fired:
            first, weights = fired[0], count_of(len(fired), "weight")
            yield (
                f"Each optimizer step changes {weights} by {self.comparison} "
                f"{number(self.parameters.threshold)} times their norm, at "
                f"{count(self.parameters.patience)} recorded steps in a row; the first is "
                f"{first.title} at step {first.extent[0].step}."
            )
