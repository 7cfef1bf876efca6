"""Sampling ticks: groups of samples that a sampler took together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.series import Series, merge_series
from stepscope.intervals import EMPTY, Int

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


def average_devices(devices: Mapping[str, Series]) -> Series:
    """Average a metric over its numbered devices in each tick; times are the ticks' starts."""
    samples = merge_series(series for number, series in devices.items() if number)
    first, tick = group_into_ticks(samples.t_ns)
    return Series(samples.t_ns[first], np.bincount(tick, weights=samples.value) / np.bincount(tick))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapRow:
    """One row of a heat map."""

    node: str
    metric: str
    device: str
    scale: float
    """Value drawn in full color: 1 for a ratio, otherwise the largest value of the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap:
    """Metrics of nodes over their last sampling ticks."""

    t_ns: Int
    """Start of each tick: the columns of `values`. Of several nodes, the ticks of the one with most
    samples."""
    rows: list[HeatmapRow]
    """By node; GPUs first, then cores, memory, I/O wait, network."""
    values: NDArray[np.float64]
    """Rows by ticks, in the unit of each row's metric; NaN where nothing was sampled."""

    @property
    def shades(self) -> NDArray[np.float64]:
        """`values` as shares of each row's `scale`: 0 to 1."""
        scales = np.array([row.scale for row in self.rows]).reshape(-1, 1)
        shades: NDArray[np.float64] = self.values / scales
        return shades


def build_heatmap(
    samples: Mapping[str, Mapping[str, Mapping[str, Series]]], last: int = HEATMAP_TICKS
) -> Heatmap:
    """Build the heat map of nodes over their last ticks.

    Of two samples of a metric in one tick, the later one counts.

    Args:
        samples: by node, metric and device.
        last: number of ticks at most.
    """
    lines = [
        (node, name, device, series)
        for node, metrics in samples.items()
        for name in HEATMAP_METRICS
        for device, series in metrics.get(name, {}).items()
    ]
    times_by_node = [
        merge_series(series for owner, *_, series in lines if owner == node).t_ns
        for node in samples
    ]
    starts_by_node = [times[group_into_ticks(times)[0]] for times in times_by_node]
    starts = max(starts_by_node, key=len, default=EMPTY.start)
    starts = starts[max(0, len(starts) - last) :]
    values = np.full((len(lines), len(starts)), np.nan)
    for row, (*_, series) in enumerate(lines):
        tick = np.searchsorted(starts, series.t_ns, side="right") - 1
        values[row, tick[tick >= 0]] = series.value[tick >= 0]
    return Heatmap(
        t_ns=starts,
        rows=[
            HeatmapRow(
                node=node, metric=name, device=device, scale=find_full_scale(name, values[row])
            )
            for row, (node, name, device, _) in enumerate(lines)
        ],
        values=values,
    )


def find_full_scale(metric: str, values: NDArray[np.float64]) -> float:
    """Find the value that is drawn in full color: 1 for a ratio, otherwise the largest value."""
    if metric.endswith("_ratio"):
        return 1.0
    sampled = values[~np.isnan(values)]
    return float(sampled.max()) if len(sampled) and sampled.max() > 0 else 1.0
