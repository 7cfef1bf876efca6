"""Statistics of the measured steps of one rank: time by phase, and the slowest steps."""

from __future__ import annotations

import msgspec
import numpy as np

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
