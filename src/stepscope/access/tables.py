"""Small tables of statistics: phases of steps, spans by group, use of devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import get_type_hints

from stepscope.analysis import (
    DurationStatistics,
    UsageShares,
    measure_usage,
    summarize_phases,
)
from stepscope.run import (
    DictColumn,
    Frame,
    FrameColumns,
    NodeMetrics,
    Rank,
    frame_of,
    summarize_job_spans,
)

_DURATIONS: dict[str, type] = get_type_hints(DurationStatistics)
_PHASE_TYPES: dict[str, type] = {"rank": str, "phase": str, "share_ratio": float, **_DURATIONS}
_USAGE_TYPES: dict[str, type] = {
    "node": str,
    "metric": str,
    "device": str,
    **get_type_hints(UsageShares),
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
