"""Steps become slower and stay so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int
from stepscope.rules.base import IncrementalRule, NotApplicable
from stepscope.rules.firing import Firing
from stepscope.rules.inputs import NO_STEPS, scan_around
from stepscope.rules.parameters import Count, Positive
from stepscope.rules.signals import RankSteps, Signals
from stepscope.schema import Finding

BLOCK = 5
"""Steps whose median is one observation: a single slow step is none."""
FEWEST_BEFORE = 6
MOST_BEFORE = 200
"""Observations that tell what is normal."""
DEVIATIONS = 6 * 1.4826
"""Median absolute deviations, scaled to standard deviations, that chance does not reach."""
LISTED = 50
"""Changes per rank that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeRegressionParameters:
    """What a change is."""

    threshold: Positive = 20.0
    """Per cent by which steps have to become slower."""
    recent: Count = 5
    """Observations of five steps each that must all be slower."""
    patience: Count = 10
    """The first steps of each rank, in which everything starts up, are left out."""


def _empty(shape: tuple[int, ...] = (0,), dtype: type = np.int64) -> Any:
    return np.empty(shape, dtype=dtype)


@dataclass(slots=True)
class _Rank:
    node: str
    pending: Int = field(default_factory=lambda: _empty((0, 3)))
    """Rows of (number, wall, end) of a block that is not full."""
    medians: NDArray[np.float64] = field(default_factory=lambda: _empty(dtype=np.float64))
    """Observations since the last change: the latest, `recent`, and as many before as count."""
    begins: Int = field(default_factory=lambda: _empty((0, 2)))
    """Of each of these, number and end of the first step."""
    changes: list[dict[str, Any]] = field(default_factory=list)
    change_count: int = 0
    step_count: int = 0


@dataclass(slots=True)
class _State:
    ranks: dict[str, _Rank] = field(default_factory=dict)
    firing: Firing = field(default_factory=Firing)


class StepTimeRegression(IncrementalRule[StepTimeRegressionParameters, _State]):
    """Checks whether steps become slower at some moment and stay so.

    ## What it checks
    For each rank, the medians of five steps at a time. When the last `recent` of them all lie
    above the median of those before by more than `threshold` per cent, and by more than six of
    their (robust) standard deviations, steps have become slower; the new pace is then what is
    normal. Each change is a violation and counts in the scan in which it was certain. Datapoints
    are steps. Steps under a profiler are left out.

    ## Why it matters
    A job that loses a fifth of its speed after three hours, because a neighbour came, a cache
    filled up or a GPU throttles, still converges. Nobody notices but the bill.

    ## What to do
    See what changed at that moment on the node (`stepscope show RUN system`) and which phase
    became longer (`stepscope show RUN steps`).

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule; its StepOutlier takes a lasting change for ever fewer outliers.
    """

    parameters_type = StepTimeRegressionParameters
    recommendation = "See what changed at that moment on the node and in the phases of the step."
    evidence = ("steps", "system")
    plots = ("step",)

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        for steps in signals.steps:
            rank = state.ranks.setdefault(steps.rank, _Rank(node=steps.node))
            rows = np.concatenate([rank.pending, _rows(steps, self.parameters.patience)])
            rank.step_count += len(rows) - len(rank.pending)
            whole = len(rows) // BLOCK * BLOCK
            rank.pending = rows[whole:]
            blocks = rows[:whole].reshape(-1, BLOCK, 3)
            known = len(rank.medians)
            rank.medians = np.concatenate([rank.medians, np.median(blocks[:, :, 1], axis=1)])
            rank.begins = np.concatenate([rank.begins, blocks[:, 0, ::2]])
            for place in self._changes(rank, known):
                state.firing.add(scan_around(signals, int(blocks[place, -1, 2])))
        return state

    def _changes(self, rank: _Rank, known: int) -> list[int]:
        """Find the changes that new observations make certain, and forget what no longer counts.

        Args:
            rank: with the new observations.
            known: how many of its observations were there before.

        Returns:
            Places among the new observations.
        """
        p = self.parameters
        found = []
        first = 0  # of the observations that tell what is normal
        for latest in self._suspects(rank.medians, known):
            begin = latest + 1 - p.recent
            before = rank.medians[max(first, begin - MOST_BEFORE) : begin]
            if begin - first < FEWEST_BEFORE:
                continue
            recent = rank.medians[begin : latest + 1]
            usual = _usual_when_slower(before, float(recent.min()), p.threshold)
            if usual is not None:
                step, t_ns = rank.begins[begin].tolist()
                change = _change(step, t_ns, usual, float(np.median(recent)))
                rank.change_count += 1
                rank.changes = [*rank.changes, change][-LISTED:]
                found.append(latest - known)
                first = begin
        first = max(first, len(rank.medians) - p.recent - MOST_BEFORE)
        rank.medians, rank.begins = rank.medians[first:], rank.begins[first:]
        return found

    def _suspects(self, medians: NDArray[np.float64], known: int) -> list[int]:
        """Places of the new observations that a change may end at: what is usual is not less than
        the least of all, so only those need to be looked at whose like are well above that."""
        p = self.parameters
        if len(medians) < p.recent:
            return []
        recent = np.lib.stride_tricks.sliding_window_view(medians, p.recent)
        slow = recent.min(axis=1) > medians.min() * (1 + p.threshold / 100)
        latest = np.flatnonzero(slow) + p.recent - 1
        suspects: list[int] = latest[latest >= known].tolist()
        return suspects

    def decide(self, state: _State) -> Finding | None:
        if not state.ranks:
            raise NotApplicable(NO_STEPS)
        steps = sum(rank.step_count for rank in state.ranks.values())
        needed = BLOCK * (FEWEST_BEFORE + self.parameters.recent)
        if all(rank.step_count < needed for rank in state.ranks.values()):
            raise NotApplicable(f"no rank has {needed} steps: let the job run longer", steps)
        wrong = {name: rank for name, rank in state.ranks.items() if rank.change_count}
        return self.finding(
            triggered=state.firing,
            violations=sum(rank.change_count for rank in wrong.values()),
            datapoints=steps,
            details={
                "ranks": {
                    name: {"change_count": rank.change_count, "changes": rank.changes}
                    for name, rank in sorted(state.ranks.items())
                }
            },
            sentences=[
                f"{name}: from step {change['step']} on, steps take {change['after_s']:.3g} s "
                f"instead of {change['before_s']:.3g} s, {change['slower_percent']:.0f} % longer."
                for name, rank in sorted(wrong.items())
                for change in rank.changes[:3]
            ],
            ranks=wrong,
            nodes={rank.node for rank in wrong.values()},
        )


def _usual_when_slower(
    before: NDArray[np.float64], fastest: float, threshold: float
) -> float | None:
    """The median of observations, where the fastest of the recent ones is well above them."""
    usual = _middle(before)
    if not fastest > usual * (1 + threshold / 100):
        return None
    spread = float(np.median(np.abs(before - usual)))
    return usual if fastest > usual + DEVIATIONS * spread else None


def _middle(values: NDArray[np.float64]) -> float:
    """The median; the library's takes several times as long for a few hundred values."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def _change(step: int, t_ns: int, usual: float, now: float) -> dict[str, Any]:
    return {
        "step": step,
        "t_ns": t_ns,
        "before_s": usual / 1e9,
        "after_s": now / 1e9,
        "slower_percent": 100 * (now / usual - 1),
    }


def _rows(steps: RankSteps, patience: int) -> Int:
    kept = ~steps.profiled & (steps.number >= patience)
    rows = np.stack([steps.number, steps.wall_ns, steps.end_ns], axis=1)
    chosen: Int = rows[kept]
    return chosen
