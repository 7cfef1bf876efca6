"""What changed between two runs.

The difference of the mean step is the sum of the differences of its parts, and the difference of
the time that kernels or operators take per step is the sum of those of each name, so that both can
be followed to where they come from.

Whether a difference is more than noise follows from the steps themselves, by two tests that must
both say so:

    interval     Slow steps come in groups, so runs are resampled in blocks of n^(1/3) consecutive
                 moments (circular block bootstrap, Politis and Romano 1992): 0 must not be within
                 the middle 95 % of the resampled differences.
    noise floor  That interval knows only what changes within a block. A machine drifts over
                 minutes, and two runs of one program then differ by more. How far it drifts shows
                 in each run alone: it is cut into two contiguous halves, at `ROTATIONS` places
                 around it, and the figure is taken of both. The difference must exceed the
                 largest such difference of either run, times the square root of 2: of a random
                 walk, neighbouring stretches differ in proportion to the root of their length, and
                 whole runs are twice as long as halves.

Both follow a run through time, not from rank to rank: ranks that train together have each step at
the same moment, are slow at the same moment, and differ from one another for good. So a moment is
one step of every rank, or in a long run several.

A figure that rests on too few steps is never called beyond noise: the mean and the median need
`FEWEST_STEPS` of them one after the other in both runs, the 95th percentile so many that two lie
above it.

What no single run can tell is how much the next run of the same program will differ: a machine may
be in another state for all of it. That takes several runs of each. Then noise is how runs of one
program differ: the interval is that of Hodges and Lehmann (see `location_shift`), and the noise
floor is half of its width. One run stands for its program, the whole run, so that parts still sum;
what all runs say of a change is the median of the differences that the interval is between. With
normal noise that needs two thirds of the runs to be as sure as a difference of medians is (their
asymptotic efficiencies are 3 / pi and 2 / pi).

    runs     The median run of each stands for it; every run is set against every other one.
    pairs    Of runs that were recorded in turn, one of each program and then the next of each, two
             neighbours had the machine in about one state, where that lasts longer than a run. So
             each is set against its neighbour alone, and the pair stands for the programs whose
             change is nearest to the median of all Walsh averages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepscope.comparison.location_shift import (
    Float,
    critical_rank,
    critical_signed_rank,
    differences,
    walsh_averages,
)
from stepscope.intervals import Int

Status = Literal["added", "removed", "slower", "faster", "unchanged"]
NoiseOf = Literal["steps", "runs", "pairs"]
"""What is taken for noise: how the steps of single runs differ, several runs of one program, or
pairs of runs, one of each program, that were recorded one after the other."""
RESAMPLES = 400
INTERVAL_PERCENT = (2.5, 97.5)
TAIL_BETWEEN_RUNS = 0.05
"""Of the interval between runs, at each end. They are few, and one in an odd state must not hide a
change; what a gate asks has one side."""
ROTATIONS = 32
"""Places around a run at which it is cut into halves."""
DRIFT_FACTOR = 2**0.5
FEWEST_STEPS = 5
FEWEST_FOR_P95 = 40
FEWEST_RUNS = 3
"""Of each program: two that are both slower than two others are so by chance once in six times."""
FEWEST_PAIRS = 5
"""Four pairs of which each differs the same way do so by chance once in 16 times."""
MOST_MOMENTS = 20_000
"""In a longer run a moment is several consecutive steps of every rank."""
ALIKE_RATIO = 0.01
"""A name whose time changes by less than this share of itself is called unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The steps of a run, those of all ranks in the order in which they began."""

    parts: Mapping[str, Int]
    """Nanoseconds of every part of every step, by part; they sum to the step."""
    rank_count: int = 1
    began_ns: int = 0
    """When the first of them began; 0 where that is not known."""

    @classmethod
    def of(cls, ranks: Sequence[tuple[Int, Mapping[str, Int]]]) -> StepTimes:
        """From when the steps of each rank began, and their parts."""
        order = np.argsort(np.concatenate([start for start, _ in ranks]), kind="stable")
        names = dict.fromkeys(name for _, parts in ranks for name in parts)
        parts = {
            name: np.concatenate([own.get(name, np.zeros_like(start)) for start, own in ranks])
            for name in names
        }
        return cls(
            parts={name: times[order] for name, times in parts.items()},
            rank_count=len(ranks),
            began_ns=min((int(start.min()) for start, _ in ranks if len(start)), default=0),
        )

    @property
    def wall_ns(self) -> Int:
        """Of every step."""
        found: Int = np.sum([*self.parts.values()], axis=0, dtype=np.int64)
        return found

    @property
    def steps_in_moment(self) -> int:
        """Steps, those of all ranks, that make a moment."""
        return self.rank_count * -(-len(self.wall_ns) // (MOST_MOMENTS * self.rank_count))

    def matrix(self, names: Sequence[str]) -> Float:
        """Nanoseconds by step and named part."""
        nothing = np.zeros_like(self.wall_ns)
        parts = [self.parts.get(name, nothing) for name in names]
        return np.stack(parts, axis=1, dtype=np.float64)

    def figures(self, names: Sequence[str]) -> Float:
        """Mean, median and 95th percentile of whole steps, then the mean of each named part."""
        return _figures(self.matrix(names), self.wall_ns.astype(np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How a figure of the steps differs, in nanoseconds."""

    base_ns: float
    other_ns: float
    change_ns: float
    estimate_ns: float
    """The change as all runs tell it, the median of what the interval is between; of single runs
    `change_ns`."""
    interval_ns: tuple[float, float] | None
    """The interval of the change; None, as the next, where there are too few steps to know it."""
    noise_ns: float | None
    """The noise floor."""
    beyond_noise: bool
    """0 is not within the interval, and the change of a single run is larger than the noise
    floor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDifference:
    """How the steps of two runs differ."""

    mean: Difference
    p50: Difference
    p95: Difference
    parts: dict[str, Difference]
    """Of the mean step; their changes sum to that of the mean."""
    noise_of: NoiseOf
    chosen: tuple[int, int]
    """Places of the runs that stand for their programs."""


def compare_steps(base: Sequence[StepTimes], other: Sequence[StepTimes]) -> StepDifference:
    """How steps differ; a part that one run does not have counts as 0.

    Args:
        base, other: one or more runs of each program.
    """
    names = list(dict.fromkeys(name for run in (*base, *other) for name in run.parts))
    before, after = (np.stack([run.figures(names) for run in runs]) for runs in (base, other))
    pairs = recorded_in_turn(base, other)
    noise_of: NoiseOf
    if pairs is not None:
        noise_of = "pairs"
        chosen, noise = _of_pairs(before, after, pairs)
    else:
        chosen = _median_run(before), _median_run(after)
        if min(len(base), len(other)) >= FEWEST_RUNS:
            noise_of = "runs"
            noise = _between(before, after)
        else:
            noise_of = "steps"
            noise = _within((base[chosen[0]], other[chosen[1]]), names)
    runs = base[chosen[0]], other[chosen[1]]
    steps = min(len(run.wall_ns) for run in runs)
    moments = min(len(run.wall_ns) // run.steps_in_moment for run in runs)

    def difference(place: int) -> Difference:
        one, two = float(before[chosen[0], place]), float(after[chosen[1], place])
        change = two - one
        known = moments >= FEWEST_STEPS and (place != _P95 or steps >= FEWEST_FOR_P95)
        low, high, floor = (float(each[place]) for each in (noise.low, noise.high, noise.floor))
        estimate = change if noise.estimate is None else float(noise.estimate[place])
        apart = low > 0 if estimate > 0 else high < 0
        return Difference(
            base_ns=one,
            other_ns=two,
            change_ns=change,
            estimate_ns=estimate,
            interval_ns=(low, high) if known else None,
            noise_ns=floor if known else None,
            beyond_noise=known and apart and (noise_of != "steps" or abs(change) > floor),
        )

    return StepDifference(
        mean=difference(_MEAN),
        p50=difference(_P50),
        p95=difference(_P95),
        parts={name: difference(_PARTS + place) for place, name in enumerate(names)},
        noise_of=noise_of,
        chosen=chosen,
    )


def recorded_in_turn(
    base: Sequence[StepTimes], other: Sequence[StepTimes]
) -> list[tuple[int, int]] | None:
    """Places of runs of both that were recorded one after the other, or at the same time: the
    first two of all, the next two and so on; None where two of one program follow each other in
    that, or the pairs are too few."""
    if len(base) != len(other) or len(base) < FEWEST_PAIRS:
        return None
    sides = (base, other)
    order = sorted(
        (run.began_ns, side, place)
        for side, runs in enumerate(sides)
        for place, run in enumerate(runs)
    )
    pairs = [sorted(each[1:] for each in two) for two in zip(order[::2], order[1::2], strict=True)]
    if any([side for side, _ in two] != [0, 1] for two in pairs):
        return None
    return [(one, another) for (_, one), (_, another) in pairs]


def _median_run(figures: Float) -> int:
    """Place of the run whose mean step is the median; of two in the middle the shorter one."""
    return int(np.argsort(figures[:, _MEAN], kind="stable")[(len(figures) - 1) // 2])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """Nanoseconds by figure."""

    low: Float
    """Of the interval."""
    high: Float
    floor: Float
    estimate: Float | None
    """Of the change, from all runs."""

    @classmethod
    def around(cls, ordered: Float, place: int) -> _Noise:
        """From sorted differences, and the place of the lower bound."""
        low, high = ordered[place], ordered[len(ordered) - 1 - place]
        estimate = np.median(ordered, axis=0)
        return cls(low=low, high=high, floor=(high - low) / 2, estimate=estimate)


def _within(runs: Sequence[StepTimes], names: Sequence[str]) -> _Noise:
    """From the steps of one run of each program."""
    cut = [_Moments.of(each, names, seed=seed) for seed, each in enumerate(runs)]
    before, after = (each.resampled(seed=seed) for seed, each in enumerate(cut))
    low, high = np.percentile(after - before, INTERVAL_PERCENT, axis=0)
    floor = np.maximum(cut[0].noise_floor(), cut[1].noise_floor())
    return _Noise(low=low, high=high, floor=floor, estimate=None)


def _between(before: Float, after: Float) -> _Noise:
    """From several runs of each program."""
    place = critical_rank(len(before), len(after), TAIL_BETWEEN_RUNS)
    return _Noise.around(differences(before, after), place)


def _of_pairs(
    before: Float, after: Float, pairs: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], _Noise]:
    """From pairs of runs, and the pair that stands for the programs."""
    apart = np.stack([after[another] - before[one] for one, another in pairs])
    averages = walsh_averages(apart)
    nearest = np.abs(apart[:, _MEAN] - np.median(averages[:, _MEAN])).argmin()
    place = critical_signed_rank(len(pairs), TAIL_BETWEEN_RUNS)
    return pairs[int(nearest)], _Noise.around(averages, place)


_MEAN, _P50, _P95, _PARTS = range(4)
"""Places of figures; those of the parts follow one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moments:
    """A run cut into moments that follow one another."""

    parts: Float
    """Mean nanoseconds by moment and part."""
    walls: Float
    """Nanoseconds of steps by moment: one of every rank; where a moment is several of them, drawn
    from those, because steps at equal distances would keep in step with whatever recurs."""

    @classmethod
    def of(cls, run: StepTimes, names: Sequence[str], *, seed: int) -> _Moments:
        together = run.steps_in_moment
        count = len(run.wall_ns) // together
        cut = run.wall_ns[: count * together].astype(np.float64).reshape(count, together)
        if together > run.rank_count:
            cut = np.random.default_rng(seed).permuted(cut, axis=1)[:, : run.rank_count]
        parts = run.matrix(names)[: count * together].reshape(count, together, len(names))
        return cls(parts=parts.mean(axis=1), walls=cut)

    def noise_floor(self) -> Float:
        """How far the run differs from itself (see the top of this file), by figure; 0 for a single
        moment."""
        count = len(self.walls)
        half = count // 2
        cuts = min(ROTATIONS, half)
        largest = np.zeros(_PARTS + self.parts.shape[1])
        for place in np.unique(np.linspace(0, half, cuts, endpoint=False, dtype=np.int64)).tolist():
            turned = np.roll(np.arange(count), -place)
            apart = self._at(turned[:half]) - self._at(turned[count - half :])
            largest = np.maximum(largest, np.abs(apart))
        return DRIFT_FACTOR * largest

    def resampled(self, *, seed: int) -> Float:
        """The figures of resampled runs, one row each."""
        count = len(self.walls)
        block = max(1, round(count ** (1 / 3)))
        generator = np.random.default_rng(seed)
        begins = generator.integers(0, count, size=(RESAMPLES, -(-count // block)))
        within = np.arange(block)
        drawn = [((begin[:, None] + within).ravel()[:count]) % count for begin in begins]
        return np.stack([self._at(moments) for moments in drawn])

    def _at(self, moments: Int) -> Float:
        return _figures(self.parts[moments], self.walls[moments])


def _figures(parts: Float, walls: Float) -> Float:
    means = parts.mean(axis=0)
    return np.concatenate([[means.sum()], np.percentile(walls, [50, 95]), means])


@dataclass(frozen=True, slots=True, kw_only=True)
class NameDifference:
    """How much time what has one name takes in the mean step."""

    name: str
    status: Status
    base_ns: float
    """Per step, as the next."""
    other_ns: float
    change_ns: float
    base_calls: float
    other_calls: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NameDifferences:
    """By name; the changes of `rows` and `rest_ns` sum to `change_ns`."""

    base_ns: float
    other_ns: float
    change_ns: float
    rows: list[NameDifference]
    """The largest changes first, whichever way."""
    rest_ns: float
    """Change of all names that are not listed."""
    rest_count: int


PerStep = Mapping[str, tuple[float, float]]
"""By name, nanoseconds and calls in the mean step."""


def compare_names(base: PerStep, other: PerStep, *, top: int) -> NameDifferences:
    """How the time by name differs; the `top` largest changes are listed."""
    rows = [_row(name, base, other) for name in dict.fromkeys([*base, *other])]
    rows.sort(key=lambda row: (-abs(row.change_ns), row.name))
    before = sum(ns for ns, _ in base.values())
    after = sum(ns for ns, _ in other.values())
    return NameDifferences(
        base_ns=before,
        other_ns=after,
        change_ns=after - before,
        rows=rows[:top],
        rest_ns=sum(row.change_ns for row in rows[top:]),
        rest_count=len(rows[top:]),
    )


def _row(name: str, base: PerStep, other: PerStep) -> NameDifference:
    base_ns, base_calls = base.get(name, (0.0, 0.0))
    other_ns, other_calls = other.get(name, (0.0, 0.0))
    change = other_ns - base_ns
    status: Status = "slower" if change > 0 else "faster"
    if abs(change) <= ALIKE_RATIO * base_ns:
        status = "unchanged"
    if name not in base:
        status = "added"
    if name not in other:
        status = "removed"
    return NameDifference(
        name=name,
        status=status,
        base_ns=base_ns,
        other_ns=other_ns,
        change_ns=change,
        base_calls=base_calls,
        other_calls=other_calls,
    )
