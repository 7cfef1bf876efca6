"""Heat maps of whole runs."""

from __future__ import annotations

from stepscope.analysis import nan_to_none
from stepscope.run import Bins, SampledHeatmap, build_sampled_heatmap
from stepscope.schema import METRIC_TYPES
from stepscope.views.heat_rows import MAX_CORES, name_row
from stepscope.views.profiling_report import blocks
from stepscope.views.profiling_report.evaluated import Evaluated
from stepscope.views.profiling_report.words import figure, first, left_out, moment, shortened

COLUMNS = 240
"""Bins of time of a heat map, at most."""
MAX_NODES = 8
_UNITS = {"ratio": ("%", 100.0), "bytes": ("GB", 1e-9), "bytes_per_s": ("MB/s", 1e-6)}


def heatmaps(evaluated: Evaluated) -> list[blocks.Block]:
    """One heat map per node."""
    run = evaluated.run
    nodes, more = first(sorted(run.nodes), MAX_NODES, "nodes")
    heatmaps_by_node: list[blocks.Block] = []
    for node in nodes:
        width = _width(evaluated, run.nodes[node].sample_interval_ns)
        bins = Bins(start_ns=evaluated.job.start_ns, width_ns=width, count=COLUMNS)
        heat = build_sampled_heatmap(run.reader, bins, node, max_cores=MAX_CORES)
        if heat is not None:
            heatmaps_by_node.append(_block(heat, bins))
    return [*heatmaps_by_node, *left_out(more)]


def _width(evaluated: Evaluated, sample_interval_ns: int) -> int:
    """Nanoseconds of a column: two samples at least, so that none is empty for want of luck."""
    return max(-(-evaluated.job.duration_ns // COLUMNS), 2 * sample_interval_ns, 1)


def _block(heat: SampledHeatmap, bins: Bins) -> blocks.Heatmap:
    grid = 100 * heat.shades[:, : heat.sampled_bin_count]
    return blocks.Heatmap(
        title=f"{shortened(heat.node)} over time",
        start=moment(bins.start_ns),
        column_s=figure(bins.width_ns / 1e9),
        rows=[_row(heat, index, nan_to_none(grid[index])) for index in range(len(heat.rows))],
        more=f"and {heat.omitted_core_count} more cores" if heat.omitted_core_count else None,
    )


def _row(heat: SampledHeatmap, index: int, percent: list[float | None]) -> blocks.HeatmapRow:
    row = heat.rows[index]
    unit, scale = _UNITS[METRIC_TYPES[row.metric].unit]
    return blocks.HeatmapRow(
        name=shortened(name_row(row)),
        unit=unit,
        full=figure(row.scale * scale),
        percent=[None if value is None else round(value, 1) for value in percent],
    )
