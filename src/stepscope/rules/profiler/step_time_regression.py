"""Steps become slower and stay so."""

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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


@dataclass(slots=True)
class _Rank:
    node: str
    pending: Int = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    """Rows of (number, wall, end) of a block that is not full."""
    before: deque[float] = field(default_factory=deque)
    before_sorted: list[float] = field(default_factory=list)
    recent: deque[tuple[float, int, int]] = field(default_factory=deque)
    """Median, number of the first step, its end."""
    changes: list[dict[str, Any]] = field(default_factory=list)
    change_count: int = 0
    step_count: int = 0

    def remember(self, median: float) -> None:
        """Let an observation become part of what is normal."""
        self.before.append(median)
        bisect.insort(self.before_sorted, median)
        if len(self.before) > MOST_BEFORE:
            gone = self.before.popleft()
            del self.before_sorted[bisect.bisect_left(self.before_sorted, gone)]


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
            medians = np.median(blocks[:, :, 1], axis=1).tolist()
            for median, (step, _, t_ns), end_ns in zip(
                medians, blocks[:, 0].tolist(), blocks[:, -1, 2].tolist(), strict=True
            ):
                change = self._observe(rank, median, step, t_ns)
                if change is not None:
                    rank.change_count += 1
                    rank.changes = [*rank.changes, change][-LISTED:]
                    state.firing.add(scan_around(signals, end_ns))
        return state

    def _observe(self, rank: _Rank, median: float, step: int, t_ns: int) -> dict[str, Any] | None:
        """Take in the median of five steps; the change that it makes certain, if it does."""
        p = self.parameters
        if len(rank.recent) == p.recent:
            rank.remember(rank.recent.popleft()[0])
        rank.recent.append((median, step, t_ns))
        if len(rank.before) < FEWEST_BEFORE:
            return None
        usual = _middle(rank.before_sorted)
        fastest, *_ = min(rank.recent)
        if not fastest > usual * (1 + p.threshold / 100):
            return None
        spread = float(np.median(np.abs(np.array(rank.before) - usual)))
        if not fastest > usual + DEVIATIONS * spread:
            return None
        now = float(np.median([median for median, _, _ in rank.recent]))
        _, step, t_ns = rank.recent[0]
        rank.before.clear()
        rank.before_sorted.clear()
        return {
            "step": step,
            "t_ns": t_ns,
            "before_s": usual / 1e9,
            "after_s": now / 1e9,
            "slower_percent": 100 * (now / usual - 1),
        }

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


def _middle(ordered: list[float]) -> float:
    """The median of values in order; the library's would sort them again at every step."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _rows(steps: RankSteps, patience: int) -> Int:
    kept = ~steps.profiled & (steps.number >= patience)
    rows = np.stack([steps.number, steps.wall_ns, steps.end_ns], axis=1)
    chosen: Int = rows[kept]
    return chosen
