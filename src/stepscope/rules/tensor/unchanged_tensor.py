"""Tensors that do not change from one recorded step to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis import Float, TensorSeries
from stepscope.quantities import count
from stepscope.rules.parameters import Count, NotNegative, Switch
from stepscope.rules.tensor.base import (
    Mask,
    PerTensorRule,
    TensorParameters,
    TensorState,
    count_in_row,
)

COMPARED = ("min", "max", "mean", "std", "l1", "l2")
"""Statistics of equal tensors are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchangedTensorParameters(TensorParameters):
    """Tolerance of the comparison."""

    num_steps: Count = 3
    """The rule fires if a tensor is the same at so many recorded steps in a row."""
    rtol: NotNegative = 1e-5
    """Relative tolerance of the statistics."""
    atol: NotNegative = 1e-8
    """Absolute tolerance of the statistics."""
    equal_nan: Switch = False
    """True if statistics that are not known, as of a tensor of NaN, count as equal."""


@dataclass(slots=True, kw_only=True)
class ComparedTensor(TensorState):
    """State of a tensor, with its latest statistics."""

    latest: Float | None = None
    in_row: int = 0
    """Latest recorded steps that are the same as the one before."""


class UnchangedTensor(PerTensorRule[UnchangedTensorParameters, ComparedTensor]):
    """Checks whether a tensor has stopped changing.

    ## What it checks
    For each selected tensor, by default each weight and gradient, whether its smallest and largest
    element, mean, standard deviation, L1 and L2 norm are the same at the last `num_steps` recorded
    steps, each compared with the step before: |a - b| <= `atol` + `rtol` |b|. Unknown statistics
    are equal if `equal_nan` is true. Datapoints are recorded steps of all tensors, violations
    those at which the tensor has not changed for so long.

    ## Why it matters
    A weight that does not change learns nothing: it is frozen, not in the optimizer, or its
    gradient is zero.

    ## What to do
    Check `requires_grad`, the parameters that the optimizer was given, and the learning rate.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger compares all elements. A tensor whose elements change while all six statistics stay
    within the tolerances counts as unchanged here.
    """

    parameters_type = UnchangedTensorParameters
    state_type = ComparedTensor
    default_collections = ("weights", "gradients")
    recommendation = "Check requires_grad, the parameters of the optimizer, and its learning rate."

    def judge(self, tensor: ComparedTensor, series: TensorSeries) -> tuple[Float, Mask]:
        rows = np.stack([series.reduction(name) for name in COMPARED], axis=1)
        before = np.concatenate([rows[:1] if tensor.latest is None else [tensor.latest], rows[:-1]])
        is_same = np.isclose(
            rows,
            before,
            rtol=self.parameters.rtol,
            atol=self.parameters.atol,
            equal_nan=self.parameters.equal_nan,
        ).all(axis=1)
        if tensor.latest is None:
            is_same[0] = False
        in_row = count_in_row(is_same, tensor.in_row)
        tensor.latest, tensor.in_row = rows[-1], int(in_row[-1])
        same_count = in_row + 1
        return same_count.astype(np.float64), same_count >= self.parameters.num_steps

    def describe(self, value: float) -> str:
        return f"the same at the last {count(value)} recorded steps"
