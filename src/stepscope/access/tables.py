"""Small tables of statistics: phases of steps, spans by group, use of devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from stepscope.access.frames import Columns, Frame, frame_of
from stepscope.analysis import PHASES
from stepscope.run import DictColumn, NodeMetrics, Rank

_DURATIONS: dict[str, type] = {
    "count": int,
    "total_ns": int,
    "mean_ns": float,
    "min_ns": int,
    "p50_ns": float,
    "p95_ns": float,
    "p99_ns": float,
    "max_ns": int,
}
_PHASE_TYPES: dict[str, type] = {"rank": str, "phase": str, "share_ratio": float, **_DURATIONS}
_USAGE_TYPES: dict[str, type] = {
    "node": str,
    "metric": str,
    "device": str,
    "count": int,
    "low_ratio": float,
    "middle_ratio": float,
    "high_ratio": float,
}
GROUPS = ("kind", "name", "phase", "process", "rank", "role", "thread", "node", "step")
"""What spans can be grouped by."""


def duration_statistics(durations: ArrayLike) -> dict[str, Any]:
    """Count, sum, mean, extremes and linear quantiles of at least one duration."""
    values = np.asarray(durations, dtype=np.int64)
    p50, p95, p99 = np.percentile(values, [50, 95, 99]).tolist()
    return {
        "count": len(values),
        "total_ns": int(values.sum()),
        "mean_ns": float(values.mean()),
        "min_ns": int(values.min()),
        "p50_ns": p50,
        "p95_ns": p95,
        "p99_ns": p99,
        "max_ns": int(values.max()),
    }


def phase_statistics(ranks: Iterable[Rank]) -> Frame:
    """One row per rank and phase over its measured steps; shares are of their wall time."""
    rows = []
    for rank in ranks:
        measured = rank.steps.measured()
        wall = int(rank.steps.wall_ns[measured].sum())
        if not wall:
            continue
        for phase in PHASES:
            times = rank.steps.phase_ns[phase][measured]
            figures = duration_statistics(times)
            share = figures["total_ns"] / wall
            rows.append({"rank": rank.name, "phase": phase, "share_ratio": share, **figures})
    return frame_of(rows, _PHASE_TYPES)


def span_statistics(columns: Columns, by: Sequence[str]) -> Frame:
    """Summarize finished spans: one row per group, the largest total first.

    Spans may be nested, so totals over groups can exceed elapsed time.
    """
    finished = ~np.ma.getmaskarray(columns["duration_ns"])
    values = {name: _objects(columns[name])[finished] for name in by}
    durations = np.ma.getdata(columns["duration_ns"])[finished]
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, key in enumerate(zip(*(v.tolist() for v in values.values()), strict=True)):
        groups.setdefault(key, []).append(number)
    rows = [
        {**dict(zip(by, key, strict=True)), **duration_statistics(durations[row_numbers])}
        for key, row_numbers in groups.items()
    ]
    rows.sort(key=lambda row: -row["total_ns"])
    types = {name: str if isinstance(columns[name], DictColumn) else int for name in by}
    return frame_of(rows, {**types, **_DURATIONS})


def _objects(column: Any) -> Any:
    if isinstance(column, DictColumn):
        return column.decode()
    objects = np.ma.getdata(column).astype(object)
    objects[np.ma.getmaskarray(column)] = None
    return objects


def usage(metrics: Mapping[str, NodeMetrics], metric: str, *, low: float, high: float) -> Frame:
    """Summarize samples: one row per node and device with the shares below, within and above."""
    rows = []
    for node, node_metrics in sorted(metrics.items()):
        loaded = node_metrics.load(metric)
        for device in loaded.devices_of(metric):
            values = loaded.series(metric, device)
            below, above = float((values < low).mean()), float((values > high).mean())
            rows.append(
                {
                    "node": node,
                    "metric": metric,
                    "device": device,
                    "count": len(values),
                    "low_ratio": below,
                    "middle_ratio": float(((values >= low) & (values <= high)).mean()),
                    "high_ratio": above,
                }
            )
    return frame_of(rows, _USAGE_TYPES)
