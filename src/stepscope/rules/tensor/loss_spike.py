"""Single losses far above the ones before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from stepscope.analysis import Float, LoggedScalars
from stepscope.quantities import count, count_of, multiple, number
from stepscope.rules.base import require_more_than
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Count, Positive
from stepscope.rules.tensor.gradient_growth import (
    DEVIATIONS_PER_MEDIAN,
    PREFIX,
    GradientGrowth,
    GradientRecords,
    Limits,
)
from stepscope.rules.tensor.losses import (
    LossParameters,
    LossResult,
    LossState,
    LossStates,
    LossViolation,
    PerLossRule,
)

MAX_EXPLAINED = 20
"""Spikes of a loss for which the gradient that grew first is looked for."""
MAX_WINDOWS = 20
"""Records of gradients that are kept while the step of a spike is not over, in windows."""


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


class SpikesOfLoss(LossResult, frozen=True, kw_only=True):
    """Results for one loss, with the gradients that grew first."""

    growths: list[GradientGrowth] = msgspec.field(default_factory=list)
    """For those of the first 20 spikes at which one had grown."""


@dataclass(slots=True)
class Spike:
    """Spike, and the gradient that grew first."""

    record: int
    t_ns: int
    next_ns: int | None = None
    """Time of the next value."""
    growth: GradientGrowth | None = None


@dataclass(slots=True, kw_only=True)
class SpikingLoss(LossState):
    """State of a loss, with its latest values."""

    latest: Float = field(default_factory=lambda: np.empty(0))
    spikes: list[Spike] = field(default_factory=list)
    explained_count: int = 0
    """Spikes whose step is over, so that its gradients are known."""


@dataclass(slots=True)
class SpikeStates(LossStates[SpikingLoss]):
    """State of all losses, and the latest gradients by process."""

    gradients: dict[str, GradientRecords] = field(default_factory=dict)


class LossSpike(PerLossRule[LossSpikeParameters, SpikingLoss]):
    """Checks whether a loss suddenly rises.

    ## What it checks
    For each value of a loss, the median of the `window` values before it and their median absolute
    deviation. A spike is above the median by more than `deviations` standard deviations (1.4826
    times the [median absolute deviation](https://en.wikipedia.org/wiki/Median_absolute_deviation))
    and more than `factor` times the median. The rule fires on the first one. Datapoints are
    recorded values, violations spikes.

    Where gradients are recorded, the finding names the one that grew first: whose norm was above
    its own records before by the same limits, in each of its records from a step on up to the step
    of the spike. If several grew at that step, it names the one that grew most, and counts the
    others. With `--tensors-every 1` that is the order in which they grew, otherwise the order in
    which it shows.

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
    run_state = SpikeStates

    def update(self, state: LossStates[SpikingLoss], inputs: RuleInputs) -> LossStates[SpikingLoss]:
        state = super().update(state, inputs)
        if isinstance(state, SpikeStates):
            for series in inputs.tensors:
                if series.name.startswith(PREFIX) and series.mode == "TRAIN":
                    records = state.gradients.setdefault(series.process, GradientRecords())
                    records.add(series)
            for process, records in state.gradients.items():
                losses = [loss for (p, _), loss in state.losses.items() if p == process]
                are_over = [self._explain(loss, records) for loss in losses]
                windows = 2 if all(are_over) else MAX_WINDOWS
                records.trim(windows * self.parameters.window + 1)
        return state

    def _explain(self, loss: SpikingLoss, records: GradientRecords) -> bool:
        """Find the gradients that grew first; return False if one may still be recorded."""
        limits = Limits(self.parameters.window, self.parameters.deviations, self.parameters.factor)
        for spike in loss.spikes[loss.explained_count :]:
            spike.growth = records.find_first(
                limits, record=spike.record, t_ns=spike.t_ns, next_ns=spike.next_ns
            )
            if spike.next_ns is None or not records.has_later_than_next(spike.t_ns):
                return False
            loss.explained_count += 1
        return True

    def judge(self, loss: SpikingLoss, series: LoggedScalars) -> list[LossViolation]:
        if loss.spikes and loss.spikes[-1].next_ns is None:
            loss.spikes[-1].next_ns = int(series.t_ns[0])
        violations = self._find_spikes(loss, series)
        for violation in violations[: MAX_EXPLAINED - len(loss.spikes)]:
            later = int(np.searchsorted(series.t_ns, violation.t_ns, side="right"))
            next_ns = int(series.t_ns[later]) if later < len(series.t_ns) else None
            loss.spikes.append(Spike(violation.record, violation.t_ns, next_ns))
        return violations

    def result_of(self, loss: SpikingLoss) -> SpikesOfLoss:
        growths = [spike.growth for spike in loss.spikes if spike.growth is not None]
        return SpikesOfLoss(**msgspec.structs.asdict(super().result_of(loss)), growths=growths)

    def sentences(self, fired: list[SpikingLoss]) -> Iterable[str]:
        yield from super().sentences(fired)
        for loss in fired:
            growth = loss.spikes[0].growth
            if growth is not None:
                yield f"{loss.name}, record {count(growth.record)}: {_describe_growth(growth)}."

    def _find_spikes(self, loss: SpikingLoss, series: LoggedScalars) -> list[LossViolation]:
        window = self.parameters.window
        values = np.concatenate([loss.latest, series.value])
        latest_count = len(loss.latest)
        loss.latest = values[-window:]
        first = max(latest_count, window)
        if first >= len(values):
            return []
        before = np.lib.stride_tricks.sliding_window_view(values[:-1], window)[first - window :]
        median = np.median(before, axis=1)
        deviation = DEVIATIONS_PER_MEDIAN * np.median(np.abs(before - median[:, None]), axis=1)
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


def _describe_growth(growth: GradientGrowth) -> str:
    """Describe the gradient that grew first, as a sentence without a full stop."""
    if growth.ratio is None:
        size = "its norm became infinite, NaN or larger than zero"
    else:
        size = f"its norm was {multiple(growth.ratio)} the median before"
    if growth.others_count:
        size += f", and {count_of(growth.others_count, 'other')} grew too"
    name = growth.tensor.removeprefix(PREFIX)
    return f"the gradient of {name} grew first, at step {growth.step}: {size}"
