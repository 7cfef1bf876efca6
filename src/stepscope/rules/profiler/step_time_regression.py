"""Steps become slower and stay slower."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, quantities
from stepscope.rules.base import NotApplicable
from stepscope.rules.inputs import RuleInputs, StepTimes, TracedSteps
from stepscope.rules.parameters import Count, NotNegative, Positive, change_beside
from stepscope.rules.templates import PerRankRule, Ranks, RankState, RankStates

BLOCK = 5
"""Steps whose median is one observation, so that a single slow step is none."""
MIN_BEFORE = 6
MAX_BEFORE = 200
"""Observations before a change that define the normal step time."""
MIN_DEVIATIONS = 6 * 1.4826
"""Median absolute deviations, scaled to standard deviations, that noise does not reach."""
MAX_LISTED = 50
"""Latest changes per rank in the details."""
SENTENCES_PER_RANK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeRegressionParameters:
    """Definition of a change."""

    threshold: Positive = 20.0
    """Minimum slowdown in percent."""
    recent: Count = 5
    """Observations of five steps each that must all be slower."""
    lasting_s: NotNegative = 2.0
    """Time (s) that the slower steps take at least, so that a short disturbance is none."""
    patience: Count = 10
    """First steps of each rank, in which everything starts up, that are left out."""


class StepTimeChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the step time."""

    step: int = 0
    """First slower step."""
    t_ns: int = 0
    """Its end, epoch nanoseconds."""
    before_s: float = 0.0
    after_s: float = 0.0
    """Median step time before and after."""
    slower_percent: float = 0.0


class RankChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of one rank."""

    change_count: int = 0
    changes: list[StepTimeChange] = []
    """The latest 50."""


class StepTimeRegressionDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Changes by rank."""

    ranks: dict[str, RankChanges] = {}


def _empty(shape: tuple[int, ...] = (0,), dtype: type = np.int64) -> Any:
    return np.empty(shape, dtype=dtype)


class _ObservedRank(RankState, kw_only=True):
    pending: intervals.Int = msgspec.field(default_factory=lambda: _empty((0, 4)))
    """Rows of (number, wall, end, start) of an incomplete block."""
    medians: NDArray[np.float64] = msgspec.field(default_factory=lambda: _empty(dtype=np.float64))
    """Observations since the last change: the latest, which may become one, and up to `MAX_BEFORE`
    before."""
    first_steps: intervals.Int = msgspec.field(default_factory=lambda: _empty((0, 3)))
    """Number, end and start of the first step of each observation."""
    changes: list[StepTimeChange] = msgspec.field(default_factory=list)


_State = RankStates[_ObservedRank, msgspec.Struct]


class StepTimeRegression(PerRankRule[StepTimeRegressionParameters, _ObservedRank, _State]):
    """Checks whether steps become slower and stay slower.

    ## What it checks
    For each rank, the medians of blocks of five steps. If the last `recent` of them, and of those
    before as many as take `lasting_s`, are all above the median of those before by more than
    `threshold` percent, and by more than six of their (robust) standard deviations, steps have
    become slower; the new step time then becomes the normal one. Steps that only start work, as
    the first of a job with asynchronous dispatch do, are no normal ones: as many as came before the
    change have to take as long as one slower step. Each change is a violation and counts in the
    scan in which it was certain. Datapoints are steps. Steps under a profiler are left out. Of
    imported traces, the marked steps count.

    ## Why it matters
    A job that loses a fifth of its speed after three hours, because of a noisy neighbor, a full
    cache or a throttled GPU, still converges. Only the bill shows it.

    ## What to do
    Check what changed on the node at that time (`stepscope show RUN system`) and which phase
    became longer (`stepscope show RUN steps`).

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule; in its StepOutlier a permanent change results in ever fewer outliers.
    """

    topic = "step time"
    parameters_type = StepTimeRegressionParameters
    recommendation = "Check what changed at that time on the node and in the phases of the step."
    evidence = ("steps", "system")
    plots = ("step",)
    rests_on_devices = True
    missing_in_traces = "the traces have too few steps to show a lasting change"
    run_state = RankStates

    def update_traced(self, state: _State, steps: TracedSteps, inputs: RuleInputs) -> None:
        self.update_rank(state, steps.times, inputs)

    def update_rank(self, state: _State, steps: StepTimes, inputs: RuleInputs) -> None:
        rank = state.ranks.setdefault(steps.rank, _ObservedRank(node=steps.node))
        rows = np.concatenate([rank.pending, _rows(steps, self.parameters.patience)])
        rank.step_count += len(rows) - len(rank.pending)
        complete = len(rows) // BLOCK * BLOCK
        rank.pending = rows[complete:]
        blocks = rows[:complete].reshape(-1, BLOCK, 4)
        previous = len(rank.medians)
        rank.medians = np.concatenate([rank.medians, np.median(blocks[:, :, 1], axis=1)])
        rank.first_steps = np.concatenate([rank.first_steps, blocks[:, 0, [0, 2, 3]]])
        for index, start_ns in self._find_changes(rank, previous):
            end_ns = int(blocks[index, -1, 2])
            state.trigger.add_times(inputs, [end_ns])
            state.trigger.cover(start_ns, end_ns)

    def _find_changes(self, rank: _ObservedRank, previous: int) -> list[tuple[int, int]]:
        """Find the changes that new observations make certain, and drop obsolete observations.

        Args:
            rank: state including the new observations.
            previous: count of observations before the new ones.

        Returns:
            Index among the new observations, and the start of the first slower step, of each.
        """
        changes = []
        first = 0  # first observation that defines the normal step time
        starts = self._first_recent(rank.medians)
        for latest in self._candidates(rank.medians, previous):
            start = starts[latest]
            before = rank.medians[max(first, start - MAX_BEFORE) : max(first, start)]
            if len(before) < MIN_BEFORE:
                continue
            recent = rank.medians[start : latest + 1]
            normal = _normal_if_slower(before, recent, self.parameters.threshold)
            if normal is not None:
                step, t_ns, start_ns = rank.first_steps[start].tolist()
                change = _change(step, t_ns, normal, float(np.median(recent)))
                rank.violation_count += 1
                rank.triggered = True
                rank.changes = [*rank.changes, change][-MAX_LISTED:]
                changes.append((latest - previous, start_ns))
                first = start
        if len(starts):
            first = max(first, starts[-1] - MAX_BEFORE)
        rank.medians, rank.first_steps = rank.medians[first:], rank.first_steps[first:]
        return changes

    def _first_recent(self, medians: NDArray[np.float64]) -> list[int]:
        """Return, for each observation as the latest, the first one that has to be slower, too;
        negative while there are too few."""
        ends_ns = np.concatenate([[0.0], np.cumsum(medians * BLOCK)])
        lasting = np.searchsorted(ends_ns, ends_ns[1:] - self.parameters.lasting_s * 1e9, "right")
        fewest = np.arange(1, len(medians) + 1) - self.parameters.recent
        starts: list[int] = np.minimum(lasting - 1, fewest).tolist()
        return starts

    def _candidates(self, medians: NDArray[np.float64], previous: int) -> list[int]:
        """Return the new observations at which a change may be certain.

        The normal step time is at least the minimum of all observations, so the recent ones must
        all be well above that minimum.
        """
        p = self.parameters
        if len(medians) < p.recent:
            return []
        recent = np.lib.stride_tricks.sliding_window_view(medians, p.recent)
        is_slow = recent.min(axis=1) > medians.min() * (1 + p.threshold / 100)
        latest = np.flatnonzero(is_slow) + p.recent - 1
        candidates: list[int] = latest[latest >= previous].tolist()
        return candidates

    def require_inputs(self, state: _State) -> None:
        super().require_inputs(state)
        minimum = BLOCK * (MIN_BEFORE + self.parameters.recent)
        longest = max(rank.step_count for rank in state.ranks.values())
        if longest < minimum:
            raise NotApplicable(
                f"only {longest} steps per rank so far; the rule requires at least {minimum}",
                self.datapoint_count(state),
            )

    def details(self, state: _State, ranks: Ranks[_ObservedRank]) -> StepTimeRegressionDetails:
        return StepTimeRegressionDetails(
            ranks={
                name: RankChanges(change_count=rank.violation_count, changes=rank.changes)
                for name, rank in ranks.items()
            }
        )

    def sentences(
        self, state: _State, ranks: Ranks[_ObservedRank], triggered: Ranks[_ObservedRank]
    ) -> Iterable[str]:
        for name, rank in triggered.items():
            for change in rank.changes[:SENTENCES_PER_RANK]:
                before, after = (
                    quantities.duration(s * 1e9) for s in (change.before_s, change.after_s)
                )
                slowdown = change_beside(change.slower_percent / 100, self.parameters.threshold)
                yield (
                    f"{name}: from step {change.step}, step time is {after} instead of {before} "
                    f"({slowdown})."
                )


def _normal_if_slower(
    before: NDArray[np.float64], recent: NDArray[np.float64], threshold: float
) -> float | None:
    """Return the median of the observations before if the fastest recent one is well above it."""
    normal, fastest = _median(before), float(recent.min())
    if not fastest > normal * (1 + threshold / 100):
        return None
    if normal * BLOCK * len(before) < fastest:
        return None
    deviation = float(np.median(np.abs(before - normal)))
    return normal if fastest > normal + MIN_DEVIATIONS * deviation else None


def _median(values: NDArray[np.float64]) -> float:
    """Return the median; `np.median` takes several times as long for a few hundred values."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def _change(step: int, t_ns: int, before_ns: float, after_ns: float) -> StepTimeChange:
    return StepTimeChange(
        step=step,
        t_ns=t_ns,
        before_s=before_ns / 1e9,
        after_s=after_ns / 1e9,
        slower_percent=100 * (after_ns / before_ns - 1),
    )


def _rows(steps: StepTimes, patience: int) -> intervals.Int:
    is_included = ~steps.profiled & (steps.number >= patience)
    columns = (steps.number, steps.duration_ns, steps.end_ns, steps.start_ns)
    rows = np.stack(columns, axis=1)
    included: intervals.Int = rows[is_included]
    return included
