"""`system`: load of every node."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import Statistics
from stepscope.run import Run
from stepscope.schema import METRIC_TYPES, field_label
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged
from stepscope.views.system_heat import explain_no_samples


class MetricView(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one device over the whole run."""

    metric: str
    device: str
    unit: str
    doc: Annotated[str, field_label("meaning")]
    statistics: Annotated[Statistics | None, field_label(unit="inherited")]


class ChangedInterval(msgspec.Struct, frozen=True, kw_only=True):
    """Change of the sampling interval while the job ran."""

    changed_ns: Annotated[int, field_label("time", unit="epoch_ns")]
    interval_ns: int
    """Interval from then on."""
    reason: str | None
    """Why the monitor changed it; null if the configuration did."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    node: str
    cpu_model: Annotated[str, field_label("processor")]
    cores_total: Annotated[int, field_label("total cores", unit="count")]
    cores_available: Annotated[float, field_label("available cores", unit="count")]
    memory_bytes: int | None
    memory_limit_bytes: int | None
    gpus: Annotated[list[str], field_label("GPUs")]
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
    summaries = {
        (metric, device): summary
        for metric in metrics.names
        for device, series in metrics.load(metric)[metric].items()
        if (summary := metrics.summarize(series)) is not None
    }
    rows = [
        MetricView(
            metric=metric,
            device=device,
            unit=METRIC_TYPES[metric].unit,
            doc=METRIC_TYPES[metric].doc,
            statistics=summary,
        )
        for (metric, device), summary in summaries.items()
        if metric in METRIC_TYPES and metric != "missed_samples"
    ]
    order = list(METRIC_TYPES)
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
