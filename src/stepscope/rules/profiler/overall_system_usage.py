"""Statistics of the resource usage of nodes; never fires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from stepscope.analysis import Device, Series
from stepscope.quantities import percent
from stepscope.rules.base import IncrementalRule, NotApplicable
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import NoParameters
from stepscope.rules.quantile_sketch import RATIO_GRID, LinearGrid, QuantileSketch
from stepscope.rules.samples import (
    NO_SAMPLES_IN_TRACES,
    find_snapshots,
    gpu_memory_ratio,
    gpu_utilization,
    node_series,
    sort_series,
)
from stepscope.rules.trigger import Trigger
from stepscope.schema import Finding

LABELS = {
    "cpu_percent": "CPU",
    "memory_percent": "memory",
    "io_wait_percent": "I/O wait",
    "gpu_percent": "GPU",
    "gpu_memory_percent": "GPU memory",
}
"""Labels in sentences."""
NETWORK_METRICS = ("network_received_bytes_per_s", "network_sent_bytes_per_s")
TRAINING_TRAFFIC_PREFIX = "Algorithm"
"""Prefix of the names of training traffic in runs imported from Debugger."""
BYTE_GRID = LinearGrid(1.0)
BYTE_FIELDS = ("network_bytes_per_s", "network_bytes")


class UsageQuantiles(msgspec.Struct, frozen=True):
    """Quantiles over all sampling ticks."""

    max: float = 0.0
    p99: float = 0.0
    p95: float = 0.0
    p50: float = 0.0
    min: float = 0.0

    @classmethod
    def of(cls, sketch: QuantileSketch, *, scale: float) -> UsageQuantiles:
        """Compute the quantiles of the values times `scale`."""
        quantiles = sketch.quantiles([1.0, 0.99, 0.95, 0.5, 0.0])
        return cls(*(round(max(0.0, value * scale), 2) for value in quantiles))


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one node; a field is absent if nothing was sampled."""

    cpu_percent: UsageQuantiles | UnsetType = UNSET
    memory_percent: UsageQuantiles | UnsetType = UNSET
    io_wait_percent: UsageQuantiles | UnsetType = UNSET
    gpu_percent: UsageQuantiles | UnsetType = UNSET
    gpu_memory_percent: UsageQuantiles | UnsetType = UNSET
    network_bytes_per_s: UsageQuantiles | UnsetType = UNSET
    network_bytes: UsageQuantiles | UnsetType = UNSET
    """Bytes per sample, in runs imported from Debugger."""

    @property
    def sampled(self) -> dict[str, UsageQuantiles]:
        """Quantiles by name of the field, without absent ones."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in values.items() if value is not UNSET}


class OverallSystemUsageDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Usage by node."""

    nodes: dict[str, NodeUsage] = {}


@dataclass(slots=True)
class _State:
    nodes: dict[str, dict[str, QuantileSketch]] = field(default_factory=dict)
    """By node and field of `NodeUsage`."""


class OverallSystemUsage(IncrementalRule[NoParameters, _State]):
    """Summarizes the resource usage of each node; never fires.

    ## What it checks
    For each node, at each sampling tick: CPU and I/O wait as the mean of its cores, used memory as
    a share of its memory, GPUs and their memory as the mean of those that were read, network as
    received plus sent bytes per second over all interfaces. For each the maximum, p99, p95, p50 and
    minimum. Datapoints are the CPU samples of the first node by name.

    ## Why it matters
    The table at the top of a report: which resource is exhausted, and which is paid for and idle.

    ## What to do
    If p95 of CPU and GPU are both low, a smaller machine is sufficient. If one is near its limit,
    see the rule for that resource.

    ## Where the numbers differ from SageMaker Debugger's
    A GPU without a reading at some time is left out of the mean; Debugger counts it as zero.
    Quantiles of shares are exact to 0.01%.
    """

    topic = "statistics"
    can_fire = False
    missing_in_traces = NO_SAMPLES_IN_TRACES
    metrics = (
        "cpu_busy_ratio",
        "cpu_iowait_ratio",
        "gpu_busy_ratio",
        "gpu_memory_used_bytes",
        "gpu_memory_used_ratio",
        "memory_used_bytes",
        "memory_used_ratio",
        "network_bytes",
        *NETWORK_METRICS,
    )
    evidence = ("system",)
    run_state = _State

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        for name, by_node in _usage_series(inputs).items():
            grid = BYTE_GRID if name in BYTE_FIELDS else RATIO_GRID
            for node, series in by_node.items():
                sketches = state.nodes.setdefault(node, {})
                sketches.setdefault(name, QuantileSketch(grid)).add(series.value)
        return state

    def decide(self, state: _State) -> Finding | None:
        if not state.nodes:
            raise NotApplicable("no node has been monitored")
        cpu = state.nodes[min(state.nodes)].get("cpu_percent")
        nodes = {node: _usage(sketches) for node, sketches in sorted(state.nodes.items())}
        return self.finding(
            triggered=Trigger(),
            datapoints=0 if cpu is None else len(cpu),
            details=OverallSystemUsageDetails(nodes=nodes),
            sentences=[_sentence(node, usage) for node, usage in nodes.items()],
        )


def _usage_series(inputs: RuleInputs) -> dict[str, dict[str, Series]]:
    """Return one series per field of `NodeUsage` and node, shares as ratios."""
    memory = node_series(inputs, "memory_used_ratio")
    for node, series in node_series(inputs, "memory_used_bytes").items():
        info = inputs.nodes.get(node)
        if info is not None and info.memory_bytes:
            memory[node] = Series(series.t_ns, series.value / info.memory_bytes)
    return {
        "cpu_percent": node_series(inputs, "cpu_busy_ratio"),
        "memory_percent": memory,
        "io_wait_percent": node_series(inputs, "cpu_iowait_ratio"),
        "gpu_percent": _combine(inputs, gpu_utilization(inputs), mean=True),
        "gpu_memory_percent": _combine(inputs, gpu_memory_ratio(inputs), mean=True),
        "network_bytes_per_s": _network(inputs),
        "network_bytes": _imported_network(inputs),
    }


def _network(inputs: RuleInputs) -> dict[str, Series]:
    by_device: dict[Device, Series] = {}
    for metric in NETWORK_METRICS:
        for device, series in inputs.series(metric).items():
            by_device[Device(device.node, f"{metric} {device.number}")] = sort_series(series)
    return _combine(inputs, by_device, mean=False)


def _imported_network(inputs: RuleInputs) -> dict[str, Series]:
    """Return the bytes per sample that Debugger records."""
    by_device = {
        device: sort_series(series)
        for device, series in inputs.series("network_bytes").items()
        if device.number.startswith(TRAINING_TRAFFIC_PREFIX)
    }
    return _combine(inputs, by_device, mean=False)


def _combine(
    inputs: RuleInputs, by_device: Mapping[Device, Series], *, mean: bool
) -> dict[str, Series]:
    """Return the mean or sum over the devices of each node at each sampling tick."""
    by_node: dict[str, list[Series]] = {}
    for device, series in by_device.items():
        by_node.setdefault(device.node, []).append(series)
    combined = {}
    for node, all_series in by_node.items():
        snapshots = find_snapshots(inputs, all_series)
        count = len(snapshots.t_ns)
        total, reading_count = np.zeros(count), np.zeros(count)
        for series, index in zip(all_series, snapshots.snapshot_of_sample, strict=True):
            total += np.bincount(index, weights=series.value, minlength=count)
            reading_count += np.bincount(index, minlength=count)
        if count:
            combined[node] = Series(snapshots.t_ns, total / reading_count if mean else total)
    return combined


def _usage(sketches: Mapping[str, QuantileSketch]) -> NodeUsage:
    return NodeUsage(
        **{
            name: UsageQuantiles.of(sketch, scale=1 if name in BYTE_FIELDS else 100)
            for name, sketch in sketches.items()
        }
    )


def _sentence(node: str, usage: NodeUsage) -> str:
    sampled = usage.sampled
    figures = [
        f"{label} {percent(sampled[name].p95 / 100, 1)}"
        for name, label in LABELS.items()
        if name in sampled
    ]
    return f"Node {node}, 95th percentile: {', '.join(figures) or 'n/a'}."
