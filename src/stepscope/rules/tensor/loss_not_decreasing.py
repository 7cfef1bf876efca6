"""Losses that no longer decrease."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean, pstdev

import msgspec

from stepscope.analysis import LoggedScalars
from stepscope.quantities import count, number
from stepscope.rules.base import require_more_than
from stepscope.rules.parameters import Count, NotNegative
from stepscope.rules.tensor.losses import (
    LossParameters,
    LossResult,
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
    patience: Count = 3
    """Comparisons in a row without a decrease."""
    increase_threshold_percent: NotNegative = 5.0
    """An increase above this (%) is called one."""


class DecreasingLoss(LossResult, frozen=True, kw_only=True):
    """Results for one loss, with its decrease over the whole time."""

    first_mean: float | None = None
    """Mean of the first `num_steps` values; null before there are twice as many."""
    last_mean: float | None = None
    """Mean of the last quarter of the values."""
    last_deviation: float = 0.0
    """Standard deviation of the means of `num_steps` values in that quarter."""

    @property
    def has_decreased(self) -> bool:
        """True if the loss is lower at the end than at the start by more than two standard
        deviations, or that is not known yet."""
        if self.first_mean is None or self.last_mean is None:
            return True
        return self.last_mean < self.first_mean - 2 * self.last_deviation


@dataclass(slots=True, kw_only=True)
class ComparedLoss(LossState):
    """State of a loss, with the means so far and the sum since."""

    means: list[float] = field(default_factory=list)
    lowest: float = 0.0
    """Mean that the next ones are compared with."""
    in_row: int = 0
    """Latest means that were not lower."""
    total: float = 0.0
    count: int = 0


class LossNotDecreasing(PerLossRule[LossNotDecreasingParameters, ComparedLoss]):
    """Checks whether a loss goes on decreasing.

    ## What it checks
    For each loss, the mean of each `num_steps` recorded values and the lowest of those before. The
    rule fires if `patience` means in a row are not lower by `diff_percent`; a loss that has risen
    by more than `increase_threshold_percent` is said to increase. Datapoints are recorded values,
    violations means with which the condition holds. It needs `num_steps` values for each mean. The
    second verdict counts the rule only if the loss is no lower in its last quarter than at the
    start: at the end of a training the means vary by chance.

    ## Why it matters
    A loss that stays where it is learns nothing more: each further step costs the same and brings
    nothing. At the end of a training that is a reason to stop.

    ## What to do
    At the start of a training: check the learning rate, the labels and the loss function, and
    whether all parameters are in the optimizer. Later: lower the learning rate, or stop.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger compares single values, `num_steps` steps apart, and fires on the first one that is not
    lower. The loss of a batch varies by chance, so means are compared here, several in a row.
    """

    parameters_type = LossNotDecreasingParameters
    state_type = ComparedLoss
    recommendation = "Check the learning rate, the labels and the optimizer's parameters, or stop."

    def judge(self, loss: ComparedLoss, series: LoggedScalars) -> list[LossViolation]:
        violations = []
        for row, (value, t_ns) in enumerate(
            zip(series.value.tolist(), series.t_ns.tolist(), strict=True)
        ):
            loss.total += value
            loss.count += 1
            if loss.count < self.parameters.num_steps:
                continue
            mean = loss.total / loss.count
            loss.total, loss.count = 0.0, 0
            loss.means.append(mean)
            bound = loss.lowest - self.parameters.diff_percent / 100 * abs(loss.lowest)
            if len(loss.means) == 1 or mean < bound:
                loss.lowest, loss.in_row = mean, 0
                continue
            loss.in_row += 1
            if loss.in_row >= self.parameters.patience:
                record = loss.record_count + row
                violations.append(
                    LossViolation(t_ns=t_ns, record=record, value=mean, reference=loss.lowest)
                )
        return violations

    def require_enough(self, losses: list[ComparedLoss]) -> None:
        longest = max(loss.record_count for loss in losses)
        required = (1 + self.parameters.patience) * self.parameters.num_steps
        require_more_than(required - 1, longest, "values of a loss")

    def result_of(self, loss: ComparedLoss) -> DecreasingLoss:
        result = msgspec.structs.asdict(super().result_of(loss))
        if len(loss.means) < 2:
            return DecreasingLoss(**result)
        last = loss.means[-max(1, len(loss.means) // 4) :]
        return DecreasingLoss(
            **result, first_mean=loss.means[0], last_mean=fmean(last), last_deviation=pstdev(last)
        )

    def describe(self, loss: ComparedLoss, violation: LossViolation) -> str:
        lowest, mean = violation.reference, violation.value
        rises = mean - lowest > self.parameters.increase_threshold_percent / 100 * abs(lowest)
        return (
            f"its mean over {count(self.parameters.num_steps)} values "
            f"{'increases' if rises else 'does not decrease'}: {number(mean)} at record "
            f"{count(violation.record)}, after a lowest one of {number(lowest)}"
        )
