"""Rows of heat maps, thinned out by the engine: one of days is as small as one of minutes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import HEATMAP_METRICS, HeatmapRow, find_full_scale
from stepscope.run import Bins, aggregate_samples
from stepscope.store import RunReader

MOST_CORES = 32
_NAMES = {
    "gpu_busy_ratio": "GPU {} utilisation",
    "gpu_memory_used_ratio": "GPU {} memory",
    "gpu_memory_used_bytes": "GPU {} memory",
    "cpu_busy_ratio": "CPU",
    "core_busy_ratio": "core {}",
    "memory_used_ratio": "memory",
    "memory_used_bytes": "memory",
    "cpu_iowait_ratio": "I/O wait",
    "network_received_bytes_per_s": "received {}",
    "network_sent_bytes_per_s": "sent {}",
    "network_bytes": "network {}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHeat:
    """What one node did, piece by piece."""

    node: str
    rows: list[HeatmapRow]
    """GPUs first, then cores, memory, waiting for disks, network."""
    shades: NDArray[np.float64]
    """Rows by bins, as shares of each row's full colour; NaN where nothing was sampled."""
    left_out_count: int
    """Cores that are not among the rows."""


def node_heat(
    reader: RunReader, bins: Bins, node: str, *, most_cores: int | None = MOST_CORES
) -> NodeHeat | None:
    """The heat map of one node; None where nothing of it was sampled.

    Args:
        reader: the run.
        bins: the columns.
        node: name of the machine.
        most_cores: rows of cores, None for all of them.
    """
    found = aggregate_samples(reader, bins, HEATMAP_METRICS, nodes=[node])
    found.sort(key=lambda series: HEATMAP_METRICS.index(series.metric))
    cores = [series for series in found if series.metric == "core_busy_ratio"]
    left_out = {id(series) for series in cores[most_cores:]} if most_cores is not None else set()
    kept = [series for series in found if id(series) not in left_out]
    if not kept:
        return None
    rows = [
        HeatmapRow(
            metric=series.metric,
            device=series.device,
            scale=find_full_scale(series.metric, series.mean),
        )
        for series in kept
    ]
    shades = [series.mean / row.scale for series, row in zip(kept, rows, strict=True)]
    return NodeHeat(node=node, rows=rows, shades=np.stack(shades), left_out_count=len(left_out))


def row_name(row: HeatmapRow) -> str:
    """What a row is called."""
    return _NAMES[row.metric].format(row.device).strip()
