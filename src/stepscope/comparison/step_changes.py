"""Differences between the steps of two programs, and their noise.

The difference of the mean step is the sum of the differences of its parts.

Whether a difference exceeds noise follows from the steps themselves: 0 must be outside an interval
around it, which contains two others:

    resamples    Slow steps come in groups, so runs are resampled in blocks of n^(1/3) consecutive
                 moments (circular block bootstrap, Politis and Romano 1992): the middle 95% of the
                 resampled differences.
    noise floor  Those cover only changes within a block. A machine drifts over minutes, and two
                 runs of one program then differ by more. The drift shows in each run alone: it is
                 cut into two contiguous halves, at `ROTATIONS` positions around it, and the figure
                 is computed for both. The floor is the largest such difference of either run, times
                 the square root of 2: in a random walk, neighbouring sections differ in proportion
                 to the root of their length, and whole runs are twice as long as halves. The
                 interval reaches that far to both sides, so few or uneven steps widen it.

Both follow a run through time, not from rank to rank: ranks that train together have each step at
the same moment, are slow at the same moment, and differ from one another permanently. So a moment
is one step of every rank, or in a long run several.

A figure with too few steps is never beyond noise: the mean and the median need `MIN_STEPS`
consecutive steps in both runs, the 95th percentile so many that two are above it.

No single run can tell how much the next run of the same program will differ: a machine may be in
another state for all of it. That takes several runs of each program. Noise is then the difference
between runs of one program: the interval is that of Hodges and Lehmann (`location_shift`), and
the noise floor is half of its width. One complete run represents its program, so that parts still
sum; the estimate of a change from all runs is the median of the differences behind the interval.
With normal noise that needs two thirds of the runs for the same certainty as a difference of
medians (their asymptotic efficiencies are 3 / pi and 2 / pi).

    runs     The median run represents its program; every run is compared with every other one.
    pairs    If runs were recorded alternately, one of each program and then the next of each, two
             neighbours had the machine in about the same state, if that lasts longer than a run. So
             each is compared with its neighbour only, and the pair whose change is nearest to the
             median of all Walsh averages represents the programs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np

from stepscope import intervals, schema
from stepscope.comparison.location_shift import (
    Float,
    compute_differences,
    compute_walsh_averages,
    find_critical_rank,
    find_critical_signed_rank,
)

NoiseOf = Literal["steps", "runs", "pairs"]
"""Source of the noise: the steps of single runs, several runs of one program, or pairs of runs, one
of each program, that were recorded one after the other."""
RESAMPLES = 400
_BATCH_VALUES = 1 << 20
"""Values of the resamples that are computed at a time: 8 MB."""
TAIL_WITHIN_RUN = 0.025
"""Tail of the interval from the steps of single runs, at each end."""
TAIL_BETWEEN_RUNS = 0.05
"""Tail of the interval between runs, at each end. Runs are few, and one in an unusual state must
not hide a change; the conditions of a gate are one-sided."""
ROTATIONS = 32
"""Positions around a run at which it is cut into halves."""
DRIFT_FACTOR = 2**0.5
MIN_STEPS = 5
MIN_STEPS_P95 = 40
MIN_RUNS = 3
"""Runs of each program: two that are both slower than two others are so by chance in one of six
cases."""
MIN_PAIRS = 5
"""Four pairs that all differ in the same direction do so by chance in one of 16 cases."""
MAX_MOMENTS = 20_000
"""In a longer run a moment is several consecutive steps of every rank."""


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the steps of a run, all ranks in the order of their start."""

    parts: Mapping[str, intervals.Int]
    """Nanoseconds by part and step; the parts sum to the step."""
    rank_count: int = 1
    start_ns: int = 0
    """Start of the first step; 0 where not known."""

    @classmethod
    def merge(cls, ranks: Sequence[tuple[intervals.Int, Mapping[str, intervals.Int]]]) -> StepTimes:
        """Merge the steps of several ranks, given their starts and their parts."""
        order = np.argsort(np.concatenate([start for start, _ in ranks]), kind="stable")
        names = dict.fromkeys(name for _, parts in ranks for name in parts)
        merged = {
            name: np.concatenate([parts.get(name, np.zeros_like(start)) for start, parts in ranks])
            for name in names
        }
        return cls(
            parts={name: times[order] for name, times in merged.items()},
            rank_count=len(ranks),
            start_ns=min((int(start.min()) for start, _ in ranks if len(start)), default=0),
        )

    @property
    def wall_ns(self) -> intervals.Int:
        """Wall time of every step."""
        total: intervals.Int = np.sum([*self.parts.values()], axis=0, dtype=np.int64)
        return total

    @property
    def steps_per_moment(self) -> int:
        """Steps of all ranks in a moment."""
        return self.rank_count * -(-len(self.wall_ns) // (MAX_MOMENTS * self.rank_count))

    def build_matrix(self, names: Sequence[str]) -> Float:
        """Build the matrix of nanoseconds by step and named part."""
        zeros = np.zeros_like(self.wall_ns)
        parts = [self.parts.get(name, zeros) for name in names]
        return np.stack(parts, axis=1, dtype=np.float64)

    def compute_figures(self, names: Sequence[str]) -> Float:
        """Compute mean, median and 95th percentile of the steps, then the mean of each named
        part."""
        walls = self.wall_ns.astype(np.float64)
        return _compute_figures(self.build_matrix(names), walls[:, None])


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """Change of one figure of the steps."""

    name: Annotated[str, schema.field_label("part")]
    """`mean`, `p50`, `p95`, or a part of the mean step."""
    base_ns: Annotated[float, schema.field_label("from")]
    other_ns: Annotated[float, schema.field_label("to")]
    change_ns: float
    change_ratio: Annotated[float | None, schema.field_label("relative change")]
    """Change relative to `base_ns`."""
    estimate_ns: float
    """Estimate of the change from all runs of both programs, used by a gate; with one run of each,
    `change_ns`."""
    low_ns: Annotated[float | None, schema.field_label("lowest change")]
    """Lower bound of the interval of the change; null, as are the upper bound and the noise floor,
    with too few steps."""
    high_ns: Annotated[float | None, schema.field_label("highest change")]
    noise_ns: Annotated[float | None, schema.field_label("noise floor")]
    """Noise floor: the difference between halves of one run; with repeated runs half of the
    interval's width."""
    beyond_noise: bool
    """0 is outside the interval."""


class StepDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Difference between the steps of two programs."""

    mean: StepChange
    p50: StepChange
    p95: StepChange
    parts: dict[str, StepChange]
    """Parts of the mean step; their changes sum to that of the mean."""
    noise_of: NoiseOf
    step_count: int
    """Steps of the representative run with fewer."""
    representatives: tuple[int, int]
    """Indices of the runs that represent their programs."""

    @property
    def interval_percent(self) -> int:
        """Confidence level of the intervals."""
        tail = TAIL_WITHIN_RUN if self.noise_of == "steps" else TAIL_BETWEEN_RUNS
        return round(100 * (1 - 2 * tail))


def compare_steps(
    base_runs: Sequence[StepTimes], other_runs: Sequence[StepTimes]
) -> StepDifference:
    """Compare the steps of two programs; a part that one run does not have counts as 0.

    Args:
        base_runs, other_runs: one or more runs of each program.
    """
    names = list(dict.fromkeys(name for run in (*base_runs, *other_runs) for name in run.parts))
    base_figures, other_figures = (
        np.stack([run.compute_figures(names) for run in runs]) for runs in (base_runs, other_runs)
    )
    pairs = pair_runs(base_runs, other_runs)
    noise_of: NoiseOf
    if pairs is not None:
        noise_of = "pairs"
        representatives, noise = _measure_pair_noise(base_figures, other_figures, pairs)
    else:
        representatives = _find_median_run(base_figures), _find_median_run(other_figures)
        if min(len(base_runs), len(other_runs)) >= MIN_RUNS:
            noise_of = "runs"
            noise = _measure_run_noise(base_figures, other_figures)
        else:
            noise_of = "steps"
            noise = _measure_step_noise(
                (base_runs[representatives[0]], other_runs[representatives[1]]), names
            )
    runs = base_runs[representatives[0]], other_runs[representatives[1]]
    step_count = min(len(run.wall_ns) for run in runs)
    moment_count = min(len(run.wall_ns) // run.steps_per_moment for run in runs)

    def compare_figure(name: str, index: int) -> StepChange:
        is_sufficient = moment_count >= MIN_STEPS and (index != _P95 or step_count >= MIN_STEPS_P95)
        base_ns = float(base_figures[representatives[0], index])
        other_ns = float(other_figures[representatives[1], index])
        return noise.judge_change(name, index, base_ns, other_ns, is_sufficient=is_sufficient)

    return StepDifference(
        mean=compare_figure("mean", _MEAN),
        p50=compare_figure("p50", _P50),
        p95=compare_figure("p95", _P95),
        parts={name: compare_figure(name, _PARTS + i) for i, name in enumerate(names)},
        noise_of=noise_of,
        step_count=step_count,
        representatives=representatives,
    )


def pair_runs(
    base_runs: Sequence[StepTimes], other_runs: Sequence[StepTimes]
) -> list[tuple[int, int]] | None:
    """Pair runs that were recorded alternately or at the same time: the first two of all runs, the
    next two and so on; None where two runs of one program are in a pair, or pairs are too few."""
    if len(base_runs) != len(other_runs) or len(base_runs) < MIN_PAIRS:
        return None
    sides = (base_runs, other_runs)
    order = sorted(
        (run.start_ns, side, index)
        for side, runs in enumerate(sides)
        for index, run in enumerate(runs)
    )
    pairs = [
        sorted((side, index) for _, side, index in neighbours)
        for neighbours in zip(order[::2], order[1::2], strict=True)
    ]
    if any([side for side, _ in pair] != [0, 1] for pair in pairs):
        return None
    return [(base_index, other_index) for (_, base_index), (_, other_index) in pairs]


class StepFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the steps of one run, with what is needed to compare it with another run's."""

    value_ns: float
    error_ns: float | None
    """Standard deviation over resamples of the run; None, as is the floor, with too few steps."""
    floor_ns: float | None
    """Noise floor, see the top of this file."""


def measure_step_figures(run: StepTimes) -> dict[str, StepFigure]:
    """Measure mean, median and 95th percentile of the steps of a run, and the parts of the mean."""
    names = ["mean", "p50", "p95", *run.parts]
    moments = _Moments.cut(run, list(run.parts), seed=0)
    values = run.compute_figures(list(run.parts))
    has_noise = len(moments.walls) >= MIN_STEPS
    errors = moments.resample(seed=0).std(axis=0) if has_noise else values
    floors = moments.measure_noise_floor()
    figures = {}
    for index, name in enumerate(names):
        is_known = has_noise and (index != _P95 or len(run.wall_ns) >= MIN_STEPS_P95)
        figures[name] = StepFigure(
            value_ns=float(values[index]),
            error_ns=float(errors[index]) if is_known else None,
            floor_ns=float(floors[index]) if is_known else None,
        )
    return figures


_NO_FIGURE = StepFigure(value_ns=0.0, error_ns=0.0, floor_ns=0.0)
"""A part that a run does not have."""
_NORMAL_QUANTILE = 1.96
"""Half-width of a 95% interval in standard deviations, for a normal distribution."""


def compare_step_figures(
    base_figures: Mapping[str, StepFigure], other_figures: Mapping[str, StepFigure], step_count: int
) -> StepDifference:
    """Compare measured figures of two runs, where their steps are not at hand.

    The interval is that of the difference of two normal distributions, widened to the noise floor.

    Args:
        step_count: steps of the run with fewer.
    """
    changes = {}
    for name in dict.fromkeys([*base_figures, *other_figures]):
        before, after = base_figures.get(name, _NO_FIGURE), other_figures.get(name, _NO_FIGURE)
        change = after.value_ns - before.value_ns
        floor = max(before.floor_ns or 0.0, after.floor_ns or 0.0)
        spread = _NORMAL_QUANTILE * math.hypot(before.error_ns or 0.0, after.error_ns or 0.0)
        reach = np.array([max(spread, floor)])
        noise = _Noise(
            low=change - reach, high=change + reach, floor=np.array([floor]), estimate=None
        )
        is_sufficient = before.error_ns is not None and after.error_ns is not None
        changes[name] = noise.judge_change(
            name, 0, before.value_ns, after.value_ns, is_sufficient=is_sufficient
        )
    return StepDifference(
        mean=changes.pop("mean"),
        p50=changes.pop("p50"),
        p95=changes.pop("p95"),
        parts=changes,
        noise_of="steps",
        step_count=step_count,
        representatives=(0, 0),
    )


def _find_median_run(figures: Float) -> int:
    """Find the run with the median mean step; the shorter one of two in the middle."""
    return int(np.argsort(figures[:, _MEAN], kind="stable")[(len(figures) - 1) // 2])


class _Noise(msgspec.Struct, frozen=True, kw_only=True):
    """Noise in nanoseconds by figure."""

    low: Float
    """Lower bound of the interval."""
    high: Float
    floor: Float
    estimate: Float | None
    """Estimate of the change from all runs; None with one run of each program."""

    @classmethod
    def from_differences(cls, differences: Float, index: int) -> _Noise:
        """Create the noise from sorted differences and the index of the lower bound."""
        low, high = differences[index], differences[len(differences) - 1 - index]
        estimate = np.median(differences, axis=0)
        return cls(low=low, high=high, floor=(high - low) / 2, estimate=estimate)

    def judge_change(
        self, name: str, index: int, base_ns: float, other_ns: float, *, is_sufficient: bool
    ) -> StepChange:
        """Judge the change of one figure.

        Args:
            index: index of the figure.
            is_sufficient: there are enough steps to know the noise.
        """
        change_ns = other_ns - base_ns
        low, high, floor = (float(bound[index]) for bound in (self.low, self.high, self.floor))
        estimate_ns = change_ns if self.estimate is None else float(self.estimate[index])
        return StepChange(
            name=name,
            base_ns=base_ns,
            other_ns=other_ns,
            change_ns=change_ns,
            change_ratio=change_ns / base_ns if base_ns else None,
            estimate_ns=estimate_ns,
            low_ns=low if is_sufficient else None,
            high_ns=high if is_sufficient else None,
            noise_ns=floor if is_sufficient else None,
            beyond_noise=is_sufficient and not low <= 0 <= high,
        )


def _measure_step_noise(runs: Sequence[StepTimes], names: Sequence[str]) -> _Noise:
    """Measure the noise from the steps of one run of each program."""
    moments = [_Moments.cut(run, names, seed=seed) for seed, run in enumerate(runs)]
    base_figures, other_figures = (run.resample(seed=seed) for seed, run in enumerate(moments))
    tails = (TAIL_WITHIN_RUN, 1 - TAIL_WITHIN_RUN)
    low, high = np.quantile(other_figures - base_figures, tails, axis=0)
    floor = np.maximum(moments[0].measure_noise_floor(), moments[1].measure_noise_floor())
    change = runs[1].compute_figures(names) - runs[0].compute_figures(names)
    low, high = np.minimum(low, change - floor), np.maximum(high, change + floor)
    return _Noise(low=low, high=high, floor=floor, estimate=None)


def _measure_run_noise(base_figures: Float, other_figures: Float) -> _Noise:
    """Measure the noise from several runs of each program."""
    index = find_critical_rank(len(base_figures), len(other_figures), TAIL_BETWEEN_RUNS)
    return _Noise.from_differences(compute_differences(base_figures, other_figures), index)


def _measure_pair_noise(
    base_figures: Float, other_figures: Float, pairs: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], _Noise]:
    """Measure the noise from pairs of runs; returns it with the pair that represents the
    programs."""
    differences = np.stack([other_figures[j] - base_figures[i] for i, j in pairs])
    averages = compute_walsh_averages(differences)
    nearest = np.abs(differences[:, _MEAN] - np.median(averages[:, _MEAN])).argmin()
    index = find_critical_signed_rank(len(pairs), TAIL_BETWEEN_RUNS)
    return pairs[int(nearest)], _Noise.from_differences(averages, index)


_MEAN, _P50, _P95, _PARTS = range(4)
"""Indices of figures; those of the parts follow from `_PARTS`."""


class _Moments(msgspec.Struct, frozen=True, kw_only=True):
    """A run cut into consecutive moments."""

    parts: Float
    """Mean nanoseconds by moment and part."""
    walls: Float
    """Nanoseconds of steps by moment: one step of every rank. Where a moment has several, they are
    drawn at random, because steps at equal distances could be in phase with recurring work."""

    @classmethod
    def cut(cls, run: StepTimes, names: Sequence[str], *, seed: int) -> _Moments:
        """Cut a run into moments."""
        size = run.steps_per_moment
        count = len(run.wall_ns) // size
        walls = run.wall_ns[: count * size].astype(np.float64).reshape(count, size)
        if size > run.rank_count:
            walls = np.random.default_rng(seed).permuted(walls, axis=1)[:, : run.rank_count]
        parts = run.build_matrix(names)[: count * size].reshape(count, size, len(names))
        return cls(parts=parts.mean(axis=1), walls=walls)

    def measure_noise_floor(self) -> Float:
        """Measure the difference of the run from itself (see the top of this file), by figure; 0
        for a single moment."""
        count = len(self.walls)
        half = count // 2
        cut_count = min(ROTATIONS, half)
        cuts = np.unique(np.linspace(0, half, cut_count, endpoint=False, dtype=np.int64))
        if not len(cuts):
            return np.zeros(_PARTS + self.parts.shape[1])
        rotated = (cuts[:, None] + np.arange(count)) % count
        differences = self._compute(rotated[:, :half]) - self._compute(rotated[:, count - half :])
        floor: Float = DRIFT_FACTOR * np.abs(differences).max(axis=0)
        return floor

    def resample(self, *, seed: int) -> Float:
        """Resample the run in blocks; returns the figures of each resample as a row."""
        count = len(self.walls)
        block = max(1, round(count ** (1 / 3)))
        generator = np.random.default_rng(seed)
        starts = generator.integers(0, count, size=(RESAMPLES, -(-count // block)))
        blocks = (starts[:, :, None] + np.arange(block)) % count
        resamples = blocks.reshape(RESAMPLES, -1)[:, :count]
        batch_count = -(-RESAMPLES * self.walls.size // _BATCH_VALUES)
        batches = np.array_split(resamples, batch_count)
        return np.concatenate([self._compute(moments) for moments in batches])

    def _compute(self, moments: intervals.Int) -> Float:
        """Compute the figures of selections of moments, each a row."""
        return _compute_figures(self.parts[moments], self.walls[moments])


def _compute_figures(parts: Float, walls: Float) -> Float:
    """Compute figures over the second to last axis of `parts` and the last two of `walls`."""
    means = parts.mean(axis=-2)
    percentiles = np.percentile(walls, [50, 95], axis=(-2, -1))
    return np.concatenate(
        [means.sum(axis=-1)[..., None], np.moveaxis(percentiles, 0, -1), means], axis=-1
    )
