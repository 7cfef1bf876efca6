"""Heat maps of whole runs, thinned out by the engine: one of days is as small as one of minutes."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepscope.analysis.sweeps import HEATMAP_METRICS, Heatmap, HeatmapRow, heatmap
from stepscope.analysis.utilization import Metrics
from stepscope.schema import METRIC_TYPES
from stepscope.store import RunReader
from stepscope.views.report import blocks
from stepscope.views.report.evaluated import Evaluated
from stepscope.views.report.words import figure, first, left_out, moment, shortened

COLUMNS = 240
"""Pieces of time of a heat map, at most."""
MOST_NODES = 8
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
_UNITS = {"ratio": ("%", 100.0), "bytes": ("GB", 1e-9), "bytes_per_s": ("MB/s", 1e-6)}


def heatmaps(evaluated: Evaluated) -> list[blocks.Block]:
    """One heat map per node."""
    signals = evaluated.signals
    nodes, more = first(sorted(signals.nodes), MOST_NODES, "nodes")
    found: list[blocks.Block] = []
    for node in nodes:
        width = _width(evaluated, signals.nodes[node].sample_interval_ns)
        means = _means(signals.reader, node, evaluated.job.start_ns, width)
        if len(means.t_ns):
            found.append(_block(node, heatmap(means, last=COLUMNS), evaluated.job.start_ns, width))
    return [*found, *left_out(more)]


def _width(evaluated: Evaluated, sample_interval_ns: int) -> int:
    """Nanoseconds of a column: two samples at least, so that none is empty for want of luck."""
    return max(-(-evaluated.job.duration_ns // COLUMNS), 2 * sample_interval_ns, 1)


def _means(reader: RunReader, node: str, start_ns: int, width_ns: int) -> Metrics:
    """The mean of every metric and device in each piece of time, as samples at its beginning."""
    marks = ", ".join("?" for _ in HEATMAP_METRICS)
    rows: dict[str, Any] = reader.sql(
        "SELECT metric, device, (t_ns - ?) // ? AS piece, avg(value) AS value FROM metrics "  # noqa: S608 - only question marks are put in
        f"WHERE node = ? AND metric IN ({marks}) AND t_ns >= ? AND t_ns < ? AND isfinite(value) "
        "GROUP BY ALL ORDER BY piece",
        (start_ns, width_ns, node, *HEATMAP_METRICS, start_ns, start_ns + COLUMNS * width_ns),
    )
    metrics, metric = np.unique(rows["metric"].astype(str), return_inverse=True)
    devices, device = np.unique(rows["device"].astype(str), return_inverse=True)
    return Metrics(
        t_ns=start_ns + rows["piece"].astype(np.int64) * width_ns,
        metric=metric.astype(np.int32),
        metrics=metrics.tolist(),
        device=device.astype(np.int32),
        devices=devices.tolist(),
        value=rows["value"].astype(np.float64),
    )


def _block(node: str, found: Heatmap, start_ns: int, width_ns: int) -> blocks.Heatmap:
    places = ((found.t_ns - start_ns) // width_ns).astype(np.int64)
    grid = np.full((len(found.rows), int(places[-1]) + 1), np.nan)
    grid[:, places] = 100 * found.shades
    kept = [place for place, row in enumerate(found.rows) if not _is_further_core(row)]
    left = len(found.rows) - len(kept)
    return blocks.Heatmap(
        title=f"{shortened(node)} over time",
        start=moment(start_ns),
        column_s=figure(width_ns / 1e9),
        rows=[_row(found, place, grid[place]) for place in kept],
        more=f"and {left} more cores" if left else None,
    )


def _is_further_core(row: HeatmapRow) -> bool:
    core = row.metric == "core_busy_ratio" and row.device.isdecimal()
    return core and int(row.device) >= MOST_CORES


def _row(found: Heatmap, place: int, percent: Any) -> blocks.HeatmapRow:
    row = found.rows[place]
    unit, scale = _UNITS[METRIC_TYPES[row.metric].unit]
    name = _NAMES[row.metric].format(row.device).strip()
    return blocks.HeatmapRow(
        name=shortened(name),
        unit=unit,
        full=figure(row.scale * scale),
        percent=[None if np.isnan(value) else round(float(value), 1) for value in percent],
    )
