"""Tables by phase of a job: when each phase was, and how the machines were used in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stepscope.access.distributions import load_devices
from stepscope.analysis import Statistics, summarize
from stepscope.intervals import EMPTY, Intervals, contains, unite
from stepscope.run import (
    PERIODS,
    Frame,
    JobStatistics,
    NodeMetrics,
    Rank,
    divide_by_phase,
    find_modes,
    find_periods,
    find_step_phases,
    frame_of,
)
from stepscope.schema import METRIC_TYPES

_INTERVAL_TYPES: dict[str, type] = {
    "rank": str,
    "phase": str,
    "part": str,
    "start_ns": int,
    "end_ns": int,
    "duration_ns": int,
}
_STATISTICS: dict[str, type] = {
    "count": int,
    **dict.fromkeys(
        ("mean", "standard_deviation", "min", "p50", "p95", "p99", "max"),
        float,
    ),
}
_UTILIZATION_TYPES: dict[str, type] = {
    "node": str,
    "metric": str,
    "unit": str,
    "device": str,
    "phase": str,
    **_STATISTICS,
}


def phase_intervals(
    ranks: Iterable[Rank], job: JobStatistics, phases: Sequence[str], *, parts: Sequence[str]
) -> Frame:
    """One row per interval of each phase, in order of time; those of all ranks have no rank.

    Args:
        parts: of `run.divide_by_phase`; `inside` for the phases themselves.
    """
    rows: list[dict[str, Any]] = []
    for title, phase, intervals in _find_phases(ranks, job, phases):
        rows += [
            {
                "rank": title,
                "phase": phase,
                "part": part,
                "start_ns": start,
                "end_ns": end,
                "duration_ns": end - start,
            }
            for part, start, end in divide_by_phase(intervals, (job.start_ns, job.end_ns))
            if part in parts
        ]
    return frame_of(rows, _INTERVAL_TYPES)


def utilization(
    metrics: Mapping[str, NodeMetrics],
    names: Sequence[str],
    phases: Sequence[str] | None,
    *,
    ranks: Sequence[Rank],
    job: JobStatistics,
) -> Frame:
    """One row per node, metric, device and phase with the distribution of the samples in it.

    A sample is in the phases in which it was taken: those of any of the ranks on its node. A phase
    without a sample has the count 0 and no other figure.

    Args:
        phases: of `run.TRAINING_PHASES`; None for all samples.
    """
    rows: list[dict[str, Any]] = []
    for node, node_metrics in sorted(metrics.items()):
        times = _find_times(ranks, job, phases, node)
        for name in names:
            for device, series in load_devices(node_metrics, name).items():
                key = {
                    "node": node,
                    "metric": name,
                    "unit": METRIC_TYPES[name].unit,
                    "device": device,
                }
                for phase, intervals in times.items():
                    values = series.value
                    if intervals is not None:
                        values = values[contains(intervals, series.t_ns)]
                    rows.append({**key, "phase": phase, **_figures(summarize(values))})
    return frame_of(rows, _UTILIZATION_TYPES)


def _figures(statistics: Statistics | None) -> dict[str, Any]:
    if statistics is None:
        return {**dict.fromkeys(_STATISTICS), "count": 0}
    figures = {name: getattr(statistics, name, None) for name in _STATISTICS}
    return {**figures, "min": statistics.minimum, "max": statistics.maximum}


def _find_times(
    ranks: Iterable[Rank], job: JobStatistics, phases: Sequence[str] | None, node: str
) -> dict[str | None, Intervals | None]:
    """Find the time of each phase on a node; None for all time."""
    if phases is None:
        return {None: None}
    times: dict[str | None, Intervals | None] = {}
    on_node = [rank for rank in ranks if rank.process.node == node]
    for phase in phases:
        by_rank = [intervals for _, _, intervals in _find_phases(on_node, job, [phase])]
        times[phase] = unite(EMPTY, *by_rank)
    return times


def _find_phases(
    ranks: Iterable[Rank], job: JobStatistics, phases: Sequence[str]
) -> Iterator[tuple[str | None, str, Intervals]]:
    """Yield the title of the rank, the phase and its time; None for the periods of the job."""
    periods = find_periods(job)
    for period in PERIODS:
        if period in phases and period in periods:
            yield None, period, periods[period]
    in_ranks = [phase for phase in phases if phase not in PERIODS]
    if in_ranks:
        for rank in ranks:
            times = {**find_modes(rank), **find_step_phases(rank)}
            for phase in in_ranks:
                yield rank.name, phase, times[phase]
