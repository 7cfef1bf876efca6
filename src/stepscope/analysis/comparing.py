"""What changed between two runs.

The difference of the mean step is the sum of the differences of its parts, and the difference of
the time that kernels or operators take per step is the sum of those of each name, so that both can
be followed to where they come from.

Whether a difference is more than noise follows from the steps themselves. Slow steps come in
groups, so runs are resampled in blocks of n^(1/3) consecutive steps (circular block bootstrap):
a difference is beyond noise when 0 is not within the middle 95 % of the resampled differences.
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
    beyond_noise: bool


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

    def difference(place: int) -> Difference:
        low, high = np.percentile(drawn[:, place], INTERVAL_PERCENT).tolist()
        one, two = float(measured[0][place]), float(measured[1][place])
        return Difference(
            base_ns=one,
            other_ns=two,
            change_ns=two - one,
            low_ns=low,
            high_ns=high,
            beyond_noise=not low <= 0 <= high,
        )

    return StepDifference(
        mean=difference(0),
        p50=difference(1),
        p95=difference(2),
        parts={name: difference(3 + place) for place, name in enumerate(names)},
    )


def _matrix(parts: Mapping[str, Int], names: list[str]) -> Float:
    """Nanoseconds by step and part."""
    count = len(next(iter(parts.values())))
    nothing = np.zeros(count)
    return np.stack([parts.get(name, nothing) for name in names], axis=1).astype(np.float64)


def _figures(steps: Float) -> Float:
    """Mean, median and 95th percentile of whole steps, then the mean of each part."""
    wall = steps.sum(axis=1)
    return np.concatenate([[wall.mean()], np.percentile(wall, [50, 95]), steps.mean(axis=0)])


def _resampled(steps: Float, *, seed: int) -> Float:
    """The figures of resampled runs, one row each."""
    steps = steps[:: -(-len(steps) // MOST_STEPS)]
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
