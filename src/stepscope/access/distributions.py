"""Histograms of metrics and of step times."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from stepscope.analysis import (
    DURATION_BINS,
    RATIO_BIN,
    Float,
    Histogram,
    Series,
    Statistics,
    average_devices,
    build_histogram,
    make_duration_edges,
    make_range_edges,
    make_ratio_edges,
    summarize,
)
from stepscope.run import NodeMetrics, Rank
from stepscope.schema import METRIC_TYPES

MEAN = "mean"
"""The device of the mean over all devices of a metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricHistogram:
    """One metric of one device."""

    node: str
    metric: str
    device: str
    """Empty for a metric of the whole node, `mean` for the mean over its devices."""
    unit: str
    histogram: Histogram
    distribution: Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsHistogram:
    """Histograms of sampled metric values.

    A GPU with most samples between 0.8 and 0.9 is kept busy; different histograms of GPUs mean
    different work.
    """

    series: list[MetricHistogram]
    """By node, metric and device; series without a sample are omitted."""


def load_devices(metrics: NodeMetrics, name: str) -> dict[str, Series]:
    """Load the samples of a metric by device; of several devices, also their mean at each tick,
    unless the mean itself was sampled."""
    series = dict(metrics.load(name)[name])
    if len(series) > 1 and "" not in series:
        series[MEAN] = average_devices(series)
    return series


def metrics_histogram(
    metrics: Mapping[str, NodeMetrics],
    *,
    names: list[str],
    devices: list[str] | None,
    bin_width: float = RATIO_BIN,
) -> MetricsHistogram:
    """Build histograms of metrics by node.

    Ratios have bins from 0 to 1, other metrics fifty bins from minimum to maximum; devices of one
    metric and node share the bins.
    """
    histograms = []
    for node, node_metrics in sorted(metrics.items()):
        for name in names:
            samples = load_devices(node_metrics, name)
            series = {device: one.value for device, one in samples.items()}
            edges = _edges(name, series.values(), bin_width)
            if edges is None:
                continue
            for device, values in series.items():
                summary = summarize(values)
                if summary is not None and (devices is None or device in devices):
                    histograms.append(
                        MetricHistogram(
                            node=node,
                            metric=name,
                            device=device,
                            unit=METRIC_TYPES[name].unit,
                            histogram=build_histogram(values, edges),
                            distribution=summary,
                        )
                    )
    return MetricsHistogram(series=histograms)


def _edges(metric: str, series: Collection[Float], width: float) -> Float | None:
    if series and METRIC_TYPES[metric].unit == "ratio":
        return make_ratio_edges(width)
    return make_range_edges(*series)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankHistogram:
    """Durations of one rank, in nanoseconds."""

    rank: str
    histogram: Histogram
    distribution: Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class StepHistogram:
    """Histogram of the durations of steps or of one phase, in nanoseconds.

    Bins reach from the shortest duration to the median plus two standard deviations; longer ones
    are in `over_count`.
    """

    phase: str | None
    """None for whole steps."""
    series: list[RankHistogram]
    """By rank; all have the same bins."""


def step_histogram(
    ranks: Iterable[Rank], *, phase: str | None = None, bins: int = DURATION_BINS
) -> StepHistogram:
    """Build histograms of all complete steps of some ranks, without evaluation time."""
    durations = {
        rank.name: rank.steps.wall_ns if phase is None else rank.steps.phase_ns[phase]
        for rank in ranks
    }
    edges = make_duration_edges(*durations.values(), bins=bins)
    series = []
    for name, values in durations.items():
        summary = summarize(values)
        if summary is not None and edges is not None:
            counted = build_histogram(values, edges)
            series.append(RankHistogram(rank=name, histogram=counted, distribution=summary))
    return StepHistogram(phase=phase, series=series)
