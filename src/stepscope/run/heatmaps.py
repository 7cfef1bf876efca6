"""Heat maps of nodes, aggregated by the store: one of days is as small as one of minutes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import HEATMAP_METRICS, HeatmapRow, find_full_scale
from stepscope.run.metric_bins import Bins, aggregate_samples
from stepscope.store import RunReader


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledHeatmap:
    """Metrics of one node by bin."""

    node: str
    rows: list[HeatmapRow]
    """GPUs first, then cores, memory, I/O wait, network."""
    shades: NDArray[np.float64]
    """Rows by bins, as shares of each row's `scale`; NaN where nothing was sampled."""
    omitted_core_count: int

    @property
    def sampled_bin_count(self) -> int:
        """Number of bins up to the last one with a sample."""
        return int(np.flatnonzero(~np.isnan(self.shades).all(axis=0))[-1]) + 1


def build_sampled_heatmap(
    reader: RunReader, bins: Bins, node: str, *, max_cores: int | None
) -> SampledHeatmap | None:
    """Build the heat map of one node; None without samples.

    Args:
        reader: the run.
        bins: the columns.
        node: name of the node.
        max_cores: limit of the rows of cores; None for all cores.
    """
    series = aggregate_samples(reader, bins, HEATMAP_METRICS, nodes=[node])
    series.sort(key=lambda one_series: HEATMAP_METRICS.index(one_series.metric))
    cores = [index for index, core in enumerate(series) if core.metric == "core_busy_ratio"]
    omitted = set() if max_cores is None else set(cores[max_cores:])
    shown = [one_series for index, one_series in enumerate(series) if index not in omitted]
    if not shown:
        return None
    rows = [
        HeatmapRow(
            node=node,
            metric=one_series.metric,
            device=one_series.device,
            scale=find_full_scale(one_series.metric, one_series.mean),
        )
        for one_series in shown
    ]
    shades = [one_series.mean / row.scale for one_series, row in zip(shown, rows, strict=True)]
    return SampledHeatmap(
        node=node, rows=rows, shades=np.stack(shades), omitted_core_count=len(omitted)
    )
