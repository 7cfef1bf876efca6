"""Losses that no longer decrease."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.analysis import LoggedScalars
from stepscope.quantities import count, number
from stepscope.rules.base import require_more_than
from stepscope.rules.parameters import Count, NotNegative
from stepscope.rules.tensor.losses import (
    LossParameters,
    LossState,
    LossViolation,
    PerLossRule,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossNotDecreasingParameters(LossParameters):
    """Length and size of the expected decrease."""

    num_steps: Count = 10
    """Recorded values per comparison."""
    diff_percent: NotNegative = 0.1
    """The rule fires if the loss decreases by less than this (%)."""
    increase_threshold_percent: NotNegative = 5.0
    """An increase above this (%) is called one."""


@dataclass(slots=True, kw_only=True)
class ComparedLoss(LossState):
    """State of a loss, with the mean before and the sum since."""

    mean_before: float | None = None
    total: float = 0.0
    count: int = 0


class LossNotDecreasing(PerLossRule[LossNotDecreasingParameters, ComparedLoss]):
    """Checks whether a loss goes on decreasing.

    ## What it checks
    For each loss, the mean of each `num_steps` recorded values and that of the `num_steps` before.
    The rule fires if the decrease is below `diff_percent`; a loss that rises by more than
    `increase_threshold_percent` is said to increase. Datapoints are recorded values, violations
    comparisons without a decrease. It needs more than 2 `num_steps` values.

    ## Why it matters
    A loss that stays where it is learns nothing more: each further step costs the same and brings
    nothing. At the end of a training that is a reason to stop.

    ## What to do
    At the start of a training: check the learning rate, the labels and the loss function, and
    whether all parameters are in the optimizer. Later: lower the learning rate, or stop.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger compares single values, `num_steps` steps apart. The loss of a batch varies by chance,
    so means are compared here.
    """

    parameters_type = LossNotDecreasingParameters
    recommendation = "Check the learning rate, the labels and the optimizer's parameters, or stop."

    def new_loss(self, series: LoggedScalars) -> ComparedLoss:
        return ComparedLoss(name=series.name, process=series.process)

    def judge(self, loss: ComparedLoss, series: LoggedScalars) -> list[LossViolation]:
        violations = []
        for row, (value, t_ns) in enumerate(
            zip(series.value.tolist(), series.t_ns.tolist(), strict=True)
        ):
            loss.total += value
            loss.count += 1
            if loss.count < self.parameters.num_steps:
                continue
            mean, before = loss.total / loss.count, loss.mean_before
            if before is not None and before - mean < self.parameters.diff_percent / 100 * abs(
                before
            ):
                violations.append(
                    LossViolation(
                        t_ns=t_ns, record=loss.record_count + row, value=mean, reference=before
                    )
                )
            loss.mean_before, loss.total, loss.count = mean, 0.0, 0
        return violations

    def require_enough(self, losses: list[ComparedLoss]) -> None:
        longest = max(loss.record_count for loss in losses)
        require_more_than(2 * self.parameters.num_steps - 1, longest, "values of a loss")

    def describe(self, loss: ComparedLoss, violation: LossViolation) -> str:
        before, mean = violation.reference, violation.value
        rise = mean - before
        rises = rise > self.parameters.increase_threshold_percent / 100 * abs(before)
        return (
            f"its mean over {count(self.parameters.num_steps)} values "
            f"{'increases' if rises else 'does not decrease'}, from {number(before)} to "
            f"{number(mean)} at record {count(violation.record)}"
        )
