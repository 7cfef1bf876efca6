"""Sampling ticks: groups of samples that a sampler took together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.utilization import Metrics
from stepscope.intervals import Int

TICK_NS = 20_000_000
"""Maximum gap between consecutive samples of one tick."""
HEATMAP_TICKS = 1000
HEATMAP_METRICS = (
    "gpu_busy_ratio",
    "gpu_memory_used_ratio",
    "gpu_memory_used_bytes",
    "cpu_busy_ratio",
    "core_busy_ratio",
    "memory_used_ratio",
    "memory_used_bytes",
    "cpu_iowait_ratio",
    "network_received_bytes_per_s",
    "network_sent_bytes_per_s",
    "network_bytes",
)
"""Metrics of a heat map, from top to bottom."""


def group_into_ticks(times: Int) -> tuple[Int, Int]:
    """Group sorted sample times into ticks.

    Returns:
        The index of each tick's first sample, and the tick of each sample.
    """
    first = np.diff(times, prepend=times[:1] - TICK_NS - 1) > TICK_NS
    return np.flatnonzero(first), np.cumsum(first) - 1


def average_devices(metrics: Metrics, metric: str) -> tuple[Int, NDArray[np.float64]]:
    """Average a metric over its devices in each tick; return tick starts and means."""
    if metric not in metrics.metrics:
        return np.empty(0, dtype=np.int64), np.empty(0)
    node_device = list(metrics.devices).index("") if "" in metrics.devices else -1
    rows = metrics.metric == list(metrics.metrics).index(metric)
    rows &= metrics.device != node_device
    times, values = metrics.t_ns[rows], metrics.value[rows]
    if not len(times):
        return times, values
    first, tick = group_into_ticks(times)
    return times[first], np.bincount(tick, weights=values) / np.bincount(tick)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapRow:
    """One row of a heat map."""

    metric: str
    device: str
    scale: float
    """Value drawn in full color: 1 for a ratio, otherwise the largest value of the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap:
    """Metrics of one node over its last sampling ticks."""

    t_ns: Int
    """Start of each tick: the columns of `values`."""
    rows: list[HeatmapRow]
    """GPUs first, then cores, memory, I/O wait, network."""
    values: NDArray[np.float64]
    """Rows by ticks, in the unit of each row's metric; NaN where nothing was sampled."""

    @property
    def shades(self) -> NDArray[np.float64]:
        """`values` as shares of each row's `scale`: 0 to 1."""
        scales = np.array([row.scale for row in self.rows]).reshape(-1, 1)
        shades: NDArray[np.float64] = self.values / scales
        return shades


def build_heatmap(metrics: Metrics, last: int = HEATMAP_TICKS) -> Heatmap:
    """Build the heat map of one node over its last ticks.

    Of two samples of a metric in one tick, the later one counts.

    Args:
        metrics: samples of the node.
        last: number of ticks at most.
    """
    names, devices = list(metrics.metrics), list(metrics.devices)
    series = [(name, device) for name in HEATMAP_METRICS for device in metrics.devices_of(name)]
    rows = np.isin(metrics.metric, [names.index(name) for name, _ in series])
    times, metric_code, device_code = metrics.t_ns[rows], metrics.metric[rows], metrics.device[rows]
    first, tick = group_into_ticks(times)
    skipped = max(0, len(first) - last)
    values = np.full((len(series), len(first) - skipped), np.nan)
    for index, (name, device) in enumerate(series):
        samples = (metric_code == names.index(name)) & (device_code == devices.index(device))
        samples &= tick >= skipped
        values[index, tick[samples] - skipped] = metrics.value[rows][samples]
    return Heatmap(
        t_ns=times[first][skipped:],
        rows=[
            HeatmapRow(metric=name, device=device, scale=find_full_scale(name, values[index]))
            for index, (name, device) in enumerate(series)
        ],
        values=values,
    )


def find_full_scale(metric: str, values: NDArray[np.float64]) -> float:
    """Find the value that is drawn in full color: 1 for a ratio, otherwise the largest value."""
    if metric.endswith("_ratio"):
        return 1.0
    sampled = values[~np.isnan(values)]
    return float(sampled.max()) if len(sampled) and sampled.max() > 0 else 1.0
