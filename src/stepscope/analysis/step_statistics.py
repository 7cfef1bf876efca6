"""Statistics of the measured steps of one rank: time by phase, and the slowest steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.phases import PHASES
from stepscope.analysis.statistics import DurationStatistics, summarize_durations
from stepscope.analysis.steps import Steps
from stepscope.schema import field_label

MAX_UNKNOWN_RATIO = 0.5
"""Time outside recorded phases, as a share of steps without forward and backward passes."""


class PhaseShare(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one phase over the measured steps."""

    name: Annotated[str, field_label("phase")]
    share_ratio: float | None
    """Share of the wall time of the measured steps."""
    mean_ns: float
    p50_ns: float
    p95_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStatistics:
    """Durations of one phase of the measured steps."""

    phase: str
    share_ratio: float
    """Share of the wall time of the measured steps."""
    durations: DurationStatistics


def summarize_phases(steps: Steps) -> list[PhaseStatistics]:
    """Summarize each phase over the measured steps; empty without measured time."""
    measured = steps.measured()
    wall_ns = int(steps.wall_ns[measured].sum())
    summaries = {name: summarize_durations(steps.phase_ns[name][measured]) for name in PHASES}
    return [
        PhaseStatistics(phase=name, share_ratio=summary.total_ns / wall_ns, durations=summary)
        for name, summary in summaries.items()
        if summary is not None and wall_ns
    ]


def measure_phases(steps: Steps) -> list[PhaseShare]:
    """Measure each phase over the measured steps; empty without measured time."""
    return [
        PhaseShare(
            name=phase.phase,
            share_ratio=phase.share_ratio,
            mean_ns=phase.durations.mean_ns,
            p50_ns=phase.durations.p50_ns,
            p95_ns=phase.durations.p95_ns,
        )
        for phase in summarize_phases(steps)
    ]


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


def compute_pooled_median(durations: Iterable[NDArray[Any]]) -> float:
    """Compute the median of the durations of several ranks, in their unit."""
    return float(np.median(np.concatenate(list(durations))))


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


def explain_unknown_time(
    phase_ns: Mapping[str, int], *, has_samples: bool, is_imported: bool
) -> str | None:
    """Explain why the time of a rank outside the recorded phases is not known to be overhead.

    Without phases and stack samples inside the steps, all of their time is `other`, computation
    included. Other tools may record waits for batches only.

    Args:
        phase_ns: time by phase.
        has_samples: True if there are stack samples of the training thread.
        is_imported: True if the steps come from files of other tools.

    Returns:
        The reason; None where the time is known to be outside of everything that was recorded.
    """
    if not has_samples and not any(ns for phase, ns in phase_ns.items() if phase != "other"):
        return "steps were recorded, but no phases and no stack samples inside them"
    has_passes = phase_ns.get("forward", 0) or phase_ns.get("backward", 0)
    unknown_ns = phase_ns.get("other", 0)
    if is_imported and not has_passes and unknown_ns > MAX_UNKNOWN_RATIO * sum(phase_ns.values()):
        return (
            "the imported files contain no forward and backward passes, and the other phases in "
            "them take less than half of the steps"
        )
    return None
