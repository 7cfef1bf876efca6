"""Steps one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepscope.intervals import Int, Mask
from stepscope.run import Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimeline:
    """The steps of one rank; arrays have one entry per step, numbered from 0."""

    rank: str
    node: str
    step: Int
    start_ns: Int
    duration_ns: Int
    """Without evaluation."""
    measured: Mask
    """False in warm-up, which is slow, and under a profiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeline:
    """Durations of steps over time."""

    ranks: list[RankTimeline]


def step_timeline(ranks: Iterable[Rank]) -> StepTimeline:
    """Return the steps of some ranks over time."""
    return StepTimeline(
        ranks=[
            RankTimeline(
                rank=rank.name,
                node=rank.process.node,
                step=rank.steps.number,
                start_ns=rank.steps.start,
                duration_ns=rank.steps.wall_ns,
                measured=rank.steps.measured(),
            )
            for rank in ranks
        ]
    )
