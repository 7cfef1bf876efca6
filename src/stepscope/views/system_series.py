"""`system-series`: metrics of nodes over time, by metric and device."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import nan_to_none
from stepscope.run import BinSeries, Run, aggregate_samples, choose_bins
from stepscope.schema import METRIC_TYPES, field_label
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged
from stepscope.views.system_heat import explain_no_samples, select_nodes

MAX_POINTS = 600
MAX_SERIES = 240
"""Series of an answer; a node with hundreds of cores is requested by name."""
BY_NAME_ONLY = ("core_", "process_")
"""Metrics of many devices, which are only sent for a node that is requested by name."""
_ORDER = {metric: number for number, metric in enumerate(METRIC_TYPES)}


class MetricSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one device by bin of time; null where nothing was sampled."""

    metric: str
    device: str
    """Core or GPU number, disk, interface or pid; empty for the whole node."""
    unit: str
    doc: Annotated[str, field_label("meaning")]
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
    left_out_count: Annotated[int, field_label("omitted series")]
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
            for metric in METRIC_TYPES
            if _is_sent(metric, is_node_selected=options.name is not None)
        ]
        series = sorted(aggregate_samples(run.reader, bins, metrics, nodes=names), key=_rank_series)
    by_node: dict[str, list[MetricSeries]] = {}
    for metric_series in series[:MAX_SERIES]:
        by_node.setdefault(metric_series.node, []).append(_show_series(metric_series))
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


def _show_series(series: BinSeries) -> MetricSeries:
    metric_type = METRIC_TYPES[series.metric]
    return MetricSeries(
        metric=series.metric,
        device=series.device,
        unit=metric_type.unit,
        doc=metric_type.doc,
        mean=nan_to_none(series.mean),
        minimum=nan_to_none(series.minimum),
        largest=nan_to_none(series.maximum),
    )
