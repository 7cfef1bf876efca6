"""Steps that take much longer than the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, quantities
from stepscope.quantities import count_of, number
from stepscope.rules import templates
from stepscope.rules.base import HistogramCounts, NotApplicable, Trigger, last_indices
from stepscope.rules.inputs import RuleInputs, StepTimes, TracedSteps, scan_indices
from stepscope.rules.parameters import Choice, Count, Positive
from stepscope.rules.quantile_sketch import DURATION_GRID, QuantileSketch

MIN_STEPS = 100
"""A rank is evaluated once it has more steps than this."""
MAX_REMEMBERED = 200
"""Longest steps per rank that are remembered individually."""
BINS = 100
WHOLE_STEP = (None, "TRAIN")
"""Values of `mode` for whole steps."""
MAX_DESCRIBED_RANKS = 4
"""With more ranks, only those on which the rule fired are described."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutlierParameters:
    """Definition of an outlier."""

    stddev: Positive = 3.0
    """A step is an outlier if it takes longer than the mean plus this many standard deviations."""
    mode: Annotated[str | None, Choice(("TRAIN", *analysis.PHASES))] = None
    """Durations to check: whole training steps (None, TRAIN), or one phase of each."""
    n_outliers: Count = 10
    """The rule fires if a rank has more outliers than this."""


class RankDurations(msgspec.Struct, frozen=True, kw_only=True):
    """Step durations of one rank."""

    step_count: int = 0
    outlier_count: int = 0
    mean_s: float = 0.0
    standard_deviation_s: float = 0.0
    threshold_s: float = 0.0
    """Duration above which a step is an outlier."""
    max_s: float = 0.0
    p99_s: float = 0.0
    p95_s: float = 0.0
    p50_s: float = 0.0
    min_s: float = 0.0
    outlier_steps: list[int] = []
    """Numbers of the longest outliers, at most 200."""
    outlier_phase_share_ratio: dict[str, float] = {}
    """Share of each phase of the time of these outliers."""
    normal_steps_histogram: HistogramCounts = HistogramCounts()
    """Durations of all other steps."""


class StepOutlierDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Step durations by rank."""

    mode: str | None = None
    """As in the parameters."""
    ranks: dict[str, RankDurations] = {}


class _LongStep(NamedTuple):
    duration_ns: float
    """Rounded."""
    phase_ns: dict[str, int]
    start_ns: int
    end_ns: int


class _DurationsOfRank(templates.RankState, kw_only=True):
    durations: QuantileSketch = msgspec.field(default_factory=lambda: QuantileSketch(DURATION_GRID))
    longest: dict[int, _LongStep] = msgspec.field(default_factory=dict)
    """By step number."""
    base: float | None = None
    """The first duration: sums of differences from it keep all digits."""
    sum: float = 0.0
    squares: float = 0.0

    def count_outliers(
        self, ends: intervals.Int, durations: NDArray[np.float64], deviations: float
    ) -> intervals.Int:
        """Add durations, and count the outliers among all steps up to each end index.

        Zero if there are too few steps. Sums are continued from step to step, so they do not
        depend on how the steps were split.

        Args:
            ends: indices in the new durations.
            durations: new durations, rounded to the grid of the sketch.
            deviations: standard deviations above the mean from which a step is an outlier.
        """
        if self.base is None:
            self.base = float(durations[0])
        difference = durations - self.base
        sums = np.cumsum(np.append(self.sum, difference))[1:]
        squares = np.cumsum(np.append(self.squares, difference * difference))[1:]
        self.sum, self.squares = float(sums[-1]), float(squares[-1])
        step_count = len(self.durations) + ends + 1
        mean = sums[ends] / step_count
        deviation = np.sqrt(np.maximum(squares[ends] / step_count - mean * mean, 0))
        bounds = self.base + mean + deviations * deviation
        long = np.flatnonzero(durations > bounds.min())  # few
        above = durations[long] > bounds[:, np.newaxis]
        new_count = (above & (long <= ends[:, np.newaxis])).sum(axis=1)
        outlier_count = self.durations.counts_above(bounds) + new_count
        self.durations.add(durations)
        self.step_count = len(self.durations)
        return np.where(step_count > MIN_STEPS, outlier_count, 0)

    def outlier_bound(self, deviations: float) -> float:
        """Return the mean plus that many standard deviations, over all steps so far."""
        return self.durations.mean + deviations * self.durations.standard_deviation

    def remember_longest(
        self, steps: StepTimes, rows: intervals.Int, durations: NDArray[np.float64]
    ) -> None:
        """Keep the longest steps, with their phases.

        Args:
            steps: new steps.
            rows: indices of those that count.
            durations: rounded duration of each of these.
        """
        remembered = {number: step.duration_ns for number, step in self.longest.items()}
        is_full = len(remembered) == MAX_REMEMBERED
        shortest = min(remembered.values()) if is_full else 0.0
        long = np.flatnonzero(durations >= shortest)
        candidates = long[np.argsort(-durations[long], kind="stable")[:MAX_REMEMBERED]]
        numbers = steps.number[rows[candidates]].tolist()
        # A restarted rank counts from 0 again.
        for step in remembered.keys() & set(numbers):
            del remembered[step], self.longest[step]
        # Most of the longest steps of a range are not among the longest of the run.
        all_durations = np.append(list(remembered.values()), durations[candidates])
        if len(all_durations) > MAX_REMEMBERED:
            shortest = float(np.partition(all_durations, -MAX_REMEMBERED)[-MAX_REMEMBERED])
        candidates = candidates[durations[candidates] >= shortest]
        new_rows = rows[candidates]
        times = zip(*(ns[new_rows].tolist() for ns in steps.phase_ns.values()), strict=True)
        for step, duration_ns, phases, start_ns, end_ns in zip(
            steps.number[new_rows].tolist(),
            durations[candidates].tolist(),
            times,
            steps.start_ns[new_rows].tolist(),
            steps.end_ns[new_rows].tolist(),
            strict=True,
        ):
            phase_ns = dict(zip(steps.phase_ns, phases, strict=True))
            self.longest[step] = _LongStep(duration_ns, phase_ns, start_ns, end_ns)
        ordered = sorted(self.longest.items(), key=lambda item: (-item[1].duration_ns, item[0]))
        self.longest = dict(ordered[:MAX_REMEMBERED])


_State = templates.RankStates[_DurationsOfRank, msgspec.Struct]


class StepOutlier(templates.PerRankRule[StepOutlierParameters, _DurationsOfRank, _State]):
    """Checks whether some steps take much longer than the others.

    ## What it checks
    For each rank with more than 100 steps, at the end of each scan: mean and standard deviation
    (of the population) of the durations of all its steps so far, and the number of steps longer
    than the mean plus `stddev` standard deviations. More than `n_outliers` fire the rule.
    Datapoints are steps; violations are the current outliers. Steps under a profiler are left out;
    evaluation inside a step does not count. Steps imported from SageMaker Debugger last as long as
    its events. Of imported traces, the marked steps count, with their
    parts instead of phases, unless `mode` selects a phase.

    ## Why it matters
    Steps do the same work each time. Outliers are stalls: a slow read, a save, garbage
    collection, another job on the machine. In a distributed job each one delays all ranks.

    ## What to do
    Check in which phase the outliers spend their time, and the load of CPU and storage at that
    time.

    ## Where the numbers differ from SageMaker Debugger's
    Violations are distinct steps; Debugger adds the same outliers again in each scan. Only longer
    steps are outliers, as in its code; its documentation says larger or smaller, and 5 deviations.
    Durations are rounded to 0.005%.
    """

    topic = "step time"
    parameters_type = StepOutlierParameters
    recommendation = "Check for CPU and I/O bottlenecks at the times of the outliers."
    evidence = ("steps", "system")
    plots = ("step",)
    rests_on_devices = True
    missing_in_traces = f"no rank has more than {MIN_STEPS} steps in the traces"
    run_state = templates.RankStates

    def update_traced(self, state: _State, steps: TracedSteps, inputs: RuleInputs) -> None:
        if self.parameters.mode in WHOLE_STEP:
            self.update_rank(state, steps.times, inputs)

    def update_rank(self, state: _State, steps: StepTimes, inputs: RuleInputs) -> None:
        p = self.parameters
        durations_ns = self._durations(steps)
        rows = np.flatnonzero(~steps.profiled & (durations_ns > 0))
        if not len(rows):
            return
        rank = state.ranks.setdefault(steps.rank, _DurationsOfRank(node=steps.node))
        scans = scan_indices(inputs, steps.end_ns[rows])
        ends = last_indices(scans)
        exact = durations_ns[rows].astype(np.float64)
        durations = DURATION_GRID.values(DURATION_GRID.keys(exact))
        fires = rank.count_outliers(ends, durations, p.stddev) > p.n_outliers
        rank.triggered |= bool(fires.any())
        state.trigger.add_scans(inputs, scans[ends[fires]])
        rank.remember_longest(steps, rows, durations)

    def _durations(self, steps: StepTimes) -> intervals.Int:
        mode = self.parameters.mode
        return steps.duration_ns if mode in WHOLE_STEP else steps.phase_ns[str(mode)]

    def evaluated_ranks(self, state: _State) -> dict[str, _DurationsOfRank]:
        return {n: r for n, r in sorted(state.ranks.items()) if r.step_count > MIN_STEPS}

    def violation_count(self, rank: _DurationsOfRank) -> int:
        return rank.durations.count_above(rank.outlier_bound(self.parameters.stddev))

    def extent(self, state: _State, triggered: templates.Ranks[_DurationsOfRank]) -> Trigger:
        """Return the extent of the current outliers; of the longest step if none is left."""
        extent = Trigger()
        for rank in triggered.values():
            bound = rank.outlier_bound(self.parameters.stddev)
            longest = max(rank.longest.values(), key=lambda step: step.duration_ns)
            for step in rank.longest.values():
                if step.duration_ns > bound or step is longest:
                    extent.cover(step.start_ns, step.end_ns)
        return extent

    def require_inputs(self, state: _State) -> None:
        super().require_inputs(state)
        if not self.evaluated_ranks(state):
            longest = max(rank.step_count for rank in state.ranks.values())
            raise NotApplicable(
                f"only {longest} steps per rank so far; the rule requires more than {MIN_STEPS}",
                self.datapoint_count(state),
            )

    def details(
        self, state: _State, ranks: templates.Ranks[_DurationsOfRank]
    ) -> StepOutlierDetails:
        return StepOutlierDetails(
            mode=self.parameters.mode,
            ranks={name: self._rank_details(rank) for name, rank in ranks.items()},
        )

    def _rank_details(self, rank: _DurationsOfRank) -> RankDurations:
        durations, bound = rank.durations, rank.outlier_bound(self.parameters.stddev)
        outliers = {n: step for n, step in sorted(rank.longest.items()) if step.duration_ns > bound}
        phase_ns: dict[str, int] = {}
        for step in outliers.values():
            templates.add_times(phase_ns, step.phase_ns)
        high, p99, p95, p50, low = durations.quantiles([1, 0.99, 0.95, 0.5, 0])
        return RankDurations(
            step_count=rank.step_count,
            outlier_count=durations.count_above(bound),
            mean_s=durations.mean / 1e9,
            standard_deviation_s=durations.standard_deviation / 1e9,
            threshold_s=bound / 1e9,
            max_s=high / 1e9,
            p99_s=p99 / 1e9,
            p95_s=p95 / 1e9,
            p50_s=p50 / 1e9,
            min_s=low / 1e9,
            outlier_steps=list(outliers),
            outlier_phase_share_ratio=templates.shares_of_total(phase_ns),
            normal_steps_histogram=_histogram(durations, bound),
        )

    def sentences(
        self,
        state: _State,
        ranks: templates.Ranks[_DurationsOfRank],
        triggered: templates.Ranks[_DurationsOfRank],
    ) -> Iterable[str]:
        described = ranks if len(ranks) <= MAX_DESCRIBED_RANKS else triggered
        for name, rank in self.details(state, described).ranks.items():
            mean, bound, deviation = (
                quantities.duration(seconds * 1e9)
                for seconds in (rank.mean_s, rank.threshold_s, rank.standard_deviation_s)
            )
            yield (
                f"{name}: mean step time {mean}; {count_of(rank.outlier_count, 'outlier')} longer "
                f"than {bound}, the mean plus {number(self.parameters.stddev)} standard deviations "
                f"of {deviation}."
            )


def _histogram(durations: QuantileSketch, bound: float) -> HistogramCounts:
    """Return the durations of steps that are not outliers, in 100 bins of equal width."""
    is_normal = durations.values <= bound
    counts, edges = np.histogram(
        durations.values[is_normal], bins=BINS, weights=durations.counts[is_normal]
    )
    return HistogramCounts(edges_s=(edges / 1e9).tolist(), counts=counts.astype(np.int64).tolist())
