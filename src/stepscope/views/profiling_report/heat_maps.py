"""Heat maps of whole runs."""

from __future__ import annotations

from stepscope.analysis import nan_to_none
from stepscope.run import Bins, SampledHeatmap, build_sampled_heatmap
from stepscope.schema import METRIC_TYPES
from stepscope.views.heat_rows import MAX_CORES, name_row
from stepscope.views.profiling_report import blocks
from stepscope.views.profiling_report.building import (
    format_time,
    limit_items,
    note_omitted,
    round_figure,
    shorten,
)
from stepscope.views.profiling_report.evaluated import Evaluated

COLUMNS = 240
"""Upper limit of the columns of a heat map."""
MAX_NODES = 8
_UNITS = {"ratio": ("%", 100.0), "bytes": ("GB", 1e-9), "bytes_per_s": ("MB/s", 1e-6)}


def build_heat_maps(evaluated: Evaluated) -> list[blocks.Block]:
    """Draw one heat map per node."""
    run = evaluated.run
    nodes, more = limit_items(sorted(run.nodes), MAX_NODES, "nodes")
    heatmaps_by_node: list[blocks.Block] = []
    for node in nodes:
        width = _width(evaluated, run.nodes[node].sample_interval_ns)
        bins = Bins(start_ns=evaluated.job.start_ns, width_ns=width, count=COLUMNS)
        heat = build_sampled_heatmap(run.reader, bins, node, max_cores=MAX_CORES)
        if heat is not None:
            heatmaps_by_node.append(_block(heat, bins))
    return [*heatmaps_by_node, *note_omitted(more)]


def _width(evaluated: Evaluated, sample_interval_ns: int) -> int:
    """Return the width of a column in nanoseconds: at least two samples, so that none is empty."""
    return max(-(-evaluated.job.duration_ns // COLUMNS), 2 * sample_interval_ns, 1)


def _block(heat: SampledHeatmap, bins: Bins) -> blocks.Heatmap:
    grid = 100 * heat.shades[:, : heat.sampled_bin_count]
    return blocks.Heatmap(
        title=f"{shorten(heat.node)} over time",
        start=format_time(bins.start_ns),
        column_s=round_figure(bins.width_ns / 1e9),
        rows=[_row(heat, index, nan_to_none(grid[index])) for index in range(len(heat.rows))],
        more=f"and {heat.omitted_core_count} more cores" if heat.omitted_core_count else None,
    )


def _row(heat: SampledHeatmap, index: int, percent: list[float | None]) -> blocks.HeatmapRow:
    row = heat.rows[index]
    unit, scale = _UNITS[METRIC_TYPES[row.metric].unit]
    return blocks.HeatmapRow(
        name=shorten(name_row(row)),
        unit=unit,
        full=round_figure(row.scale * scale),
        percent=[None if value is None else round(value, 1) for value in percent],
    )
