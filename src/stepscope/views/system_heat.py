"""`system-heat`: everything that machines did, as one picture per machine."""

from __future__ import annotations

import msgspec

from stepscope.analysis import nan_to_none
from stepscope.errors import UsageError
from stepscope.run import Run, choose_bins
from stepscope.schema import METRIC_TYPES
from stepscope.views.heat_rows import MOST_CORES, NodeHeat, node_heat, row_name
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged

COLUMNS = 400
MOST_NODES = 8
NOT_MONITORED = "no node has been monitored: run the job with `stepscope run`"


class HeatRow(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one device."""

    name: str
    metric: str
    device: str
    """Core or GPU number, disk or interface; empty for the whole node."""
    unit: str
    full: float
    """What is full colour: 1 for ratios, else the row's own largest mean."""
    shade_ratio: list[float | None]
    """Mean of each column, as a share of `full`; null where nothing was sampled."""


class NodeHeatMap(msgspec.Struct, frozen=True, kw_only=True):
    """One machine: GPUs first, then cores, memory, waiting for disks, network."""

    node: str
    rows: list[HeatRow]
    left_out_count: int
    """Cores after the first 32, which are shown when the node is asked for by name."""


class SystemHeatView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    start_after_ns: int
    """Start of the first column, after the run's origin."""
    column_ns: int
    nodes: list[NodeHeatMap]
    left_out_nodes: list[str]
    """Which are shown when they are asked for by name."""
    missing: str | None


def system_heat(run: Run, options: ViewOptions = DEFAULTS) -> SystemHeatView:
    """Everything that machines did, as one picture per machine."""
    names = chosen_nodes(run, options)
    bins = choose_bins(run, COLUMNS)
    if bins is None:
        return SystemHeatView(
            start_after_ns=0, column_ns=0, nodes=[], left_out_nodes=[], missing=NOT_MONITORED
        )
    most = MOST_CORES if options.name is None else None
    heats = [node_heat(run.reader, bins, node, most_cores=most) for node in names[:MOST_NODES]]
    found = [_node(heat) for heat in heats if heat is not None]
    return SystemHeatView(
        start_after_ns=bins.start_ns - run.clock.origin_ns,
        column_ns=bins.width_ns,
        nodes=found,
        left_out_nodes=names[MOST_NODES:],
        missing=None if found else NOT_MONITORED,
    )


def chosen_nodes(run: Run, options: ViewOptions) -> list[str]:
    """All machines, or the one that is asked for; UsageError when there is none of its name."""
    names = sorted(run.nodes)
    if options.name is None:
        return names
    if options.name not in names:
        raise UsageError(f"No node is called {options.name}; there are {', '.join(names[:8])}.")
    return [options.name]


def _node(heat: NodeHeat) -> NodeHeatMap:
    return NodeHeatMap(
        node=heat.node,
        rows=[
            HeatRow(
                name=row_name(row),
                metric=row.metric,
                device=row.device,
                unit=METRIC_TYPES[row.metric].unit,
                full=row.scale,
                shade_ratio=nan_to_none(heat.shades[place].round(4)),
            )
            for place, row in enumerate(heat.rows)
        ],
        left_out_count=heat.left_out_count,
    )
