"""One rank makes the others wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int
from stepscope.rules.base import IncrementalRule, NotApplicable
from stepscope.rules.firing import Firing
from stepscope.rules.inputs import scan_around
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.signals import RankSteps, Signals
from stepscope.schema import Finding

SYNCHRONISED = ("backward", "communication")
"""Phases in which a rank may be waiting for others."""
MOST_PENDING = 100_000
"""Steps kept of a rank while another has not reached them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStragglerParameters:
    """When a rank is a straggler."""

    threshold: Percentage = 10.0
    """Share of the step's wall time (%) by which a rank's own work exceeds the median rank's."""
    window: Count = 50
    """Steps that are compared at a time."""
    patience: Count = 10
    """The first steps, in which everything starts up, are left out."""


@dataclass(slots=True)
class _Rank:
    node: str
    pending: Int = field(default_factory=lambda: np.empty((0, 4), dtype=np.int64))
    """Rows of (number, own work, wall, end) that have not been compared."""
    own_ns: int = 0
    wall_ns: int = 0
    slowest_count: int = 0
    case_count: int = 0


@dataclass(slots=True)
class _State:
    ranks: dict[str, _Rank] = field(default_factory=dict)
    compared: int = 0
    firing: Firing = field(default_factory=Firing)


class RankStraggler(IncrementalRule[RankStragglerParameters, _State]):
    """Checks whether one rank makes the others wait.

    ## What it checks
    A rank's own work in a step is its wall time less the backward pass and communication, in which
    it may be waiting for others. Steps of all ranks are compared by their number, `window` of them
    at a time: a rank whose own work exceeds that of the median rank by more than `threshold` per
    cent of the step is a violation. Datapoints are steps that all ranks have made. The details
    rank the ranks, and say how often each was the last to be done with its own work.

    ## Why it matters
    Ranks that exchange gradients proceed at the pace of the slowest. On the others the loss looks
    like communication.

    ## What to do
    See what the straggler does longer (`stepscope show RUN steps`), whether its node is busy with
    something else or its GPU throttles, and whether all ranks get equal amounts of data.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule; its LoadBalancing compares GPU utilisation. A rank that is slower
    in its backward pass alone is not seen here: that takes recordings of the profiler.
    """

    parameters_type = RankStragglerParameters
    recommendation = (
        "See what the slow rank does longer, what else runs on its node, and whether it gets more "
        "data than the others."
    )
    evidence = ("steps", "system")
    plots = ("step",)

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        for steps in signals.steps:
            if steps.process.rank is not None and len(steps):
                rank = state.ranks.setdefault(steps.rank, _Rank(node=steps.node))
                rows = np.concatenate([rank.pending, _rows(steps, self.parameters.patience)])
                rank.pending = rows[-MOST_PENDING:]
        if len(state.ranks) > 1:
            self._compare(state, signals)
        return state

    def _compare(self, state: _State, signals: Signals) -> None:
        """Compare whole blocks of steps that every rank has reached."""
        window = self.parameters.window
        ranks = list(state.ranks.values())
        if not all(len(rank.pending) for rank in ranks):
            return
        first = max(int(rank.pending[0, 0]) // window for rank in ranks)
        # A rank has made a block once it has made the last step of it, or a later one.
        beyond = min((int(rank.pending[-1, 0]) + 1) // window for rank in ranks)
        edges = np.arange(first, max(first, beyond) + 1) * window
        cuts = [np.searchsorted(rank.pending[:, 0], edges) for rank in ranks]
        for block in range(len(edges) - 1):
            rows = [r.pending[c[block] : c[block + 1]] for r, c in zip(ranks, cuts, strict=True)]
            if all(len(each) == window for each in rows):
                self._compare_block(state, signals, np.stack(rows))
        for rank, cut in zip(ranks, cuts, strict=True):
            rank.pending = rank.pending[cut[-1] :]

    def _compare_block(self, state: _State, signals: Signals, rows: NDArray[np.int64]) -> None:
        """One block: a row per rank and step of (number, own work, wall, end)."""
        own, wall = rows[:, :, 1], rows[:, :, 2]
        means = own.mean(axis=1)
        excess = means - np.median(means)
        slow = 100 * excess > self.parameters.threshold * np.median(wall.mean(axis=1))
        slowest = np.bincount(own.argmax(axis=0), minlength=len(state.ranks))
        state.compared += own.shape[1]
        sums = np.stack([own.sum(axis=1), wall.sum(axis=1), slowest, slow], axis=1).tolist()
        for rank, (own_ns, wall_ns, slowest_count, cases) in zip(
            state.ranks.values(), sums, strict=True
        ):
            rank.own_ns += own_ns
            rank.wall_ns += wall_ns
            rank.slowest_count += slowest_count
            rank.case_count += cases
        if slow.any():
            state.firing.add(scan_around(signals, int(rows[:, -1, 3].max())))

    def decide(self, state: _State) -> Finding | None:
        if len(state.ranks) < 2:
            raise NotApplicable("fewer than two ranks made steps, so there is none to wait for")
        if not state.compared:
            raise NotApplicable(
                f"the ranks have fewer than {self.parameters.window} steps in common"
            )
        wrong = {name: rank for name, rank in state.ranks.items() if rank.case_count}
        order = sorted(state.ranks.items(), key=lambda item: -item[1].own_ns)
        return self.finding(
            triggered=state.firing,
            violations=sum(rank.case_count for rank in wrong.values()),
            datapoints=state.compared,
            details={"ranks": {name: _details(rank, state) for name, rank in order}},
            sentences=[
                f"{name} was a straggler in {rank.case_count} of "
                f"{state.compared // self.parameters.window} blocks of "
                f"{self.parameters.window} steps: its own work takes "
                f"{rank.own_ns / state.compared / 1e6:.3g} ms a step, the median rank's "
                f"{_median_own(state) / 1e6:.3g} ms."
                for name, rank in sorted(wrong.items())
            ],
            ranks=wrong,
            nodes={rank.node for rank in wrong.values()},
        )


def _rows(steps: RankSteps, patience: int) -> Int:
    kept = steps.number >= patience
    own = steps.wall_ns - np.sum([steps.phase_ns[phase] for phase in SYNCHRONISED], axis=0)
    rows = np.stack([steps.number, own, steps.wall_ns, steps.end_ns], axis=1)
    chosen: Int = rows[kept]
    return chosen


def _median_own(state: _State) -> float:
    return float(np.median([rank.own_ns for rank in state.ranks.values()])) / state.compared


def _details(rank: _Rank, state: _State) -> dict[str, Any]:
    return {
        "mean_own_work_s": rank.own_ns / state.compared / 1e9,
        "mean_step_s": rank.wall_ns / state.compared / 1e9,
        "slowest_in_count": rank.slowest_count,
        "straggler_block_count": rank.case_count,
    }
