"""Small tables of statistics: phases of steps, spans by group, use of devices, Python functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_type_hints

from stepscope.analysis import (
    DurationStatistics,
    UsageShares,
    measure_usage,
    profile_functions,
    select_samples,
    summarize_phases,
)
from stepscope.intervals import Intervals
from stepscope.run import (
    DictColumn,
    Frame,
    FrameColumns,
    NodeMetrics,
    Rank,
    Run,
    frame_of,
    read_python_profiles,
    summarize_job_spans,
)
from stepscope.schema import ProcessInfo, StackSamplerFact

_DURATIONS: dict[str, type] = get_type_hints(DurationStatistics)
_PHASE_TYPES: dict[str, type] = {"rank": str, "phase": str, "share_ratio": float, **_DURATIONS}
_USAGE_TYPES: dict[str, type] = {
    "node": str,
    "metric": str,
    "device": str,
    **get_type_hints(UsageShares),
}
_FUNCTION_TYPES: dict[str, type] = {
    "rank": str,
    "process": str,
    "function": str,
    "file": str,
    "library": str,
    "own_ratio": float,
    "total_ratio": float,
    "own_ns": int,
    "total_ns": int,
    "own_count": int,
    "total_count": int,
    "profiler": str,
    "calls": int,
    "primitive_calls": int,
}
GROUPS = ("kind", "name", "phase", "mode", "process", "rank", "role", "thread", "node", "step")
"""Columns by which spans can be grouped."""


def phase_statistics(ranks: Iterable[Rank]) -> Frame:
    """One row per rank and phase over its measured steps; shares are of their wall time."""
    rows = [
        {
            "rank": rank.name,
            "phase": phase.phase,
            "share_ratio": phase.share_ratio,
            **asdict(phase.durations),
        }
        for rank in ranks
        for phase in summarize_phases(rank.steps)
    ]
    return frame_of(rows, _PHASE_TYPES)


def span_statistics(columns: FrameColumns, by: Sequence[str]) -> Frame:
    """One row per group of spans, the largest total first; see `run.summarize_job_spans`."""
    groups = summarize_job_spans(columns, by)
    rows = [{**dict(zip(by, key, strict=True)), **asdict(group)} for key, group in groups.items()]
    types = {name: str if isinstance(columns[name], DictColumn) else int for name in by}
    return frame_of(rows, {**types, **_DURATIONS})


def usage(metrics: Mapping[str, NodeMetrics], metric: str, *, low: float, high: float) -> Frame:
    """One row per node and device with the shares of samples below, within and above a range."""
    rows = [
        {
            "node": node,
            "metric": metric,
            "device": device,
            **asdict(measure_usage(series.value, low=low, high=high)),
        }
        for node, node_metrics in sorted(metrics.items())
        for device, series in node_metrics.load(metric)[metric].items()
    ]
    return frame_of(rows, _USAGE_TYPES)


def python_profile(
    run: Run,
    ranks: Iterable[Rank],
    *,
    workers: bool,
    phase: str | None,
    steps: tuple[int, int] | None,
    top: int,
) -> Frame:
    """Profile Python functions: one row per function and process, the highest self time first.

    Shares are of the selected samples of the process, or of the own time of all functions in its
    selected profiles. Profiles are of whole processes, workers and phases apart.
    """
    rows: list[dict[str, Any]] = []
    has_profiles = phase is None and not workers
    for rank in ranks:
        for process in run.workers_of(rank.process) if workers else [rank.process]:
            samples = run.stack_samples(process)
            selected = select_samples(samples, rank.spans, rank.steps, phase=phase, within=steps)
            profile = profile_functions(samples, selected)
            total_weight = max(1, profile.weight)
            timed = bool(process.facts_of(StackSamplerFact))
            rows += [
                {
                    "rank": rank.name,
                    "process": process.process,
                    "function": function.function,
                    "file": function.file,
                    "library": function.library,
                    "own_ratio": function.own_weight / total_weight,
                    "total_ratio": function.total_weight / total_weight,
                    "own_ns": function.own_weight if timed else None,
                    "total_ns": function.total_weight if timed else None,
                    "own_count": function.own_count,
                    "total_count": function.total_count,
                    "profiler": "stepscope",
                    "calls": None,
                    "primitive_calls": None,
                }
                for function in (profile.functions[:top] if top else profile.functions)
            ]
        if has_profiles:
            within = None if steps is None else _find_extent(rank, steps)
            rows += _imported_profile(run, rank.process, within, top)
    if has_profiles and steps is None and not run.ranks:
        for process in run.processes:
            rows += _imported_profile(run, process, None, top)
    return frame_of(rows, _FUNCTION_TYPES)


def _find_extent(rank: Rank, steps: tuple[int, int]) -> Intervals:
    """Find when some steps of a rank ran."""
    selected = (rank.steps.number >= steps[0]) & (rank.steps.number < steps[1])
    return Intervals(rank.steps.start[selected], rank.steps.end[selected])


def _imported_profile(
    run: Run, process: ProcessInfo, within: Intervals | None, top: int
) -> list[dict[str, Any]]:
    """List the functions of imported profiles; see `read_python_profiles`."""
    functions = read_python_profiles(run.reader, process, within)
    return [
        {
            "rank": process.title,
            "process": process.process,
            "function": function.function,
            "file": function.file,
            "library": function.library,
            "own_ratio": function.own_ns / max(1, function.profile_own_ns),
            "total_ratio": function.total_ns / max(1, function.profile_own_ns),
            "own_ns": function.own_ns,
            "total_ns": function.total_ns,
            "own_count": None,
            "total_count": None,
            "profiler": function.profiler,
            "calls": function.calls,
            "primitive_calls": function.primitive_calls,
        }
        for function in (functions[:top] if top else functions)
    ]
