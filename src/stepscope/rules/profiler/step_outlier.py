"""Steps that take much longer than the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import PHASES
from stepscope.intervals import Int
from stepscope.rules.base import IncrementalRule, NotApplicable
from stepscope.rules.firing import Firing, last_of_each
from stepscope.rules.inputs import NO_STEPS, scan_ends
from stepscope.rules.parameters import Choice, Count, Positive
from stepscope.rules.phases_at import shares
from stepscope.rules.signals import RankSteps, Signals, scan_numbers
from stepscope.rules.tally import DURATIONS, Tally
from stepscope.schema import Finding

FEWEST_STEPS = 100
"""A rank is judged once it has more steps than this."""
LONGEST = 200
"""Steps per rank that are remembered one by one."""
BINS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutlierParameters:
    """What an outlier is."""

    stddev: Positive = 3.0
    """A step is an outlier when it takes longer than the mean plus this many standard
    deviations."""
    mode: Annotated[str | None, Choice(("TRAIN", *PHASES))] = None
    """Which durations: whole training steps (None, TRAIN), or one phase of each."""
    n_outliers: Count = 10
    """The rule fires when a rank has more outliers than this."""


@dataclass(slots=True)
class _Rank:
    node: str
    durations: Tally = field(default_factory=lambda: Tally(DURATIONS))
    longest: dict[int, tuple[float, dict[str, int]]] = field(default_factory=dict)
    """By step number: duration as tallied, phases."""
    fired: bool = False
    usual: float | None = None
    """The first duration: sums of differences from it lose no digits."""
    sum: float = 0.0
    squares: float = 0.0

    def outliers_at(self, ends: Int, tallied: NDArray[np.float64], deviations: float) -> Int:
        """Outliers among all steps up to each of some places in new durations; takes them in.

        Zero where there are too few steps to judge. Sums go on from step to step, so that they
        do not depend on the portions in which steps came.

        Args:
            ends: the places.
            tallied: the durations, rounded as the tally does.
            deviations: how many standard deviations above the mean an outlier is.
        """
        if self.usual is None:
            self.usual = float(tallied[0])
        off = tallied - self.usual
        sums = np.cumsum(np.append(self.sum, off))[1:]
        squares = np.cumsum(np.append(self.squares, off * off))[1:]
        self.sum, self.squares = float(sums[-1]), float(squares[-1])
        seen = len(self.durations) + ends + 1
        mean = sums[ends] / seen
        spread = np.sqrt(np.maximum(squares[ends] / seen - mean * mean, 0))
        bounds = self.usual + mean + deviations * spread
        long = np.flatnonzero(tallied > bounds.min())  # few
        above = tallied[long] > bounds[:, np.newaxis]
        fresh = (above & (long <= ends[:, np.newaxis])).sum(axis=1)
        found = self.durations.counts_above(bounds) + fresh
        self.durations.add(tallied)
        return np.where(seen > FEWEST_STEPS, found, 0)

    def outlier_bound(self, deviations: float) -> float:
        """Mean plus that many standard deviations, over all steps so far."""
        return self.durations.mean + deviations * self.durations.standard_deviation


@dataclass(slots=True)
class _State:
    ranks: dict[str, _Rank] = field(default_factory=dict)
    firing: Firing = field(default_factory=Firing)


class StepOutlier(IncrementalRule[StepOutlierParameters, _State]):
    """Checks whether some steps take much longer than the others.

    ## What it checks
    For each rank with more than 100 steps, at the end of each scan: mean and standard deviation
    (of the population) of the durations of all its steps so far, and how many of them are longer
    than the mean plus `stddev` standard deviations. More than `n_outliers` fire the rule.
    Datapoints are steps, violations are the outliers there are now. Steps under a profiler are
    left out; evaluation inside a step does not count.

    ## Why it matters
    Steps do the same work each time. Outliers are stalls: a slow read, a save, garbage
    collection, another job on the machine. In a distributed job each holds up every rank.

    ## What to do
    See which phase the outliers spend their time in, and what CPU and storage did at that time.

    ## Where the numbers differ from SageMaker Debugger's
    Violations are distinct steps; Debugger adds the same outliers again in every scan. Only
    longer steps are outliers, as in its code; its documentation says larger or smaller, and 5
    deviations. Durations are rounded to 0.005 %.
    """

    parameters_type = StepOutlierParameters
    recommendation = "Check for CPU and I/O bottlenecks at the times of the outliers."
    evidence = ("steps", "system")
    plots = ("step",)

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        for steps in signals.steps:
            kept = ~steps.profiled & (self._durations(steps) > 0)
            if kept.any():
                rank = state.ranks.setdefault(steps.rank, _Rank(node=steps.node))
                self._take_in(rank, steps, kept, state.firing, signals)
        return state

    def _durations(self, steps: RankSteps) -> Int:
        mode = self.parameters.mode
        return steps.wall_ns if mode in {None, "TRAIN"} else steps.phase_ns[str(mode)]

    def _take_in(
        self,
        rank: _Rank,
        steps: RankSteps,
        kept: NDArray[np.bool_],
        firing: Firing,
        signals: Signals,
    ) -> None:
        p = self.parameters
        durations = self._durations(steps)[kept].astype(np.float64)
        scans = scan_numbers(signals, steps.end_ns[kept])
        ends = last_of_each(scans)
        tallied = DURATIONS.values(DURATIONS.keys(durations))
        fires = rank.outliers_at(ends, tallied, p.stddev) > p.n_outliers
        rank.fired |= bool(fires.any())
        firing.add(scan_ends(signals, scans[ends[fires]]))
        self._remember_longest(rank, steps, np.flatnonzero(kept), tallied)

    @staticmethod
    def _remember_longest(
        rank: _Rank, steps: RankSteps, rows: Int, tallied: NDArray[np.float64]
    ) -> None:
        known = {number: duration for number, (duration, _) in rank.longest.items()}
        least = min(known.values()) if len(known) == LONGEST else 0.0
        long = np.flatnonzero(tallied >= least)
        places = long[np.argsort(-tallied[long], kind="stable")[:LONGEST]]
        numbers = steps.number[rows[places]].tolist()
        # A rank that was started again counts from 0 again.
        for number in known.keys() & set(numbers):
            del known[number], rank.longest[number]
        # Most of the long ones of a range are not among the longest of the run.
        durations = np.append(list(known.values()), tallied[places])
        if len(durations) > LONGEST:
            least = float(np.partition(durations, -LONGEST)[-LONGEST])
        places = places[tallied[places] >= least]
        kept = rows[places]
        times = zip(*(ns[kept].tolist() for ns in steps.phase_ns.values()), strict=True)
        for number, duration, phases in zip(
            steps.number[kept].tolist(), tallied[places].tolist(), times, strict=True
        ):
            rank.longest[number] = (duration, dict(zip(steps.phase_ns, phases, strict=True)))
        first = sorted(rank.longest.items(), key=lambda item: (-item[1][0], item[0]))
        rank.longest = dict(first[:LONGEST])

    def decide(self, state: _State) -> Finding | None:
        if not state.ranks:
            raise NotApplicable(NO_STEPS)
        seen = sum(len(rank.durations) for rank in state.ranks.values())
        judged = {n: r for n, r in sorted(state.ranks.items()) if len(r.durations) > FEWEST_STEPS}
        if not judged:
            raise NotApplicable(
                f"no rank has more than {FEWEST_STEPS} steps: let the job run longer", seen
            )
        details = {name: self._details(rank) for name, rank in judged.items()}
        return self.finding(
            triggered=state.firing,
            violations=sum(each["outlier_count"] for each in details.values()),
            datapoints=seen,
            details={"mode": self.parameters.mode, "ranks": details},
            sentences=[
                f"{name}: the mean step took {each['mean_s']:.2f} s; {each['outlier_count']} steps "
                f"took longer than {each['threshold_s']:.2f} s, the mean plus "
                f"{self.parameters.stddev:g} standard deviations of "
                f"{each['standard_deviation_s']:.2f} s."
                for name, each in details.items()
                if judged[name].fired or len(judged) <= 4
            ],
            ranks=[name for name, rank in judged.items() if rank.fired],
            nodes={rank.node for rank in judged.values() if rank.fired},
        )

    def _details(self, rank: _Rank) -> dict[str, Any]:
        durations, bound = rank.durations, rank.outlier_bound(self.parameters.stddev)
        longest = {n: (ns, p) for n, (ns, p) in sorted(rank.longest.items()) if ns > bound}
        phase_ns: dict[str, int] = {}
        for _, phases in longest.values():
            for phase, time_ns in phases.items():
                phase_ns[phase] = phase_ns.get(phase, 0) + time_ns
        high, p99, p95, p50, low = durations.quantiles([1, 0.99, 0.95, 0.5, 0])
        return {
            "step_count": len(durations),
            "outlier_count": durations.count_above(bound),
            "mean_s": durations.mean / 1e9,
            "standard_deviation_s": durations.standard_deviation / 1e9,
            "threshold_s": bound / 1e9,
            "max_s": high / 1e9,
            "p99_s": p99 / 1e9,
            "p95_s": p95 / 1e9,
            "p50_s": p50 / 1e9,
            "min_s": low / 1e9,
            "outlier_steps": list(longest),
            "outlier_phase_share_ratio": shares(phase_ns),
            "normal_steps_histogram": _histogram(durations, bound),
        }


def _histogram(durations: Tally, bound: float) -> dict[str, list[float] | list[int]]:
    """Steps that are no outliers, in 100 bins of equal width."""
    normal = durations.values <= bound
    counts, edges = np.histogram(
        durations.values[normal], bins=BINS, weights=durations.counts[normal]
    )
    return {"edges_s": (edges / 1e9).tolist(), "counts": counts.astype(np.int64).tolist()}
