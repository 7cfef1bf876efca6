"""Statistics of the measured steps of one rank: time by phase, slowest steps, recorded work.

Work of each step, as far as it is recorded; some jobs do more in later steps than in earlier. An
agent whose episodes get longer, or a curriculum of longer sequences, takes longer steps and keeps
more in memory, and nothing is wrong.

Steps in a quarter of their memory, for thousands of ranks and for other processes. Each array is
stored with the narrowest unsigned integers that hold it, one value where all are alike. Starts are
differences, and ends and wall times are relative to the starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.arrays import statistics
from stepscope.analysis.steps.phases import PHASES, PhaseTimes, pack
from stepscope.analysis.steps.spans import FLAG_SIZED, SIZE_BITS, Spans
from stepscope.analysis.steps.steps import Steps, find_step_at

MAX_UNKNOWN_RATIO = 0.5
"""Time outside recorded phases, as a share of steps without forward and backward passes."""


class PhaseShare(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one phase over the measured steps."""

    name: Annotated[str, schema.field_label("phase")]
    share_ratio: float | None
    """Share of the wall time of the measured steps."""
    mean_ns: float
    p50_ns: float
    p95_ns: float


class PhaseStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of one phase of the measured steps."""

    phase: str
    share_ratio: float
    """Share of the wall time of the measured steps."""
    durations: statistics.DurationStatistics


def summarize_phases(steps: Steps) -> list[PhaseStatistics]:
    """Summarize each phase over the measured steps; empty without measured time."""
    measured = steps.measured()
    wall_ns = int(steps.wall_ns[measured].sum())
    summaries = {
        name: statistics.summarize_durations(steps.phase_ns[name][measured]) for name in PHASES
    }
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
        threshold_ns: lower limit of the duration, exclusive.
        top: limit of the steps.
    """
    duration_ns = np.where(steps.measured(), steps.duration_ns, 0)
    slowest = np.argsort(-duration_ns, kind="stable")[:top]
    return [steps.first + int(step) for step in slowest if duration_ns[step] > threshold_ns]


def select_durations_s(steps: Steps, mode: str | None) -> NDArray[np.float64]:
    """Select the durations in seconds of steps without a profiler.

    Args:
        steps: steps of one rank.
        mode: a phase of `PHASES`; None or `TRAIN` for whole steps.
    """
    part_ns = steps.duration_ns if mode in {None, "TRAIN"} else steps.phase_ns[str(mode)]
    durations: NDArray[np.float64] = part_ns[~steps.profiled & (part_ns > 0)] / 1e9
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
    slowest = [start + int(np.argmax(steps.duration_ns[start : start + size])) for start in starts]
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


def measure_work(spans: Spans, steps: Steps) -> list[intervals.Int]:
    """Measure the work of each step: forward passes, backward passes, elements of their inputs and
    fetched batches. Measures that are not known for every measured step are left out.

    Args:
        spans: spans of the process.
        steps: its steps.
    """
    is_measured = steps.measured()
    return [work for work in _iterate_measures(spans, steps) if (work[is_measured] > 0).all()]


def _iterate_measures(spans: Spans, steps: Steps) -> Iterator[intervals.Int]:
    spans = spans.on_thread(steps.thread)
    for kind in ("forward", "backward"):
        yield _sum_by_step(spans.of(kind), None, steps)
    forward = spans.of("forward")
    size = np.where(forward.has_flag(FLAG_SIZED), forward.value & ((1 << SIZE_BITS) - 1), 0)
    elements = _sum_by_step(forward, size, steps)
    unknown = _sum_by_step(forward, (size == 0).astype(np.int64), steps)
    yield np.where(unknown == 0, elements, 0)
    yield steps.fetches


def _sum_by_step(spans: Spans, values: intervals.Int | None, steps: Steps) -> intervals.Int:
    step = find_step_at(spans.start, steps)
    inside = step >= 0
    weights = None if values is None else values[inside]
    return np.bincount(step[inside], weights, minlength=len(steps)).astype(np.int64)


def measure_growth_at_equal_work(
    values: NDArray[np.float64] | intervals.Int, work: list[intervals.Int]
) -> tuple[statistics.Growth | None, bool]:
    """Measure how a series grows beyond the work of its steps.

    Args:
        values: one value per step, proportional to the work.
        work: measures of the work of each step, greater than zero.

    Returns:
        The growth of the values, or of the values scaled to the mean work by the measure that
        explains most of it, and True for the latter; and the smallest `steady_ratio` of them all.
        None for fewer values than `measure_growth` needs.
    """
    growth, is_scaled = statistics.measure_growth(values), False
    if growth is None:
        return None, False
    steady_ratio = growth.steady_ratio
    for amount in work:
        scaled = statistics.measure_growth(values * (amount.mean() / amount))
        if scaled is not None and scaled.excess < growth.excess:
            growth, is_scaled = scaled, True
        if scaled is not None:
            steady_ratio = min(steady_ratio, scaled.steady_ratio)
    return replace(growth, steady_ratio=steady_ratio), is_scaled


_EMPTY = np.empty(0, dtype=np.int64)


class PackedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one rank, packed."""

    frame: Steps
    """Steps without the arrays that have one entry per step."""
    count: int
    first_start: int
    start_differences: NDArray[Any]
    duration: NDArray[Any]
    excluded: NDArray[Any]
    """Duration minus wall time."""
    fetches: NDArray[Any]
    profiled: NDArray[np.bool_]
    phase_ns: PhaseTimes
    ranges: NDArray[Any] | None
    """Durations of recorded ranges, if there are any."""

    def __len__(self) -> int:
        return self.count

    def unpack(self) -> Steps:
        """Return the steps."""
        start = self.first_start + np.cumsum(self._widen(self.start_differences))
        return replace(
            self.frame,
            start=start,
            end=start + self._widen(self.duration),
            wall_ns=self.wall_ns,
            phase_ns=self.phase_ns,
            fetches=self._widen(self.fetches),
            profiled=np.broadcast_to(self.profiled, self.count),
            range_ns=None if self.ranges is None else self._widen(self.ranges),
        )

    @property
    def wall_ns(self) -> intervals.Int:
        """As of `Steps`, without unpacking the others."""
        return self._widen(self.duration) - self._widen(self.excluded)

    def _widen(self, values: NDArray[Any]) -> intervals.Int:
        return np.broadcast_to(values.astype(np.int64), self.count)  # equal ones take no memory


def pack_steps(steps: Steps) -> PackedSteps:
    """Pack the steps of one rank; there is at least one."""
    duration = steps.end - steps.start
    return PackedSteps(
        frame=replace(
            steps,
            start=_EMPTY,
            end=_EMPTY,
            wall_ns=_EMPTY,
            phase_ns={},
            fetches=_EMPTY,
            profiled=np.empty(0, dtype=np.bool_),
            range_ns=None,
        ),
        count=len(steps),
        first_start=int(steps.start[0]),
        start_differences=pack(np.diff(steps.start, prepend=steps.start[0])),
        duration=pack(duration),
        excluded=pack(duration - steps.wall_ns),
        fetches=pack(steps.fetches),
        profiled=pack(steps.profiled),
        phase_ns=steps.phase_ns
        if isinstance(steps.phase_ns, PhaseTimes)
        else PhaseTimes(steps.phase_ns.items()),
        ranges=None if steps.range_ns is None else pack(steps.range_ns),
    )
