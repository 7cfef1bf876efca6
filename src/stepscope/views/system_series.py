"""`system-series`: what machines did over time, metric by metric and device by device."""

from __future__ import annotations

import msgspec

from stepscope.analysis import nan_to_none
from stepscope.run import BinSeries, Run, aggregate_samples, choose_bins
from stepscope.schema import METRIC_TYPES
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged
from stepscope.views.system_heat import NOT_MONITORED, chosen_nodes

POINTS = 600
MOST_SERIES = 240
"""Of an answer: a machine with hundreds of cores is asked for by name, and metric by metric."""
BY_NAME_ONLY = ("core_", "process_")
"""Metrics of many devices, which are only sent for a node that is asked for by name."""


class MetricSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one device, piece by piece; null where nothing was sampled."""

    metric: str
    device: str
    """Core or GPU number, disk, interface or pid; empty for the whole node."""
    unit: str
    doc: str
    mean: list[float | None]
    least: list[float | None]
    largest: list[float | None]


class NodeSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One machine."""

    node: str
    series: list[MetricSeries]


class SystemSeriesView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    start_after_ns: int
    """Start of the first piece, after the run's origin."""
    piece_ns: int
    piece_count: int
    nodes: list[NodeSeries]
    left_out_count: int
    """Series that are not sent, because the answer would have become too long."""
    notes: list[str]
    missing: str | None


def system_series(run: Run, options: ViewOptions = DEFAULTS) -> SystemSeriesView:
    """What machines did over time."""
    names = chosen_nodes(run, options)
    bins = choose_bins(run, POINTS)
    found: list[BinSeries] = []
    if bins is not None:
        found = aggregate_samples(
            run.reader,
            bins,
            [m for m in METRIC_TYPES if _is_sent(m, by_name=options.name is not None)],
            nodes=names,
        )
    shown = found[:MOST_SERIES]
    return SystemSeriesView(
        start_after_ns=0 if bins is None else bins.start_ns - run.clock.origin_ns,
        piece_ns=0 if bins is None else bins.width_ns,
        piece_count=0 if bins is None else bins.count,
        nodes=[
            NodeSeries(node=node, series=own)
            for node in names
            if (own := [_series(each) for each in shown if each.node == node])
        ],
        left_out_count=len(found) - len(shown),
        notes=[]
        if options.name is not None or not found
        else ["cores and processes are shown for a node that is asked for by name"],
        missing=None if found else NOT_MONITORED,
    )


def _is_sent(metric: str, *, by_name: bool) -> bool:
    return metric != "missed_samples" and (by_name or not metric.startswith(BY_NAME_ONLY))


def _series(found: BinSeries) -> MetricSeries:
    kind = METRIC_TYPES[found.metric]
    return MetricSeries(
        metric=found.metric,
        device=found.device,
        unit=kind.unit,
        doc=kind.doc,
        mean=nan_to_none(found.mean),
        least=nan_to_none(found.minimum),
        largest=nan_to_none(found.maximum),
    )
