"""Rounds of sampling: which samples were taken together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.utilization import Metrics
from stepscope.intervals import Int

SWEEP_NS = 20_000_000
"""Samples of one round lie no further apart than this."""
HEATMAP_SWEEPS = 1000
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
"""Metrics of a heat map from top to bottom."""


def sweeps(times: Int) -> tuple[Int, Int]:
    """Of sorted times: where each sweep begins, and the sweep of every time."""
    first = np.diff(times, prepend=times[:1] - SWEEP_NS - 1) > SWEEP_NS
    return np.flatnonzero(first), np.cumsum(first) - 1


def mean_of_devices(metrics: Metrics, metric: str) -> tuple[Int, NDArray[np.float64]]:
    """The mean over a metric's devices in each sweep: start of the sweep, and mean."""
    if metric not in metrics.metrics:
        return np.empty(0, dtype=np.int64), np.empty(0)
    whole = list(metrics.devices).index("") if "" in metrics.devices else -1
    chosen = (metrics.metric == list(metrics.metrics).index(metric)) & (metrics.device != whole)
    times, values = metrics.t_ns[chosen], metrics.value[chosen]
    if not len(times):
        return times, values
    first, sweep = sweeps(times)
    return times[first], np.bincount(sweep, weights=values) / np.bincount(sweep)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapRow:
    """One row of a heat map."""

    metric: str
    device: str
    scale: float
    """The value that is full colour: 1 for a ratio, else the row's own largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap:
    """What one node did, metric by metric, over its last sweeps of samples."""

    t_ns: Int
    """Start of each sweep: the columns of `values`."""
    rows: list[HeatmapRow]
    """GPUs first, then cores, memory, waiting for disks, network."""
    values: NDArray[np.float64]
    """Rows by columns, in the unit of each row's metric; NaN where nothing was sampled."""

    @property
    def shades(self) -> NDArray[np.float64]:
        """The same as shares of each row's `scale`: 0 to 1."""
        scales = np.array([row.scale for row in self.rows]).reshape(-1, 1)
        shades: NDArray[np.float64] = self.values / scales
        return shades


def heatmap(metrics: Metrics, last: int = HEATMAP_SWEEPS) -> Heatmap:
    """The heat map of one node over its last sweeps. A row that was sampled twice in a sweep has
    its later value."""
    names, devices = list(metrics.metrics), list(metrics.devices)
    wanted = [(metric, each) for metric in HEATMAP_METRICS for each in metrics.devices_of(metric)]
    kept = np.isin(metrics.metric, [names.index(m) for m, _ in wanted])
    times, metric, device = metrics.t_ns[kept], metrics.metric[kept], metrics.device[kept]
    first, sweep = sweeps(times)
    skipped = max(0, len(first) - last)
    values = np.full((len(wanted), len(first) - skipped), np.nan)
    for place, (name, whose) in enumerate(wanted):
        own = (metric == names.index(name)) & (device == devices.index(whose)) & (sweep >= skipped)
        values[place, sweep[own] - skipped] = metrics.value[kept][own]
    return Heatmap(
        t_ns=times[first][skipped:],
        rows=[
            HeatmapRow(metric=name, device=whose, scale=full_colour(name, values[place]))
            for place, (name, whose) in enumerate(wanted)
        ],
        values=values,
    )


def full_colour(metric: str, values: NDArray[np.float64]) -> float:
    """The value of a metric that has the full colour of its row."""
    if metric.endswith("_ratio"):
        return 1.0
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) and known.max() > 0 else 1.0
