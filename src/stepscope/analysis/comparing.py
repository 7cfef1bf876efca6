"""What changed between two runs.

The difference of the mean step is the sum of the differences of its parts, and the difference of
the time that kernels or operators take per step is the sum of those of each name, so that both can
be followed to where they come from.

Whether a difference is more than noise follows from the steps themselves, by two tests that must
both say so:

    interval     Slow steps come in groups, so runs are resampled in blocks of n^(1/3) consecutive
                 steps (circular block bootstrap, Politis and Romano 1992): 0 must not be within
                 the middle 95 % of the resampled differences.
    noise floor  That interval knows only what changes within a block. A machine drifts over
                 minutes, and two runs of one program then differ by more. How far it drifts shows
                 in each run alone: it is cut into two contiguous halves, at `ROTATIONS` places
                 around it, and the figure is taken of both. The difference must exceed the
                 largest such difference of either run, times the square root of 2: of a random
                 walk, neighbouring stretches differ in proportion to the root of their length, and
                 whole runs are twice as long as halves.

A figure that rests on too few steps is never called beyond noise: the mean and the median need
`FEWEST_STEPS` in both runs, the 95th percentile so many that two lie above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int

Float = NDArray[np.float64]
Status = Literal["added", "removed", "slower", "faster", "unchanged"]
RESAMPLES = 400
INTERVAL_PERCENT = (2.5, 97.5)
ROTATIONS = 32
"""Places around a run at which it is cut into halves."""
DRIFT_FACTOR = 2**0.5
FEWEST_STEPS = 5
FEWEST_FOR_P95 = 40
MOST_STEPS = 20_000
"""Of a longer run so many steps are resampled, at equal distances: that widens the interval."""
ALIKE_RATIO = 0.01
"""A name whose time changes by less than this share of itself is called unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How a figure of the steps differs, in nanoseconds."""

    base_ns: float
    other_ns: float
    change_ns: float
    low_ns: float
    """Ends of the interval of the change."""
    high_ns: float
    noise_ns: float | None
    """The noise floor; None where there are too few steps to know it."""
    beyond_noise: bool
    """0 is not within the interval, and the change is larger than the noise floor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDifference:
    """How the steps of two runs differ."""

    mean: Difference
    p50: Difference
    p95: Difference
    parts: dict[str, Difference]
    """Of the mean step; their changes sum to that of the mean."""


def compare_steps(base: Mapping[str, Int], other: Mapping[str, Int]) -> StepDifference:
    """How steps differ.

    Args:
        base, other: nanoseconds of every part of every step, by part; those that one run does not
            have count as 0. Parts sum to the step.
    """
    names = list(dict.fromkeys([*base, *other]))
    before, after = _matrix(base, names), _matrix(other, names)
    drawn = _resampled(after, seed=1) - _resampled(before, seed=0)
    measured = [_figures(values) for values in (before, after)]
    floor = np.maximum(noise_floor(before), noise_floor(after))
    count = min(len(before), len(after))

    def difference(place: int) -> Difference:
        low, high = np.percentile(drawn[:, place], INTERVAL_PERCENT).tolist()
        one, two = float(measured[0][place]), float(measured[1][place])
        known = count >= (FEWEST_FOR_P95 if place == _P95 else FEWEST_STEPS)
        noise = float(floor[place])
        return Difference(
            base_ns=one,
            other_ns=two,
            change_ns=two - one,
            low_ns=low,
            high_ns=high,
            noise_ns=noise if known else None,
            beyond_noise=known and not low <= 0 <= high and abs(two - one) > noise,
        )

    return StepDifference(
        mean=difference(_MEAN),
        p50=difference(_P50),
        p95=difference(_P95),
        parts={name: difference(_PARTS + place) for place, name in enumerate(names)},
    )


def noise_floor(steps: Float) -> Float:
    """How far a run differs from itself: see the top of this file.

    Args:
        steps: nanoseconds by step and part.

    Returns:
        Nanoseconds by figure: of the mean, the median and the 95th percentile of whole steps, then
        of the mean of each part; 0 for a single step.
    """
    steps = _thinned(steps)
    count = len(steps)
    half = count // 2
    places = np.unique(np.linspace(0, half, min(ROTATIONS, half), endpoint=False, dtype=np.int64))
    largest = np.zeros(_PARTS + steps.shape[1])
    for place in places.tolist():
        turned = np.roll(steps, -place, axis=0)
        apart = np.abs(_figures(turned[:half]) - _figures(turned[count - half :]))
        largest = np.maximum(largest, apart)
    return DRIFT_FACTOR * largest


_MEAN, _P50, _P95, _PARTS = range(4)
"""Places of figures; those of the parts follow one another."""


def _matrix(parts: Mapping[str, Int], names: list[str]) -> Float:
    """Nanoseconds by step and part."""
    count = len(next(iter(parts.values())))
    nothing = np.zeros(count)
    return np.stack([parts.get(name, nothing) for name in names], axis=1).astype(np.float64)


def _figures(steps: Float) -> Float:
    """Mean, median and 95th percentile of whole steps, then the mean of each part."""
    wall = steps.sum(axis=1)
    return np.concatenate([[wall.mean()], np.percentile(wall, [50, 95]), steps.mean(axis=0)])


def _thinned(steps: Float) -> Float:
    """Of a long run some steps, at equal distances."""
    return steps[:: -(-len(steps) // MOST_STEPS)]


def _resampled(steps: Float, *, seed: int) -> Float:
    """The figures of resampled runs, one row each."""
    steps = _thinned(steps)
    count = len(steps)
    block = max(1, round(count ** (1 / 3)))
    generator = np.random.default_rng(seed)
    begins = generator.integers(0, count, size=(RESAMPLES, -(-count // block)))
    within = np.arange(block)
    return np.stack(
        [_figures(steps[((begin[:, None] + within).ravel()[:count]) % count]) for begin in begins]
    )


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
