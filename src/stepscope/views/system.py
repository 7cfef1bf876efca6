"""`system`, `system-heat` and `system-series`: load of every node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from stepscope import analysis, errors, schema
from stepscope.run import (
    BinSeries,
    Run,
    SampledHeatmap,
    aggregate_samples,
    build_sampled_heatmap,
    choose_bins,
    names_by_pid,
)
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions, list_names


class MetricView(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one device over the whole run."""

    metric: str
    title: Annotated[str, schema.field_label("name")]
    """Name of the metric in words."""
    device: str
    """Core or GPU number, disk, interface or process; empty for the whole node."""
    unit: str
    doc: Annotated[str, schema.field_label("meaning")]
    statistics: Annotated[analysis.Statistics | None, schema.field_label(unit="inherited")]


class ChangedInterval(msgspec.Struct, frozen=True, kw_only=True):
    """Change of the sampling interval while the job ran."""

    changed_ns: Annotated[int, schema.field_label("time", unit="epoch_ns")]
    interval_ns: int
    """Interval from then on."""
    reason: str | None
    """Why the monitor changed it; null if the configuration did."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    node: str
    cpu_model: Annotated[str, schema.field_label("processor")]
    cores_total: Annotated[int, schema.field_label("total cores", unit="count")]
    cores_available: Annotated[float, schema.field_label("available cores", unit="count")]
    memory_bytes: int | None
    memory_limit_bytes: int | None
    gpus: Annotated[list[str], schema.field_label("GPUs")]
    sample_interval_ns: int
    """Sampling interval at the start of the job."""
    interval_changes: list[ChangedInterval]
    """Changes of the sampling interval; statistics weight samples by it."""
    sample_count: int
    missed_sample_count: int
    metrics: list[MetricView]
    metrics_missing: dict[str, str]


class SystemView(Ranged, frozen=True, kw_only=True):
    """Payload of `system`."""

    nodes: list[NodeView]
    missing: str | None


def show_system(run: Run, _options: ViewOptions = DEFAULTS) -> SystemView:
    """Show the load of every node."""
    nodes = [_show_node(run, name) for name in sorted(run.nodes)]
    return SystemView(nodes=nodes, missing=None if nodes else explain_no_samples(run))


def _show_node(run: Run, name: str) -> NodeView:
    info = run.nodes[name]
    metrics = run.metrics[name]
    processes = names_by_pid(run, name)
    summaries = {
        (metric, device): summary
        for metric in metrics.names
        for device, series in metrics.load(metric)[metric].items()
        if (summary := metrics.summarize(series)) is not None
    }
    rows = [
        MetricView(
            metric=metric,
            title=schema.METRIC_TYPES[metric].title,
            device=_name_device(metric, device, processes),
            unit=schema.METRIC_TYPES[metric].unit,
            doc=schema.METRIC_TYPES[metric].doc,
            statistics=summary,
        )
        for (metric, device), summary in summaries.items()
        if metric in schema.METRIC_TYPES and metric != "missed_samples"
    ]
    order = list(schema.METRIC_TYPES)
    return NodeView(
        node=name,
        cpu_model=info.cpu_model,
        cores_total=info.cores_total,
        cores_available=info.cores_available,
        memory_bytes=info.memory_bytes,
        memory_limit_bytes=info.memory_limit_bytes,
        gpus=[str(gpu.get("name", "GPU")) for gpu in info.gpus],
        sample_interval_ns=info.sample_interval_ns,
        interval_changes=[
            ChangedInterval(
                changed_ns=change.t_ns, interval_ns=change.interval_ns, reason=change.reason
            )
            for change in info.interval_changes
        ],
        sample_count=max((summary.count for summary in summaries.values()), default=0),
        missed_sample_count=int(metrics.series("missed_samples").sum()),
        metrics=sorted(rows, key=lambda row: order.index(row.metric)),
        metrics_missing=info.metrics_missing,
    )


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
    left_out_count: Annotated[int, schema.field_label("omitted metrics")]
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
    nodes = [_show_node_heat(heatmap) for heatmap in heatmaps if heatmap is not None]
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
        raise errors.UsageError(
            f"No node is called {options.name}; available: {list_names(names)}."
        )
    return [options.name]


def _show_node_heat(heatmap: SampledHeatmap) -> NodeHeatMap:
    return NodeHeatMap(
        node=heatmap.node, rows=show_heat_rows(heatmap), left_out_count=heatmap.omitted_core_count
    )


def show_heat_rows(heatmap: SampledHeatmap, bin_count: int | None = None) -> list[HeatRow]:
    """Show the rows of a heat map, of all bins or the first *bin_count*."""
    return [
        HeatRow(
            name=name_row(row),
            metric=row.metric,
            device=row.device,
            unit=schema.METRIC_TYPES[row.metric].unit,
            full=row.scale,
            shade_ratio=analysis.nan_to_none(heatmap.shades[index, :bin_count].round(4)),
        )
        for index, row in enumerate(heatmap.rows)
    ]


MAX_POINTS = 600
MAX_SERIES = 240
"""Series of an answer; a node with hundreds of cores is requested by name."""
BY_NAME_ONLY = ("core_", "process_")
"""Metrics of many devices, which are only sent for a node that is requested by name."""
_ORDER = {metric: number for number, metric in enumerate(schema.METRIC_TYPES)}


class MetricSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one device by bin of time; null where nothing was sampled."""

    metric: str
    title: Annotated[str, schema.field_label("name")]
    """Name of the metric in words."""
    device: str
    """Core or GPU number, disk, interface or process; empty for the whole node."""
    unit: str
    doc: Annotated[str, schema.field_label("meaning")]
    mean: list[float | None]
    minimum: list[float | None] = msgspec.field(name="least")
    largest: list[float | None]


class NodeSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    node: str
    series: list[MetricSeries]


class SystemSeriesView(Ranged, frozen=True, kw_only=True):
    """Payload of `system-series`."""

    start_after_ns: int
    """Start of the first bin, after the run's origin."""
    piece_ns: int
    """Width of the bins."""
    piece_count: int
    """Number of bins."""
    nodes: list[NodeSeries]
    left_out_count: Annotated[int, schema.field_label("omitted series")]
    """Series that exceed the limit and are omitted."""
    notes: list[str]
    missing: str | None


def show_system_series(run: Run, options: ViewOptions = DEFAULTS) -> SystemSeriesView:
    """Show the metrics of nodes over time."""
    names = select_nodes(run, options)
    bins = choose_bins(run, MAX_POINTS)
    series: list[BinSeries] = []
    if bins is not None:
        metrics = [
            metric
            for metric in schema.METRIC_TYPES
            if _is_sent(metric, is_node_selected=options.name is not None)
        ]
        series = sorted(aggregate_samples(run.reader, bins, metrics, nodes=names), key=_rank_series)
    processes = {node: names_by_pid(run, node) for node in names}
    by_node: dict[str, list[MetricSeries]] = {}
    for metric_series in series[:MAX_SERIES]:
        shown = _show_series(metric_series, processes[metric_series.node])
        by_node.setdefault(metric_series.node, []).append(shown)
    notes = ["select a node by name to see its cores and processes"]
    return SystemSeriesView(
        start_after_ns=0 if bins is None else bins.start_ns - run.clock.origin_ns,
        piece_ns=0 if bins is None else bins.width_ns,
        piece_count=0 if bins is None else bins.count,
        nodes=[NodeSeries(node=node, series=by_node[node]) for node in names if node in by_node],
        left_out_count=max(0, len(series) - MAX_SERIES),
        notes=notes if options.name is None and series else [],
        missing=None if series else explain_no_samples(run),
    )


def _rank_series(series: BinSeries) -> int:
    """Rank series for the limit: those of cores and processes last, in the order of the schema."""
    return _ORDER[series.metric] if series.metric.startswith(BY_NAME_ONLY) else -1


def _is_sent(metric: str, *, is_node_selected: bool) -> bool:
    return metric != "missed_samples" and (is_node_selected or not metric.startswith(BY_NAME_ONLY))


def _name_device(metric: str, device: str, processes: Mapping[int, str]) -> str:
    """Name the device of a metric: that of a process is its pid."""
    if not metric.startswith("process_") or not device.isdecimal():
        return device
    return processes.get(int(device), f"process {device}")


def _show_series(series: BinSeries, processes: Mapping[int, str]) -> MetricSeries:
    metric_type = schema.METRIC_TYPES[series.metric]
    return MetricSeries(
        metric=series.metric,
        title=metric_type.title,
        device=_name_device(series.metric, series.device, processes),
        unit=metric_type.unit,
        doc=metric_type.doc,
        mean=analysis.nan_to_none(series.mean),
        minimum=analysis.nan_to_none(series.minimum),
        largest=analysis.nan_to_none(series.maximum),
    )


MAX_CORES = 32
"""Cores that a heat map shows unless the node is selected by name."""
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


def name_row(row: analysis.HeatmapRow) -> str:
    """Name a row of a heat map."""
    return _NAMES[row.metric].format(row.device).strip()
