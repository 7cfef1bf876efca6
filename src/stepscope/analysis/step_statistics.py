"""Statistics of the measured steps of one rank: time by phase, and the slowest steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.phases import PHASES
from stepscope.analysis.statistics import summarize
from stepscope.analysis.steps import Steps


class PhaseShare(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one phase over the measured steps."""

    name: str
    share_ratio: float
    """Share of the wall time of the measured steps."""
    mean_ns: float
    p50_ns: float
    p95_ns: float


def measure_phases(steps: Steps) -> list[PhaseShare]:
    """Measure each phase over the measured steps; empty without any."""
    measured = steps.measured()
    wall_ns = steps.wall_ns[measured].sum()
    shares = []
    for name in PHASES:
        values = steps.phase_ns[name][measured]
        distribution = summarize(values)
        if distribution is not None:
            shares.append(
                PhaseShare(
                    name=name,
                    share_ratio=float(values.sum() / wall_ns),
                    mean_ns=distribution.mean,
                    p50_ns=distribution.p50,
                    p95_ns=distribution.p95,
                )
            )
    return shares


def find_slowest_steps(steps: Steps, threshold_ns: float, *, top: int) -> list[int]:
    """Find the numbers of the measured steps above a threshold, the slowest first.

    Args:
        steps: steps of one rank.
        threshold_ns: lower limit of the wall time, exclusive.
        top: limit of the steps.
    """
    wall_ns = np.where(steps.measured(), steps.wall_ns, 0)
    slowest = np.argsort(-wall_ns, kind="stable")[:top]
    return [steps.first + int(step) for step in slowest if wall_ns[step] > threshold_ns]


def select_durations_s(steps: Steps, mode: str | None) -> NDArray[np.float64]:
    """Select the durations in seconds of steps without a profiler.

    Args:
        steps: steps of one rank.
        mode: a phase of `PHASES`; None or `TRAIN` for whole steps.
    """
    walls_ns = steps.wall_ns if mode in {None, "TRAIN"} else steps.phase_ns[str(mode)]
    durations: NDArray[np.float64] = walls_ns[~steps.profiled & (walls_ns > 0)] / 1e9
    return durations


def pool_durations(durations: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """Join the durations of several ranks, shape (steps of all ranks,)."""
    return np.concatenate(list(durations))


def median_of(durations: NDArray[Any]) -> float:
    """Compute the median, in the unit of the durations."""
    return float(np.median(durations))


def thin_out_steps(steps: Steps, max_count: int) -> NDArray[np.int64]:
    """Select the slowest step of each group of consecutive steps.

    Args:
        steps: steps of one rank, at least one.
        max_count: limit of the groups, which have equal size except the last.

    Returns:
        Indexes of steps, ascending.
    """
    size = -(-len(steps) // max_count)
    starts = range(0, len(steps), size)
    slowest = [start + int(np.argmax(steps.wall_ns[start : start + size])) for start in starts]
    return np.array(slowest, dtype=np.int64)
