"""Samples of the machines, as columns, or aggregated by the store into bins and heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, store
from stepscope.run.frames import FrameColumns
from stepscope.run.job.times import job_borders
from stepscope.run.model.clock import ALWAYS
from stepscope.run.model.run import Run

Float = NDArray[np.float64]


class Bins(msgspec.Struct, frozen=True, kw_only=True):
    """Time divided into bins of equal width."""

    start_ns: int
    width_ns: int
    count: int

    @property
    def end_ns(self) -> int:
        """End of the last bin."""
        return self.start_ns + self.width_ns * self.count


class BinSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one device by bin; NaN where nothing was sampled."""

    node: str
    metric: str
    device: str
    mean: Float
    minimum: Float
    maximum: Float


def choose_bins(run: Run, max_count: int, *, within: tuple[int, int] | None = None) -> Bins | None:
    """Choose bins over the time of the job or the selected range; None for an empty range.

    A bin holds at least two samples, so that none is empty by chance.

    Args:
        run: the run.
        max_count: limit of the number of bins.
        within: epoch nanoseconds that the bins stay within.
    """
    start, end = job_borders(run)
    for range_start, range_end in (run.period, within or ALWAYS):
        start, end = max(start, range_start), min(end, range_end)
    intervals = [node.max_interval_ns(start, end) for node in run.nodes.values()]
    if end <= start or not intervals:
        return None
    width = max(-(-(end - start) // max_count), 2 * max(intervals), 1)
    return Bins(start_ns=start, width_ns=width, count=-(-(end - start) // width))


def aggregate_samples(
    reader: store.RunReader,
    bins: Bins,
    metrics: Sequence[str] = (),
    *,
    nodes: Sequence[str] = (),
    over_devices: bool = False,
) -> list[BinSeries]:
    """Aggregate samples by bin, per node, metric and device; series without a sample are omitted.

    Args:
        reader: the run.
        bins: the bins.
        metrics: metric names; empty for all.
        nodes: node names; empty for all.
        over_devices: aggregate all devices of a node, as device "".
    """
    conditions, names = ["t_ns >= ?", "t_ns < ?", "isfinite(value)"], [*metrics, *nodes]
    for column, values in (("metric", metrics), ("node", nodes)):
        if values:
            conditions.append(f"{column} IN ({', '.join('?' for _ in values)})")
    device = "''" if over_devices else "device"
    rows: dict[str, Any] = reader.sql(
        f"SELECT node, metric, {device} AS device, (t_ns - ?) // ? AS bin, favg(value) AS mean, "  # noqa: S608 - fixed names and question marks
        "min(value) AS minimum, max(value) AS maximum FROM metrics "
        f"WHERE {' AND '.join(conditions)} GROUP BY ALL",
        (bins.start_ns, bins.width_ns, bins.start_ns, bins.end_ns, *names),
        within=(bins.start_ns, bins.end_ns),
    )
    if not len(rows["bin"]):
        return []
    keys = list(zip(rows["node"], rows["metric"], rows["device"], strict=True))
    indexes: dict[tuple[str, str, str], int] = {}
    row = np.array([indexes.setdefault(key, len(indexes)) for key in keys])
    column = rows["bin"].astype(np.int64)
    grids = {}
    for name in ("mean", "minimum", "maximum"):
        grids[name] = np.full((len(indexes), bins.count), np.nan)
        grids[name][row, column] = rows[name]
    series = [
        BinSeries(
            node=str(node),
            metric=str(metric),
            device=str(device_name),
            mean=grids["mean"][index],
            minimum=grids["minimum"][index],
            maximum=grids["maximum"][index],
        )
        for (node, metric, device_name), index in indexes.items()
    ]
    return sorted(series, key=lambda s: (s.node, s.metric, analysis.numeric_sort_key(s.device)))


class SampledHeatmap(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics of one node by bin."""

    node: str
    rows: list[analysis.HeatmapRow]
    """GPUs first, then cores, memory, I/O wait, network."""
    shades: NDArray[np.float64]
    """Rows by bins, as shares of each row's `scale`; NaN where nothing was sampled."""
    omitted_core_count: int

    @property
    def sampled_bin_count(self) -> int:
        """Number of bins up to the last one with a sample."""
        return int(np.flatnonzero(~np.isnan(self.shades).all(axis=0))[-1]) + 1


def build_sampled_heatmap(
    reader: store.RunReader, bins: Bins, node: str, *, max_cores: int | None
) -> SampledHeatmap | None:
    """Build the heat map of one node; None without samples.

    Args:
        reader: the run.
        bins: the columns.
        node: name of the node.
        max_cores: limit of the rows of cores; None for all cores.
    """
    series = aggregate_samples(reader, bins, analysis.HEATMAP_METRICS, nodes=[node])
    series.sort(key=lambda one_series: analysis.HEATMAP_METRICS.index(one_series.metric))
    cores = [index for index, core in enumerate(series) if core.metric == "core_busy_ratio"]
    omitted = set() if max_cores is None else set(cores[max_cores:])
    shown = [one_series for index, one_series in enumerate(series) if index not in omitted]
    if not shown:
        return None
    rows = [
        analysis.HeatmapRow(
            node=node,
            metric=one_series.metric,
            device=one_series.device,
            scale=analysis.find_full_scale(one_series.metric, one_series.mean),
        )
        for one_series in shown
    ]
    shades = [one_series.mean / row.scale for one_series, row in zip(shown, rows, strict=True)]
    return SampledHeatmap(
        node=node, rows=rows, shades=np.stack(shades), omitted_core_count=len(omitted)
    )


_COLUMNS = ("t_ns", "node", "metric", "device", "value")


def read_job_samples(
    reader: store.RunReader,
    *,
    metrics: list[str] | None,
    nodes: list[str] | None,
    devices: list[str] | None,
    start_ns: int | None,
    end_ns: int | None,
) -> FrameColumns:
    """Read samples from `start_ns` until before `end_ns`, in order of time; None selects all."""
    conditions: list[str] = []
    parameters: list[object] = []
    for column, names in (("metric", metrics), ("node", nodes), ("device", devices)):
        if names is not None:
            conditions.append(f"list_contains(?, {column})")
            parameters.append(names)
    for condition, moment in (("t_ns >= ?", start_ns), ("t_ns < ?", end_ns)):
        if moment is not None:
            conditions.append(condition)
            parameters.append(moment)
    return reader.table(
        "metrics",
        columns=_COLUMNS,
        condition=" AND ".join(conditions) or None,
        parameters=parameters,
        order_by="t_ns, node, metric, device",
        encoded=("node", "metric", "device"),
    )
