"""Samples of nodes, aggregated by the store into bins of time: a day draws as fast as a minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import numeric_sort_key
from stepscope.run.job_times import job_borders
from stepscope.run.period import ALWAYS
from stepscope.run.run import Run
from stepscope.store import RunReader

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Time divided into bins of equal width."""

    start_ns: int
    width_ns: int
    count: int

    @property
    def end_ns(self) -> int:
        """End of the last bin."""
        return self.start_ns + self.width_ns * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class BinSeries:
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
    reader: RunReader,
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
        f"SELECT node, metric, {device} AS device, (t_ns - ?) // ? AS bin, avg(value) AS mean, "  # noqa: S608 - fixed names and question marks
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
    return sorted(series, key=lambda s: (s.node, s.metric, numeric_sort_key(s.device)))
