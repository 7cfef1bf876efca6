"""Single losses far above the ones before, with gradients that have grown by then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope import analysis, intervals, quantities
from stepscope.quantities import count, number
from stepscope.rules.base import require_more_than
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Count, Positive
from stepscope.rules.tensor.base import Mask
from stepscope.rules.tensor.losses import (
    LossParameters,
    LossResult,
    LossState,
    LossStates,
    LossViolation,
    PerLossRule,
)

PREFIX = "gradient/"
"""Start of the names of gradients."""
DEVIATIONS_PER_MEDIAN = 1.4826
"""Standard deviation of a normal distribution per median absolute deviation."""
MIN_RECORDS = 10
"""Records before a record that it can be compared with."""


class GradientGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """Gradient that grew first, before a loss or in its step."""

    record: int = 0
    """Record of the loss."""
    step: int = 0
    """Recorded step at which the gradient grew."""
    tensor: str = ""
    """Gradient; of several at one step, the one that grew most."""
    ratio: float | None = None
    """Its norm, as a multiple of the median before; null if elements are NaN or infinite, or the
    median is zero."""
    others_count: int = 0
    """Further gradients that grew at that step."""


class Limits(NamedTuple):
    """Limits of what counts as growth; see LossSpike."""

    window: int
    deviations: float
    factor: float


class _Gradient(msgspec.Struct):
    """Latest records of one gradient."""

    step: intervals.Int = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    t_ns: intervals.Int = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    norm: analysis.Float = msgspec.field(default_factory=lambda: np.empty(0))
    is_broken: Mask = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    """True where elements are NaN or infinite; the norm is of the others."""


class _Growth(NamedTuple):
    step: int
    size: float
    """Norm as a multiple of the median before; infinite if that is no number."""
    tensor: str


class GradientRecords(msgspec.Struct):
    """Latest records of the gradients of one process."""

    gradients: dict[str, _Gradient] = msgspec.field(default_factory=dict)

    def add(self, series: analysis.TensorSeries) -> None:
        """Add new records of a gradient."""
        gradient = self.gradients.setdefault(series.name, _Gradient())
        broken = series.reduction("nan_count") + series.reduction("infinite_count") > 0
        gradient.step = np.concatenate([gradient.step, series.step])
        gradient.t_ns = np.concatenate([gradient.t_ns, series.t_ns])
        gradient.norm = np.concatenate([gradient.norm, series.reduction("l2")])
        gradient.is_broken = np.concatenate([gradient.is_broken, broken])

    def trim(self, record_count: int) -> None:
        """Forget all but the latest records."""
        for gradient in self.gradients.values():
            gradient.step = gradient.step[-record_count:]
            gradient.t_ns = gradient.t_ns[-record_count:]
            gradient.norm = gradient.norm[-record_count:]
            gradient.is_broken = gradient.is_broken[-record_count:]

    def has_later_than_next(self, t_ns: int) -> bool:
        """Return True if there are records at more than one time from a time on."""
        times = {t for g in self.gradients.values() for t in g.t_ns[g.t_ns >= t_ns][:2].tolist()}
        return len(times) > 1

    def find_first(
        self, limits: Limits, *, record: int, t_ns: int, next_ns: int | None
    ) -> GradientGrowth | None:
        """Find the gradient that grew first; None if none had grown by the end of the step.

        A gradient counts if its last record up to then is larger than usual; it has grown at the
        first of the records in a row, up to that one, that are.

        Args:
            limits: limits of what counts as growth.
            record: number of the loss.
            t_ns: time of the loss.
            next_ns: time of the next value of the loss; None if there is none.
        """
        growths = [
            growth
            for name, gradient in self.gradients.items()
            if (growth := _find_growth(name, gradient, limits, t_ns, next_ns)) is not None
        ]
        if not growths:
            return None
        step = min(growth.step for growth in growths)
        first = [growth for growth in growths if growth.step == step]
        largest = max(first, key=lambda growth: growth.size)
        return GradientGrowth(
            record=record,
            step=step,
            tensor=largest.tensor,
            ratio=largest.size if np.isfinite(largest.size) else None,
            others_count=len(first) - 1,
        )


def _find_growth(
    name: str, gradient: _Gradient, limits: Limits, t_ns: int, next_ns: int | None
) -> _Growth | None:
    # The gradients of the step of a loss are recorded after it.
    end = int(np.searchsorted(gradient.t_ns, t_ns))
    if end < len(gradient.t_ns) and (next_ns is None or gradient.t_ns[end] < next_ns):
        end += 1
    growth = None
    for row in range(end - 1, max(MIN_RECORDS, end - limits.window) - 1, -1):
        size = _measure(gradient, row, limits)
        if size is None:
            break
        growth = _Growth(int(gradient.step[row]), size, name)
    return growth


def _measure(gradient: _Gradient, row: int, limits: Limits) -> float | None:
    """Return the norm at a row as a multiple of the median before; None if it has not grown."""
    before = gradient.norm[max(0, row - limits.window) : row]
    before = before[np.isfinite(before)]
    if len(before) < MIN_RECORDS:
        return None
    if gradient.is_broken[row]:
        return np.inf
    value, median = float(gradient.norm[row]), float(np.median(before))
    deviation = DEVIATIONS_PER_MEDIAN * float(np.median(np.abs(before - median)))
    if value - median > limits.deviations * deviation and value > limits.factor * median:
        return value / median if median > 0 else np.inf
    return None


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


class Spike(msgspec.Struct):
    """Spike, and the gradient that grew first."""

    record: int
    t_ns: int
    next_ns: int | None = None
    """Time of the next value."""
    growth: GradientGrowth | None = None


@dataclass(slots=True, kw_only=True)
class SpikingLoss(LossState):
    """State of a loss, with its latest values."""

    latest: analysis.Float = field(default_factory=lambda: np.empty(0))
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

    def judge(self, loss: SpikingLoss, series: analysis.LoggedScalars) -> list[LossViolation]:
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

    def _find_spikes(
        self, loss: SpikingLoss, series: analysis.LoggedScalars
    ) -> list[LossViolation]:
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
        value, reference = violation.value or 0.0, violation.reference or 0.0
        size = f"{number(value)} at record {count(violation.record)}"
        if reference <= 0:
            return f"{size} after a median of {number(reference)}"
        ratio, window = quantities.multiple(value / reference), count(self.parameters.window)
        return f"{size}, {ratio} the median of the {window} values before"


def _describe_growth(growth: GradientGrowth) -> str:
    """Describe the gradient that grew first, as a sentence without a full stop."""
    if growth.ratio is None:
        size = "its norm became infinite, NaN or larger than zero"
    else:
        size = f"its norm was {quantities.multiple(growth.ratio)} the median before"
    if growth.others_count:
        size += f", and {quantities.count_of(growth.others_count, 'other')} grew too"
    name = growth.tensor.removeprefix(PREFIX)
    return f"the gradient of {name} grew first, at step {growth.step}: {size}"
