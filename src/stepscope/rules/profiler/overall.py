"""Statistics of phases, operators, kernels and nodes; these rules never fire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from stepscope import analysis, schema
from stepscope.quantities import percent
from stepscope.rules import samples
from stepscope.rules.base import IncrementalRule, NotApplicable, Trigger
from stepscope.rules.inputs import RuleInputs, imported_steps
from stepscope.rules.parameters import NoParameters
from stepscope.rules.quantile_sketch import RATIO_GRID, LinearGrid, QuantileSketch
from stepscope.rules.templates import add_times, shares_of_total

TRAINING_PHASES = (
    *("h2d", "forward", "loss", "backward", "optimizer", "dispatch", "execution"),
    "communication",
)
"""Phases that count as TRAIN; waits, checkpoints and the time between phases are `others`."""
MIN_LISTED_SHARE = 0.02
"""Operators with at most this share of the total are not listed."""


class OperatorTime(msgspec.Struct, frozen=True, kw_only=True):
    """Total time of one operator or kernel."""

    name: str = ""
    time_ns: int = 0
    percent: float = 0.0
    """Share of the listed ones."""


class OverallFrameworkMetricsDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Breakdown of time, largest first."""

    phase_share_ratio: dict[str, float] = {}
    """TRAIN, EVAL and others, as shares of the time of all steps and ranks."""
    modes_are_recorded: bool | UnsetType = UNSET
    """True where imported files record the mode of each step: then these are the modes, and others
    is the time between their steps."""
    step_phase_share_ratio: dict[str, float] = {}
    """Phases, as shares of the wall time of all steps and ranks."""
    step_part_share_ratio: dict[str, float] = {}
    """Parts of the steps of imported traces, as shares of their time."""
    forward_backward_share_ratio: dict[str, float] = {}
    cpu_gpu_share_ratio: dict[str, float] = {}
    """Operators on the CPU against kernels on the GPU, by self time."""
    cpu_operators: list[OperatorTime] = []
    gpu_kernels: list[OperatorTime] = []
    """Communication is excluded."""
    collectives: list[OperatorTime] = []
    recording_count: int = 0
    """Traces."""


class _ModesOfProcess(msgspec.Struct):
    start_ns: int
    end_ns: int
    mode_ns: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def others_ns(self) -> int:
        """Time between the steps."""
        return max(0, self.end_ns - self.start_ns - sum(self.mode_ns.values()))


class _MetricsState(msgspec.Struct):
    phase_ns: dict[str, int] = msgspec.field(default_factory=dict)
    modes: dict[str, _ModesOfProcess] = msgspec.field(default_factory=dict)
    """By process."""
    evaluation_ns: int = 0
    step_count: int = 0
    trace_count: int = 0
    part_ns: dict[str, int] = msgspec.field(default_factory=dict)
    operator_ns: dict[str, int] = msgspec.field(default_factory=dict)
    kernel_ns: dict[str, int] = msgspec.field(default_factory=dict)
    collective_ns: dict[str, int] = msgspec.field(default_factory=dict)


class OverallFrameworkMetrics(IncrementalRule[NoParameters, _MetricsState]):
    """Summarizes the time of phases, operators and kernels; never fires.

    ## What it checks
    Time of all ranks by TRAIN (batch copies, forward, loss, backward, optimizer, calls and
    execution of functions compiled by JAX, communication), EVAL and others (waits for batches,
    checkpoints, time between phases); forward against backward; and, over all traces of the
    framework's profiler, operators on the host by self time and kernels by name. Tables list
    entries above 2% of their total, and the listed entries add up to 100%. Of imported traces, also
    the parts of their steps. Files of SageMaker Debugger name the modes of steps: TRAIN, EVAL,
    PREDICT and GLOBAL are these there, and others is the time between. Datapoints are steps.

    ## Why it matters
    Most of the time should be spent in training phases, and the first operator of a table is the
    most valuable one to optimize.

    ## What to do
    Look at the largest entries; `stepscope show RUN operators` and `kernels` show their origin.

    ## Where the numbers differ from SageMaker Debugger's
    Operators count self time, without the operators that they call; Debugger counts nested
    operators again in each enclosing one. Debugger's "others" accumulates at each update, and the
    labels of its CPU and GPU ratios are swapped.
    """

    topic = "statistics"
    can_fire = False
    evidence = ("steps", "operators", "kernels")
    run_state = _MetricsState

    def update(self, state: _MetricsState, inputs: RuleInputs) -> _MetricsState:
        for steps in inputs.steps:
            state.step_count += len(steps)
            total_ns = int((steps.end_ns - steps.start_ns).sum())
            state.evaluation_ns += total_ns - int(steps.wall_ns.sum())
            add_times(state.phase_ns, {p: int(ns.sum()) for p, ns in steps.phase_ns.items()})
        for mode in inputs.modes:
            process = state.modes.setdefault(
                mode.process, _ModesOfProcess(mode.start_ns, mode.end_ns)
            )
            process.start_ns = min(process.start_ns, mode.start_ns)
            process.end_ns = max(process.end_ns, mode.end_ns)
            add_times(process.mode_ns, {mode.mode: mode.total_ns})
        for trace in samples.sort_traces(inputs):
            state.trace_count += 1
            traced = imported_steps(trace)
            if traced is not None:
                state.step_count += len(traced.times)
                parts = {part: int(ns.sum()) for part, ns in traced.times.phase_ns.items()}
                add_times(state.part_ns, parts)
            add_times(state.operator_ns, trace.operator_ns)
            for name, time_ns in trace.device_ns.items():
                collective = analysis.is_communication(name)
                add_times(state.collective_ns if collective else state.kernel_ns, {name: time_ns})
        return state

    def decide(self, state: _MetricsState) -> schema.Finding | None:
        if not state.step_count and not state.trace_count and not state.modes:
            raise NotApplicable("no training steps and no traces")
        details = _details(state)
        return self.finding(
            triggered=Trigger(),
            datapoints=state.step_count,
            details=details,
            sentences=_sentences(details),
        )


def _details(state: _MetricsState) -> OverallFrameworkMetricsDetails:
    passes = {phase: state.phase_ns.get(phase, 0) for phase in ("forward", "backward")}
    processors = {
        "CPU operators": sum(state.operator_ns.values()),
        "GPU kernels": sum(state.kernel_ns.values()),
    }
    return OverallFrameworkMetricsDetails(
        phase_share_ratio=shares_of_total(_measure_modes(state)),
        modes_are_recorded=True if state.modes else UNSET,
        step_phase_share_ratio=shares_of_total(state.phase_ns),
        step_part_share_ratio=shares_of_total(state.part_ns),
        forward_backward_share_ratio=shares_of_total(passes),
        cpu_gpu_share_ratio=shares_of_total(processors),
        cpu_operators=operator_table(state.operator_ns),
        gpu_kernels=operator_table(state.kernel_ns),
        collectives=operator_table(state.collective_ns),
        recording_count=state.trace_count,
    )


def _measure_modes(state: _MetricsState) -> dict[str, int]:
    """Measure TRAIN, EVAL and others, by the modes that imported files record, or by phases."""
    if state.modes:
        mode_ns: dict[str, int] = {}
        for process in state.modes.values():
            add_times(mode_ns, {**process.mode_ns, "others": process.others_ns})
        return mode_ns
    train_ns = sum(state.phase_ns.get(phase, 0) for phase in TRAINING_PHASES)
    other_ns = sum(state.phase_ns.values()) - train_ns
    return {"TRAIN": train_ns, "EVAL": state.evaluation_ns, "others": other_ns}


def _sentences(details: OverallFrameworkMetricsDetails) -> Iterable[str]:
    if details.phase_share_ratio:
        shares = (f"{name} {percent(v)}" for name, v in details.phase_share_ratio.items())
        yield f"Time of all ranks: {', '.join(shares)}."
    if details.step_part_share_ratio:
        parts = details.step_part_share_ratio.items()
        listed = (
            f"{analysis.PART_NAMES[part]} {percent(v)}"
            for part, v in parts
            if v >= MIN_LISTED_SHARE
        )
        yield f"Step time of the traces: {', '.join(listed)}."
    if details.cpu_operators:
        yield _most_expensive("operator on the CPU", details.cpu_operators[0])
    if details.gpu_kernels:
        yield _most_expensive("kernel", details.gpu_kernels[0])


def _most_expensive(kind: str, operator: OperatorTime) -> str:
    return f"Most expensive {kind}: {operator.name}, {percent(operator.percent / 100, 1)}."


def operator_table(time_ns: Mapping[str, int]) -> list[OperatorTime]:
    """List names with more than 2% of the total, longest first; percentages add up to 100."""
    total_ns = sum(time_ns.values())
    listed = {name: ns for name, ns in time_ns.items() if ns > MIN_LISTED_SHARE * total_ns}
    return [
        OperatorTime(name=name, time_ns=listed[name], percent=round(100 * share, 6))
        for name, share in shares_of_total(listed).items()
    ]


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


class _UsageState(msgspec.Struct):
    nodes: dict[str, dict[str, QuantileSketch]] = msgspec.field(default_factory=dict)
    """By node and field of `NodeUsage`."""


class OverallSystemUsage(IncrementalRule[NoParameters, _UsageState]):
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
    missing_in_traces = samples.NO_SAMPLES_IN_TRACES
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
    run_state = _UsageState

    def update(self, state: _UsageState, inputs: RuleInputs) -> _UsageState:
        for name, by_node in _usage_series(inputs).items():
            grid = BYTE_GRID if name in BYTE_FIELDS else RATIO_GRID
            for node, series in by_node.items():
                sketches = state.nodes.setdefault(node, {})
                sketches.setdefault(name, QuantileSketch(grid)).add(series.value)
        return state

    def decide(self, state: _UsageState) -> schema.Finding | None:
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


def _usage_series(inputs: RuleInputs) -> dict[str, dict[str, analysis.Series]]:
    """Return one series per field of `NodeUsage` and node, shares as ratios."""
    memory = samples.node_series(inputs, "memory_used_ratio")
    for node, series in samples.node_series(inputs, "memory_used_bytes").items():
        info = inputs.nodes.get(node)
        if info is not None and info.memory_bytes:
            memory[node] = analysis.Series(series.t_ns, series.value / info.memory_bytes)
    return {
        "cpu_percent": samples.node_series(inputs, "cpu_busy_ratio"),
        "memory_percent": memory,
        "io_wait_percent": samples.node_series(inputs, "cpu_iowait_ratio"),
        "gpu_percent": _combine(inputs, samples.gpu_utilization(inputs), mean=True),
        "gpu_memory_percent": _combine(inputs, samples.gpu_memory_ratio(inputs), mean=True),
        "network_bytes_per_s": _network(inputs),
        "network_bytes": _imported_network(inputs),
    }


def _network(inputs: RuleInputs) -> dict[str, analysis.Series]:
    by_device: dict[analysis.Device, analysis.Series] = {}
    for metric in NETWORK_METRICS:
        for device, series in inputs.series(metric).items():
            by_device[analysis.Device(device.node, f"{metric} {device.number}")] = (
                samples.sort_series(series)
            )
    return _combine(inputs, by_device, mean=False)


def _imported_network(inputs: RuleInputs) -> dict[str, analysis.Series]:
    """Return the bytes per sample that Debugger records."""
    by_device = {
        device: samples.sort_series(series)
        for device, series in inputs.series("network_bytes").items()
        if device.number.startswith(TRAINING_TRAFFIC_PREFIX)
    }
    return _combine(inputs, by_device, mean=False)


def _combine(
    inputs: RuleInputs, by_device: Mapping[analysis.Device, analysis.Series], *, mean: bool
) -> dict[str, analysis.Series]:
    """Return the mean or sum over the devices of each node at each sampling tick."""
    by_node: dict[str, list[analysis.Series]] = {}
    for device, series in by_device.items():
        by_node.setdefault(device.node, []).append(series)
    combined = {}
    for node, all_series in by_node.items():
        snapshots = samples.find_snapshots(inputs, all_series)
        count = len(snapshots.t_ns)
        total, reading_count = np.zeros(count), np.zeros(count)
        for series, index in zip(all_series, snapshots.snapshot_of_sample, strict=True):
            total += np.bincount(index, weights=series.value, minlength=count)
            reading_count += np.bincount(index, minlength=count)
        if count:
            combined[node] = analysis.Series(
                snapshots.t_ns, total / reading_count if mean else total
            )
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
