"""Small tables: statistics of phases, spans and devices, times of phases, histograms."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_type_hints

import msgspec
from msgspec.structs import asdict

from stepscope import analysis, run, schema
from stepscope.intervals import EMPTY, Intervals, contains, unite

_DURATIONS: dict[str, type] = get_type_hints(analysis.DurationStatistics)
_PHASE_TYPES: dict[str, type] = {"rank": str, "phase": str, "share_ratio": float, **_DURATIONS}
_USAGE_TYPES: dict[str, type] = {
    "node": str,
    "metric": str,
    "device": str,
    **get_type_hints(analysis.UsageShares),
}
GROUPS = ("kind", "name", "phase", "mode", "process", "rank", "role", "thread", "node", "step")
"""Columns by which spans can be grouped."""


def phase_statistics(ranks: Iterable[run.Rank]) -> run.Frame:
    """One row per rank and phase over its measured steps; shares are of their wall time."""
    rows = [
        {
            "rank": rank.name,
            "phase": phase.phase,
            "share_ratio": phase.share_ratio,
            **asdict(phase.durations),
        }
        for rank in ranks
        for phase in analysis.summarize_phases(rank.steps)
    ]
    return run.frame_of(rows, _PHASE_TYPES)


def span_statistics(columns: run.FrameColumns, by: Sequence[str]) -> run.Frame:
    """One row per group of spans, the largest total first; see `run.summarize_job_spans`."""
    groups = run.summarize_job_spans(columns, by)
    rows = [{**dict(zip(by, key, strict=True)), **asdict(group)} for key, group in groups.items()]
    types = {name: str if isinstance(columns[name], run.DictColumn) else int for name in by}
    return run.frame_of(rows, {**types, **_DURATIONS})


def usage(
    metrics: Mapping[str, run.NodeMetrics], metric: str | None, *, low: float, high: float
) -> run.Frame:
    """One row per node and device with the shares of samples below, within and above a range.

    Without a metric, the devices of a node are its GPUs, or else its cores.
    """
    names = ("gpu_busy_ratio", "core_busy_ratio") if metric is None else (metric,)
    rows = []
    for node, node_metrics in sorted(metrics.items()):
        sampled = ((name, node_metrics.load(name)[name]) for name in names)
        name, devices = next(((n, d) for n, d in sampled if d), (names[0], {}))
        rows += [
            {
                "node": node,
                "metric": name,
                "device": device,
                **asdict(analysis.measure_usage(series.value, low=low, high=high)),
            }
            for device, series in devices.items()
        ]
    return run.frame_of(rows, _USAGE_TYPES)


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
    **dict.fromkeys(("mean", "standard_deviation", "min", "p50", "p95", "p99", "max"), float),
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
    ranks: Iterable[run.Rank],
    job: run.JobStatistics,
    phases: Sequence[str],
    *,
    parts: Sequence[str],
) -> run.Frame:
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
            for part, start, end in run.divide_by_phase(intervals, (job.start_ns, job.end_ns))
            if part in parts
        ]
    return run.frame_of(rows, _INTERVAL_TYPES)


_TIME_TYPES: dict[str, type] = {
    "rank": str,
    "key": str,
    "start_ns": int,
    "end_ns": int,
    "duration_ns": int,
}


def job_time_intervals(time: run.JobTime, rank: int | None) -> run.Frame:
    """One row per piece of the time of a rank, or of all ranks for None."""
    rows = [
        {"rank": one.name, "key": key, "start_ns": start, "end_ns": end, "duration_ns": end - start}
        for one in time.ranks
        if rank is None or one.rank in {None, rank}
        for key, start, end in one.list_pieces()
    ]
    return run.frame_of(rows, _TIME_TYPES)


_PROCESS_TYPES: dict[str, type] = {
    "node": str,
    "name": str,
    "pid": int,
    "anonymous_bytes": float,
    "peak_bytes": float,
    "private_bytes": float,
    "growth_bytes_per_hour": float,
}


def host_memory_processes(nodes: Sequence[run.NodeMemory]) -> run.Frame:
    """One row per process, by node and peak."""
    rows = []
    for memory in nodes:
        growing = {one.pid: one.trend.per_hour.value for one in memory.growth.processes}
        rows += [
            {
                "node": memory.node,
                "name": process.name,
                "pid": process.pid,
                "anonymous_bytes": process.latest_bytes["process_anonymous_bytes"],
                "peak_bytes": process.peak_bytes,
                "private_bytes": process.latest_bytes.get("process_private_bytes"),
                "growth_bytes_per_hour": growing.get(process.pid),
            }
            for process in memory.processes
        ]
    return run.frame_of(rows, _PROCESS_TYPES)


def utilization(
    metrics: Mapping[str, run.NodeMetrics],
    names: Sequence[str],
    phases: Sequence[str] | None,
    *,
    ranks: Sequence[run.Rank],
    job: run.JobStatistics,
) -> run.Frame:
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
                    "unit": schema.METRIC_TYPES[name].unit,
                    "device": device,
                }
                for phase, intervals in times.items():
                    values = series.value
                    if intervals is not None:
                        values = values[contains(intervals, series.t_ns)]
                    rows.append({**key, "phase": phase, **_figures(analysis.summarize(values))})
    return run.frame_of(rows, _UTILIZATION_TYPES)


def _figures(statistics: analysis.Statistics | None) -> dict[str, Any]:
    if statistics is None:
        return {**dict.fromkeys(_STATISTICS), "count": 0}
    figures = {name: getattr(statistics, name, None) for name in _STATISTICS}
    return {**figures, "min": statistics.minimum, "max": statistics.maximum}


def _find_times(
    ranks: Iterable[run.Rank], job: run.JobStatistics, phases: Sequence[str] | None, node: str
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
    ranks: Iterable[run.Rank], job: run.JobStatistics, phases: Sequence[str]
) -> Iterator[tuple[str | None, str, Intervals]]:
    """Yield the title of the rank, the phase and its time; None for the periods of the job."""
    periods = run.find_periods(job)
    for period in run.PERIODS:
        if period in phases and period in periods:
            yield None, period, periods[period]
    in_ranks = [phase for phase in phases if phase not in run.PERIODS]
    if in_ranks:
        for rank in ranks:
            times = {**run.find_modes(rank), **run.find_step_phases(rank)}
            for phase in in_ranks:
                yield rank.name, phase, times[phase]


MEAN = "mean"
"""The device of the mean over all devices of a metric."""


class MetricHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one device."""

    node: str
    metric: str
    device: str
    """Empty for a metric of the whole node, `mean` for the mean over its devices."""
    unit: str
    histogram: analysis.Histogram
    distribution: analysis.Statistics


class MetricsHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """Histograms of sampled metric values.

    A GPU with most samples between 0.8 and 0.9 is kept busy; different histograms of GPUs mean
    different work.
    """

    series: list[MetricHistogram]
    """By node, metric and device; series without a sample are omitted."""


def load_devices(metrics: run.NodeMetrics, name: str) -> dict[str, analysis.Series]:
    """Load the samples of a metric by device; of several devices, also their mean at each tick,
    unless the mean itself was sampled."""
    series = dict(metrics.load(name)[name])
    if len(series) > 1 and "" not in series:
        series[MEAN] = analysis.average_devices(series)
    return series


def metrics_histogram(
    metrics: Mapping[str, run.NodeMetrics],
    *,
    names: list[str],
    devices: list[str] | None,
    bin_width: float = analysis.RATIO_BIN,
) -> MetricsHistogram:
    """Build histograms of metrics by node.

    Ratios have bins from 0 to 1, other metrics fifty bins from minimum to maximum; devices of one
    metric and node share the bins.
    """
    histograms = []
    for node, node_metrics in sorted(metrics.items()):
        for name in names:
            samples = load_devices(node_metrics, name)
            series = {device: one.value for device, one in samples.items()}
            edges = _edges(name, series.values(), bin_width)
            if edges is None:
                continue
            for device, values in series.items():
                summary = analysis.summarize(values)
                if summary is not None and (devices is None or device in devices):
                    histograms.append(
                        MetricHistogram(
                            node=node,
                            metric=name,
                            device=device,
                            unit=schema.METRIC_TYPES[name].unit,
                            histogram=analysis.build_histogram(values, edges),
                            distribution=summary,
                        )
                    )
    return MetricsHistogram(series=histograms)


def _edges(metric: str, series: Collection[analysis.Float], width: float) -> analysis.Float | None:
    if series and schema.METRIC_TYPES[metric].unit == "ratio":
        return analysis.make_ratio_edges(width)
    return analysis.make_range_edges(*series)


class RankHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of one rank, in nanoseconds."""

    rank: str
    histogram: analysis.Histogram
    distribution: analysis.Statistics


class StepHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """Histogram of the durations of steps or of one phase, in nanoseconds.

    Bins reach from the shortest duration to the median plus two standard deviations; longer ones
    are in `over_count`.
    """

    phase: str | None
    """None for whole steps."""
    series: list[RankHistogram]
    """By rank; all have the same bins."""


def step_histogram(
    ranks: Iterable[run.Rank], *, phase: str | None = None, bins: int = analysis.DURATION_BINS
) -> StepHistogram:
    """Build histograms of all complete steps of some ranks, without evaluation time."""
    durations = {
        rank.name: rank.steps.duration_ns if phase is None else rank.steps.phase_ns[phase]
        for rank in ranks
    }
    edges = analysis.make_duration_edges(*durations.values(), bins=bins)
    series = []
    for name, values in durations.items():
        summary = analysis.summarize(values)
        if summary is not None and edges is not None:
            counted = analysis.build_histogram(values, edges)
            series.append(RankHistogram(rank=name, histogram=counted, distribution=summary))
    return StepHistogram(phase=phase, series=series)
