"""Single losses far above the ones before."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stepscope.analysis import Float, LoggedScalars
from stepscope.quantities import count, multiple, number
from stepscope.rules.base import require_more_than
from stepscope.rules.parameters import Count, Positive
from stepscope.rules.tensor.losses import (
    LossParameters,
    LossState,
    LossViolation,
    PerLossRule,
)

SCALE = 1.4826
"""Standard deviation of a normal distribution per median absolute deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSpikeParameters(LossParameters):
    """Size of a spike."""

    window: Count = 50
    """Recorded values before a value that it is compared with."""
    deviations: Positive = 10.0
    """A spike is above their median by more than so many standard deviations, estimated from the
    median absolute deviation."""
    factor: Positive = 1.5
    """A spike is also more than so many times their median."""


@dataclass(slots=True, kw_only=True)
class SpikingLoss(LossState):
    """State of a loss, with its latest values."""

    latest: Float = field(default_factory=lambda: np.empty(0))


class LossSpike(PerLossRule[LossSpikeParameters, SpikingLoss]):
    """Checks whether a loss suddenly rises.

    ## What it checks
    For each value of a loss, the median of the `window` values before it and their median absolute
    deviation. A spike is above the median by more than `deviations` standard deviations (1.4826
    times the [median absolute deviation](https://en.wikipedia.org/wiki/Median_absolute_deviation))
    and more than `factor` times the median. The rule fires on the first one. Datapoints are
    recorded values, violations spikes.

    ## Why it matters
    After a spike, a training needs many steps to come back, or diverges. Corrupt samples, a too
    high learning rate and overflows in reduced precision cause them.

    ## What to do
    Clip gradients, lower the learning rate or raise the warm-up, and look at the samples of the
    batch. Restart from the checkpoint before if the loss does not come back.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    parameters_type = LossSpikeParameters
    state_type = SpikingLoss
    recommendation = "Clip gradients or lower the learning rate, and check the batch's samples."

    def judge(self, loss: SpikingLoss, series: LoggedScalars) -> list[LossViolation]:
        window = self.parameters.window
        values = np.concatenate([loss.latest, series.value])
        latest_count = len(loss.latest)
        loss.latest = values[-window:]
        first = max(latest_count, window)
        if first >= len(values):
            return []
        before = np.lib.stride_tricks.sliding_window_view(values[:-1], window)[first - window :]
        median = np.median(before, axis=1)
        deviation = SCALE * np.median(np.abs(before - median[:, None]), axis=1)
        value = values[first:]
        is_spike = (value - median > self.parameters.deviations * deviation) & (
            value > self.parameters.factor * np.abs(median)
        )
        return [
            LossViolation(
                t_ns=int(series.t_ns[first - latest_count + row]),
                record=loss.record_count + first - latest_count + row,
                value=float(value[row]),
                reference=float(median[row]),
            )
            for row in np.flatnonzero(is_spike).tolist()
        ]

    def require_enough(self, losses: list[SpikingLoss]) -> None:
        longest = max(loss.record_count for loss in losses)
        require_more_than(self.parameters.window, longest, "values of a loss")

    def describe(self, loss: SpikingLoss, violation: LossViolation) -> str:
        return (
            f"{number(violation.value)} at record {count(violation.record)}, "
            f"{multiple(violation.value / violation.reference)} the median of the "
            f"{count(self.parameters.window)} values before"
            if violation.reference > 0
            else f"{number(violation.value)} at record {count(violation.record)} after a median of "
            f"{number(violation.reference)}"
        )
