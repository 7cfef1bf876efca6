"""`system-heat`: all sampled metrics of nodes, as one heat map per node."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import nan_to_none
from stepscope.errors import UsageError
from stepscope.run import Run, SampledHeatmap, build_sampled_heatmap, choose_bins
from stepscope.schema import METRIC_TYPES, field_label
from stepscope.views.heat_rows import MAX_CORES, name_row
from stepscope.views.names import list_names
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged

MAX_COLUMNS = 400
MAX_NODES = 8
NOT_MONITORED = "no node was monitored: run the job with `stepscope run -- CMD`"
NOT_IN_FILES = "the imported files contain no samples of machines"


class HeatRow(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one device."""

    name: str
    metric: str
    device: str
    """Core or GPU number, disk or interface; empty for the whole node."""
    unit: str
    full: float
    """Value of full color: 1 for ratios, otherwise the largest mean of the row."""
    shade_ratio: list[float | None]
    """Mean of each column as a share of `full`; null where nothing was sampled."""


class NodeHeatMap(msgspec.Struct, frozen=True, kw_only=True):
    """One node: GPUs first, then cores, memory, I/O wait, network."""

    node: str
    rows: list[HeatRow]
    left_out_count: Annotated[int, field_label("omitted metrics")]
    """Omitted cores after the first 32; select the node by name to see all cores."""


class SystemHeatView(Ranged, frozen=True, kw_only=True):
    """Payload of `system-heat`."""

    start_after_ns: int
    """Start of the first column, after the run's origin."""
    column_ns: int
    nodes: list[NodeHeatMap]
    left_out_nodes: list[str]
    """Omitted nodes; select a node by name to see it."""
    missing: str | None


def show_system_heat(run: Run, options: ViewOptions = DEFAULTS) -> SystemHeatView:
    """Show all sampled metrics of nodes as heat maps."""
    names = select_nodes(run, options)
    bins = choose_bins(run, MAX_COLUMNS)
    if bins is None:
        return SystemHeatView(
            start_after_ns=0,
            column_ns=0,
            nodes=[],
            left_out_nodes=[],
            missing=explain_no_samples(run),
        )
    max_cores = MAX_CORES if options.name is None else None
    heatmaps = [
        build_sampled_heatmap(run.reader, bins, node, max_cores=max_cores)
        for node in names[:MAX_NODES]
    ]
    nodes = [_show_node(heatmap) for heatmap in heatmaps if heatmap is not None]
    return SystemHeatView(
        start_after_ns=bins.start_ns - run.clock.origin_ns,
        column_ns=bins.width_ns,
        nodes=nodes,
        left_out_nodes=names[MAX_NODES:],
        missing=None if nodes else explain_no_samples(run),
    )


def explain_no_samples(run: Run) -> str:
    """Explain why a run has no samples of nodes."""
    return NOT_IN_FILES if run.is_imported else NOT_MONITORED


def select_nodes(run: Run, options: ViewOptions) -> list[str]:
    """Select all nodes, or the one that is requested by name.

    Raises:
        UsageError: no node has that name.
    """
    names = sorted(run.nodes)
    if options.name is None:
        return names
    if options.name not in names:
        raise UsageError(f"No node is called {options.name}; available: {list_names(names)}.")
    return [options.name]


def _show_node(heatmap: SampledHeatmap) -> NodeHeatMap:
    return NodeHeatMap(
        node=heatmap.node,
        rows=show_heat_rows(heatmap),
        left_out_count=heatmap.omitted_core_count,
    )


def show_heat_rows(heatmap: SampledHeatmap, bin_count: int | None = None) -> list[HeatRow]:
    """Show the rows of a heat map, of all bins or the first *bin_count*."""
    return [
        HeatRow(
            name=name_row(row),
            metric=row.metric,
            device=row.device,
            unit=METRIC_TYPES[row.metric].unit,
            full=row.scale,
            shade_ratio=nan_to_none(heatmap.shades[index, :bin_count].round(4)),
        )
        for index, row in enumerate(heatmap.rows)
    ]
