"""HostMemoryGrowth: memory of the job on a node that grows steadily, and when its limit is full."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from stepscope import analysis, schema
from stepscope.quantities import count, duration, memory, percent
from stepscope.rules.base import IncrementalRule, NotApplicable, Trigger
from stepscope.rules.inputs import RankStepTimes, RuleInputs, scan_ends, scan_indices
from stepscope.rules.parameters import Count
from stepscope.rules.samples import sort_series

FREQUENT_SCANS = 64
"""Scans at the start of a job after each of which growth is measured; later ones are as far apart,
in proportion to the time that has passed."""
MAX_NAMED = 4
LIMIT_NAMES: dict[analysis.LimitKind, str] = {
    "container": "the container's limit",
    "machine": "the memory of the machine",
    "address_space": "the limit of the address space",
}
_HOUR_NS = 3600e9


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemoryGrowthParameters:
    """Definition of growth that matters."""

    within_hours: Count = 720
    """The rule does not fire if the limit would be full later than this many hours from now."""


class NodeGrowthDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the job on one node."""

    used_bytes: int = 0
    """At the latest sample."""
    growth_bytes_per_step: float | None = None
    growth_bytes_per_hour: float = 0.0
    limit_bytes: int | None = None
    full_in_ns: float | None = None
    """Time until the limit is full; null without growth or limit."""
    full_at_step: float | None = None
    growth_bytes: float = 0.0
    """Growth over the steps that count."""
    growing_pids: list[int] = []
    """Processes that grow, by their share."""


class HostMemoryGrowthDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Memory by node."""

    nodes: dict[str, NodeGrowthDetails] = {}


class HostMemoryState(msgspec.Struct):
    """State of the rule."""

    nodes: dict[str, analysis.HostMemory] = msgspec.field(default_factory=dict)
    names: dict[str, dict[int, str]] = msgspec.field(default_factory=dict)
    """Names of training processes by node and pid."""
    trigger: Trigger = msgspec.field(default_factory=Trigger)
    scan_count: int = 0
    """Scans with samples of the node that has most."""


class HostMemoryGrowth(IncrementalRule[HostMemoryGrowthParameters, HostMemoryState]):
    """Checks for host memory that grows until it is full.

    ## What it checks
    The memory that the job holds on each node: anonymous memory of its processes, pages that forks
    share once, swapped pages and files in /dev/shm. After the first fifth of the steps, the least
    use that is never undercut later rises in 7 of 8 sections of the steps and in the last two of
    them, by 16 MiB and 2% in total, and the 95% interval of its rate is above 0. Growth that is not
    larger than a steady rise of the duration of steps is that of longer inputs. The limit (of the
    container, the machine or the address space) has to be full within `within_hours` at that rate.
    Datapoints are scans with samples.

    ## Why it matters
    The kernel ends a job that has used up its memory with signal 9, without a message, often hours
    or days later.

    ## What to do
    See which process grows (`stepscope show RUN host-memory`). Store loss.item() or loss.detach()
    instead of loss, bound caches, and clear lists that hold outputs. In DataLoader workers, do not
    keep samples, and hold long lists of strings as one array.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "host memory"
    parameters_type = HostMemoryGrowthParameters
    recommendation = (
        "Find what is kept across steps in the process that grows (`stepscope show RUN "
        "host-memory`): losses with their graphs, outputs in lists, unbounded caches."
    )
    metrics = analysis.HOST_MEMORY_METRICS
    evidence = ("host-memory", "system")
    plots = ("job_memory_bytes",)
    missing_in_traces = "imported traces have no samples of the job's memory"
    run_state = HostMemoryState

    def update(self, state: HostMemoryState, inputs: RuleInputs) -> HostMemoryState:
        names = schema.name_processes(inputs.processes)
        for process in inputs.processes:
            state.names.setdefault(process.node, {})[process.pid] = names[process.process]
        by_node = _group_by_node(inputs)
        for node, metrics in by_node.items():
            info = inputs.nodes.get(node)
            memory_of_node = state.nodes.setdefault(
                node, analysis.HostMemory(machine_bytes=None if info is None else info.memory_bytes)
            )
            steps = [rank for rank in inputs.steps if rank.node == node]
            self._update_node(state, memory_of_node, metrics, steps, inputs)
        if by_node:
            scans = {
                int(scan)
                for metrics in by_node.values()
                for scan in np.unique(scan_indices(inputs, metrics["job_memory_bytes"][""].t_ns))
            }
            state.scan_count += len(scans)
        return state

    def _update_node(
        self,
        state: HostMemoryState,
        node: analysis.HostMemory,
        metrics: Mapping[str, Mapping[str, analysis.Series]],
        steps: list[RankStepTimes],
        inputs: RuleInputs,
    ) -> None:
        """Add the data of a node up to the end of each scan after which growth is measured."""
        scans = np.unique(scan_indices(inputs, metrics["job_memory_bytes"][""].t_ns))
        due = [int(scan) for scan in scans if _is_due(int(scan))]
        start = -(1 << 62)
        for end, is_due in [
            *((end, True) for end in scan_ends(inputs, np.array(due, dtype=np.int64))),
            (1 << 62, False),
        ]:
            for rank in steps:
                rows = (rank.end_ns >= start) & (rank.end_ns < end)
                node.add_steps(rank.rank, rank.end_ns[rows], rank.wall_ns[rows])
            node.add(
                {
                    metric: {
                        device: analysis.Series(series.t_ns[first:last], series.value[first:last])
                        for device, series in devices.items()
                        for first, last in [np.searchsorted(series.t_ns, [start, end]).tolist()]
                        if last > first
                    }
                    for metric, devices in metrics.items()
                }
            )
            start = end
            growth = node.measure() if is_due else None
            if growth is not None and growth.trend is not None and self._fires(growth):
                state.trigger.add_times(inputs, [end - 1])
                state.trigger.cover(growth.trend.start_ns, growth.trend.end_ns)

    def _fires(self, growth: analysis.HostGrowth) -> bool:
        if not growth.is_growing:
            return False
        forecast = growth.forecast
        return forecast is None or forecast.in_ns.value <= self.parameters.within_hours * _HOUR_NS

    def decide(self, state: HostMemoryState) -> schema.Finding | None:
        growths = {node: state.nodes[node].measure() for node in sorted(state.nodes)}
        if not growths:
            raise NotApplicable(
                "no samples of the job's memory: recorded by an older version, or on a kernel that "
                "does not count memory by kind"
            )
        firing = {node: growth for node, growth in growths.items() if self._fires(growth)}
        # What was given back meanwhile was no leak.
        trigger = state.trigger if firing else Trigger()
        for growth in firing.values():
            if not len(trigger) and growth.trend is not None:  # before the end of a scan
                trigger = Trigger({growth.latest_ns + 1})
                trigger.cover(growth.trend.start_ns, growth.trend.end_ns)
        names = {node: state.names.get(node, {}) for node in growths}
        return self.finding(
            triggered=trigger,
            violations=len(trigger),
            datapoints=state.scan_count,
            details=HostMemoryGrowthDetails(
                nodes={node: _detail(growth) for node, growth in growths.items()}
            ),
            sentences=[
                f"Node {node}: {line}"
                for node, growth in (firing or growths).items()
                for line in describe_growth(growth, names[node], has_ended=self.has_ended)
            ],
            nodes=firing,
            ranks={
                names[node][process.pid]
                for node, growth in firing.items()
                for process in growth.processes
                if process.pid in names[node]
            },
        )


def _group_by_node(inputs: RuleInputs) -> dict[str, dict[str, dict[str, analysis.Series]]]:
    """Return the sorted samples by node, metric and device, of nodes with samples of the job."""
    by_node: dict[str, dict[str, dict[str, analysis.Series]]] = {}
    for metric in analysis.HOST_MEMORY_METRICS:
        for device, series in inputs.series(metric).items():
            ordered = sort_series(series)
            if len(ordered.t_ns):
                devices = by_node.setdefault(device.node, {m: {} for m in HostMemoryGrowth.metrics})
                devices[metric][device.number] = ordered
    return {node: metrics for node, metrics in by_node.items() if metrics["job_memory_bytes"]}


def _is_due(scan: int) -> bool:
    """Return True for scans after which growth is measured: all at first, then ever fewer."""
    stride = 1 << max(0, (scan // FREQUENT_SCANS).bit_length())
    return scan < FREQUENT_SCANS or scan % stride == 0


def _detail(growth: analysis.HostGrowth) -> NodeGrowthDetails:
    trend, forecast = growth.trend, growth.forecast
    per_step = None if trend is None or trend.per_step is None else trend.per_step.value
    full_step = None if forecast is None or forecast.step is None else forecast.step.value
    return NodeGrowthDetails(
        used_bytes=growth.use_bytes,
        growth_bytes_per_step=per_step,
        growth_bytes_per_hour=0.0 if trend is None else trend.per_hour.value,
        limit_bytes=None if growth.limit is None else growth.limit.limit_bytes,
        full_in_ns=None if forecast is None else forecast.in_ns.value,
        full_at_step=full_step,
        growth_bytes=trend.growth_bytes if trend is not None and growth.is_growing else 0.0,
        growing_pids=[process.pid for process in growth.processes],
    )


def describe_growth(
    growth: analysis.HostGrowth, names: Mapping[int, str], *, has_ended: bool = False
) -> Iterator[str]:
    """Describe the memory of the job on a node: growth with its interval, then the forecast.

    Args:
        growth: the memory.
        names: names of processes by pid.
        has_ended: whether the job has ended.
    """
    trend = growth.trend
    if trend is None or not growth.is_growing:
        peak = f"peak {memory(growth.peak_bytes)}"
        limit = "" if growth.limit is None else f" of {describe_limit(growth.limit)}"
        if trend is not None and trend.is_steady:
            verb = "rose" if has_ended else "rises"
            yield (
                f"host memory of the job {verb} with the duration of steps, as with longer inputs; "
                f"{peak}{limit}."
            )
        else:
            verb = "did" if has_ended else "does"
            yield f"host memory of the job {verb} not grow steadily; {peak}{limit}."
        return
    verb = "grew" if has_ended else "grows"
    rate = f"{memory(trend.per_hour.value)} per hour{_interval(trend.per_hour)}"
    if trend.per_step is not None:
        rate = (
            f"{memory(trend.per_step.value)} per step{_interval(trend.per_step)}, "
            f"{memory(trend.per_hour.value)} per hour"
        )
    yield f"host memory of the job {verb} by {rate}{_name_processes(growth, names)}."
    forecast = describe_forecast(growth, has_ended=has_ended)
    if forecast:
        yield forecast


def describe_forecast(growth: analysis.HostGrowth, *, has_ended: bool = False) -> str:
    """Say when the limit is full, with the interval; empty without a forecast."""
    if growth.limit is None or growth.forecast is None:
        return ""
    in_ns, step = growth.forecast
    size = describe_limit(growth.limit)
    at_step = "" if step is None else f"at step {count(round(step.value))}, "
    verb = "would have been" if has_ended else "are"
    interval = f"{duration(in_ns.low)} to {duration(in_ns.high)}"
    if math.isinf(in_ns.high):
        interval = f"at least {duration(in_ns.low)}"
    when = f"{duration(in_ns.value)} later" if has_ended else f"in {duration(in_ns.value)}"
    return f"{size} {verb} full {at_step}{when} ({interval})."


def describe_limit(limit: analysis.MemoryLimit) -> str:
    """Name a limit with its size."""
    return f"{memory(limit.limit_bytes)} ({LIMIT_NAMES[limit.kind]})"


def _interval(rate: analysis.Estimate) -> str:
    return f" ({memory(rate.low)} to {memory(rate.high)})"


def _name_processes(growth: analysis.HostGrowth, names: Mapping[int, str]) -> str:
    parts = [
        f"{percent(process.share_ratio)} in {names.get(process.pid, f'process {process.pid}')}"
        for process in growth.processes[:MAX_NAMED]
    ]
    return f" ({', '.join(parts)})" if parts else ""
