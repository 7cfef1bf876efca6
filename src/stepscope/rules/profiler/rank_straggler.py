"""A rank that makes the others wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int
from stepscope.quantities import duration
from stepscope.rules.base import NotApplicable
from stepscope.rules.inputs import RankStepTimes, RuleInputs
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.templates import PerRankRule, Ranks, RankState, RankStates

SYNCHRONIZED_PHASES = ("backward", "communication")
"""Phases in which a rank may wait for others."""
MAX_PENDING = 100_000
"""Steps of a rank kept until all others have reached them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStragglerParameters:
    """Definition of a straggler."""

    threshold: Percentage = 10.0
    """A rank is a straggler if its own work exceeds the median rank's by more of the step's wall
    time (%) than this."""
    window: Count = 50
    """Steps that are compared at a time."""
    patience: Count = 10
    """First steps, in which everything starts up, that are left out."""


class RankWork(msgspec.Struct, frozen=True, kw_only=True):
    """Own work of one rank over the compared steps."""

    mean_own_work_s: float = 0.0
    """Mean of the wall time without the backward pass and communication."""
    mean_step_s: float = 0.0
    slowest_in_count: int = 0
    """Steps in which the rank finished its own work last."""
    straggler_block_count: int = 0
    """Blocks of `window` steps in which the rank was a straggler."""


class RankStragglerDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Own work by rank, most work first."""

    ranks: dict[str, RankWork] = {}


@dataclass(slots=True, kw_only=True)
class _ComparedRank(RankState):
    pending: Int = field(default_factory=lambda: np.empty((0, 4), dtype=np.int64))
    """Rows of (number, own work, wall, end) that have not been compared."""
    work_ns: int = 0
    wall_ns: int = 0
    slowest_count: int = 0


@dataclass(slots=True)
class _State(RankStates[_ComparedRank, msgspec.Struct]):
    compared_count: int = 0
    """Steps compared."""

    @property
    def median_work_ns(self) -> float:
        """Own work per step of the median rank."""
        return float(np.median([r.work_ns for r in self.ranks.values()])) / self.compared_count


class RankStraggler(PerRankRule[RankStragglerParameters, _ComparedRank, _State]):
    """Checks whether one rank makes the others wait.

    ## What it checks
    The own work of a rank in a step is its wall time without the backward pass and communication,
    in which it may wait for others. Steps of all ranks are compared by number, `window` of them at
    a time: a rank whose own work exceeds that of the median rank by more than `threshold` percent
    of the step is a violation. Datapoints are steps that all ranks have completed. The details list
    the ranks by own work, and the number of steps in which each finished its own work last.

    ## Why it matters
    Ranks that exchange gradients proceed at the pace of the slowest. On the other ranks the loss
    looks like communication.

    ## What to do
    Check what takes longer on the straggler (`stepscope show RUN steps`), whether its node is busy
    with something else or its GPU is throttled, and whether all ranks get equal amounts of data.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule; its LoadBalancing compares GPU utilization. A rank that is slower
    only in its backward pass is not detected here: that requires traces of the profiler.
    """

    topic = "step time"
    parameters_type = RankStragglerParameters
    recommendation = (
        "Check what takes longer on the slow rank, what else runs on its node, and whether it gets "
        "more data than the others."
    )
    evidence = ("steps", "system")
    plots = ("step",)

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        super().update(state, inputs)
        if len(state.ranks) > 1:
            self._compare_ranks(state, inputs)
        return state

    def update_rank(self, state: _State, steps: RankStepTimes, inputs: RuleInputs) -> None:
        if steps.process.rank is not None and len(steps):
            rank = state.ranks.setdefault(steps.rank, _ComparedRank(node=steps.node))
            rows = np.concatenate([rank.pending, _rows(steps, self.parameters.patience)])
            rank.pending = rows[-MAX_PENDING:]

    def _compare_ranks(self, state: _State, inputs: RuleInputs) -> None:
        """Compare complete blocks of steps that all ranks have reached."""
        window = self.parameters.window
        ranks = list(state.ranks.values())
        if not all(len(rank.pending) for rank in ranks):
            return
        first = max(int(rank.pending[0, 0]) // window for rank in ranks)
        # A rank has completed a block with the last step of it, or a later one.
        end = min((int(rank.pending[-1, 0]) + 1) // window for rank in ranks)
        edges = np.arange(first, max(first, end) + 1) * window
        cuts = [np.searchsorted(rank.pending[:, 0], edges) for rank in ranks]
        for block in range(len(edges) - 1):
            rows = [r.pending[c[block] : c[block + 1]] for r, c in zip(ranks, cuts, strict=True)]
            if all(len(rank_rows) == window for rank_rows in rows):
                self._compare_block(state, inputs, np.stack(rows))
        for rank, cut in zip(ranks, cuts, strict=True):
            rank.pending = rank.pending[cut[-1] :]

    def _compare_block(self, state: _State, inputs: RuleInputs, rows: NDArray[np.int64]) -> None:
        """Compare one block: a row per rank and step of (number, own work, wall, end)."""
        work, wall = rows[:, :, 1], rows[:, :, 2]
        means = work.mean(axis=1)
        excess = means - np.median(means)
        is_straggler = 100 * excess > self.parameters.threshold * np.median(wall.mean(axis=1))
        slowest = np.bincount(work.argmax(axis=0), minlength=len(state.ranks))
        state.compared_count += work.shape[1]
        sums = np.stack([work.sum(axis=1), wall.sum(axis=1), slowest, is_straggler], axis=1)
        for rank, (work_ns, wall_ns, slowest_count, violations) in zip(
            state.ranks.values(), sums.tolist(), strict=True
        ):
            rank.work_ns += work_ns
            rank.wall_ns += wall_ns
            rank.slowest_count += slowest_count
            rank.violation_count += violations
            rank.triggered = rank.violation_count > 0
        if is_straggler.any():
            state.trigger.add_times(inputs, [int(rows[:, -1, 3].max())])

    def require_inputs(self, state: _State) -> None:
        if len(state.ranks) < 2:
            raise NotApplicable("fewer than two ranks with steps")
        if not state.compared_count:
            window = self.parameters.window
            raise NotApplicable(f"the ranks have fewer than {window} steps in common")

    def datapoint_count(self, state: _State) -> int:
        return state.compared_count

    def details(self, state: _State, ranks: Ranks[_ComparedRank]) -> RankStragglerDetails:
        ordered = sorted(state.ranks.items(), key=lambda item: -item[1].work_ns)
        return RankStragglerDetails(
            ranks={
                name: RankWork(
                    mean_own_work_s=rank.work_ns / state.compared_count / 1e9,
                    mean_step_s=rank.wall_ns / state.compared_count / 1e9,
                    slowest_in_count=rank.slowest_count,
                    straggler_block_count=rank.violation_count,
                )
                for name, rank in ordered
            }
        )

    def sentences(
        self, state: _State, ranks: Ranks[_ComparedRank], triggered: Ranks[_ComparedRank]
    ) -> Iterable[str]:
        window = self.parameters.window
        for name, rank in triggered.items():
            yield (
                f"{name}: straggler in {rank.violation_count} of {state.compared_count // window} "
                f"blocks of {window} steps. Its own work takes "
                f"{duration(rank.work_ns / state.compared_count)} per step, the median rank's "
                f"{duration(state.median_work_ns)}."
            )


def _rows(steps: RankStepTimes, patience: int) -> Int:
    waiting = np.sum([steps.phase_ns[phase] for phase in SYNCHRONIZED_PHASES], axis=0)
    rows = np.stack([steps.number, steps.wall_ns - waiting, steps.wall_ns, steps.end_ns], axis=1)
    included: Int = rows[steps.number >= patience]
    return included
