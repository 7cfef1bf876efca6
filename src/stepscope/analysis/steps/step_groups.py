"""Levels of detail of a rank's steps: groups of consecutive steps, few enough to be drawn."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.steps.steps import Steps
from stepscope.intervals import Int

MIN_MEDIAN_STEPS = 25
"""Minimum number of steps of which a moving median is."""
MEDIAN_GROUPS = 3
"""Groups of which a moving median is, if these are more steps."""


class OutlierStep(NamedTuple):
    """Outlier, with the phase that exceeds its median by most."""

    step_index: int
    phase: str
    excess_ns: int


class StepGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive steps in groups of equal size, except the last."""

    size: int
    """Steps in a group."""
    first: Int
    """Index of the first step of each group."""
    phase_ns: dict[str, NDArray[np.float64]]
    """Mean time by phase over the steps of each group; phases without time are left out."""
    median_ns: NDArray[np.float64]
    """Median duration of the steps around the middle of each group."""
    median_steps: int
    """Number of steps of which the medians are, or all steps where there are fewer."""


def group_steps(steps: Steps, max_count: int) -> StepGroups:
    """Group the steps of one rank.

    Args:
        steps: at least one.
        max_count: limit of the groups.
    """
    size = -(-len(steps) // max_count)
    first = np.arange(0, len(steps), size)
    counts = np.diff(np.append(first, len(steps)))
    phase_ns = {}
    for phase, times in steps.phase_ns.items():
        sums = np.add.reduceat(times, first)
        if sums.any():
            phase_ns[phase] = sums / counts
    window = max(MIN_MEDIAN_STEPS, MEDIAN_GROUPS * size)
    duration_ns = steps.duration_ns
    begins = np.clip(first + counts // 2 - window // 2, 0, max(0, len(steps) - window))
    return StepGroups(
        size=size,
        first=first,
        phase_ns=phase_ns,
        median_ns=np.array([np.median(duration_ns[i : i + window]) for i in begins.tolist()]),
        median_steps=window,
    )


def find_outliers_of_groups(
    steps: Steps, groups: StepGroups, threshold_ns: float
) -> tuple[list[OutlierStep], int]:
    """Find the slowest outlier of each group, and count all outliers.

    Args:
        steps, groups: steps of one rank in groups.
        threshold_ns: outliers are measured steps above this duration.
    """
    measured = steps.measured()
    duration_ns = np.where(measured, steps.duration_ns, 0)
    slowest = [i + int(np.argmax(duration_ns[i : i + groups.size])) for i in groups.first.tolist()]
    rows = [i for i in slowest if duration_ns[i] > threshold_ns]
    if not rows:
        return [], 0
    excess = {
        phase: steps.phase_ns[phase][rows] - np.median(steps.phase_ns[phase][measured])
        for phase in groups.phase_ns
    }
    phases = list(excess)
    largest = np.argmax(np.stack([excess[phase] for phase in phases]), axis=0).tolist()
    outliers = [
        OutlierStep(row, phases[number], int(excess[phases[number]][position]))
        for position, (row, number) in enumerate(zip(rows, largest, strict=True))
    ]
    return outliers, int((duration_ns > threshold_ns).sum())
