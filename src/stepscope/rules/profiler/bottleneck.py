"""CPUBottleneck and IOBottleneck: a core is busy, or waits for I/O, while a GPU is idle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, schema
from stepscope.quantities import count, number, percent
from stepscope.rules import samples
from stepscope.rules.base import IncrementalRule, NotApplicable, Trigger, require_more_than
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Count, Percentage, percent_beside, share_beside
from stepscope.rules.templates import PhasesAtTimes, add_times, shares_of_total

MAX_LISTED = 1000
"""Latest bottleneck snapshots per node in the details."""
ALL_NODES = "all nodes"
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BottleneckParameters:
    """Parameters of both rules."""

    threshold: Percentage = 50.0
    """The rule fires if more of the snapshots (%) than this are bottlenecks."""
    gpu_threshold: Percentage = 10.0
    """A GPU is low if its utilization (%) is below this."""
    patience: Count = 1000
    """No decision until there are more snapshots than this."""


P = TypeVar("P", bound=BottleneckParameters)


class BottleneckSnapshot(msgspec.Struct, frozen=True):
    """One snapshot that is a bottleneck."""

    t_ns: int = 0
    """First reading, epoch nanoseconds."""
    low_gpu_count: int = 0
    """GPUs of the node below `gpu_threshold`."""
    busiest_core_percent: float = 0.0


class SnapshotCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of snapshots; each share names its denominator."""

    snapshot_count: int = 0
    low_gpu_count: int = 0
    """Snapshots with at least one low GPU."""
    bottleneck_count: int = 0
    bottleneck_percent_of_snapshots: float | None = None
    bottleneck_percent_of_low_gpu: float | None = None
    """Share of the snapshots with a low GPU; None if there are none."""


class NodeBottlenecks(SnapshotCounts, frozen=True, kw_only=True):
    """Snapshots of one node."""

    latest_bottlenecks: list[BottleneckSnapshot] = []


class BottleneckDetails(SnapshotCounts, frozen=True, kw_only=True):
    """Snapshots of all nodes, and phases of the steps that contain a bottleneck."""

    nodes: dict[str, NodeBottlenecks] = {}
    phase_share_ratio_of_steps_with_bottleneck: dict[str, float] = {}
    """Share of each phase of the time of these steps."""
    steps_with_bottleneck_count: int = 0


class NodeSnapshots(msgspec.Struct, frozen=True):
    """Snapshots of one node within a range; arrays have one element per snapshot."""

    t_ns: intervals.Int
    scan: intervals.Int
    low_gpu_count: intervals.Int
    busiest_core: Floats
    """Ratio of the busiest core; 0 if no core was read."""
    is_bottleneck: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        inputs: RuleInputs,
        gpus: list[analysis.Series],
        cores: analysis.Series,
        *,
        gpu_threshold: float,
        core_threshold: float,
    ) -> NodeSnapshots:
        """Group readings within 20 ms into snapshots.

        Args:
            inputs: the range.
            gpus: utilization of each GPU, as ratios.
            cores: ratio of the busiest core; not empty.
            gpu_threshold: a GPU is low below this ratio.
            core_threshold: a core is busy above this ratio.
        """
        snapshots = samples.find_snapshots(inputs, [cores, *gpus])
        low = np.zeros(len(snapshots.t_ns), dtype=np.int64)
        for gpu, index in zip(gpus, snapshots.snapshot_of_sample[1:], strict=True):
            low += np.bincount(index[gpu.value < gpu_threshold], minlength=len(low))
        busiest = np.zeros(len(low))
        first = np.flatnonzero(np.diff(snapshots.snapshot_of_sample[0], prepend=-1))
        busiest[snapshots.snapshot_of_sample[0][first]] = np.maximum.reduceat(cores.value, first)
        return cls(
            t_ns=snapshots.t_ns,
            scan=snapshots.scan,
            low_gpu_count=low,
            busiest_core=busiest,
            is_bottleneck=(low > 0) & (busiest > core_threshold),
        )

    def counts_by_scan(self) -> dict[int, _Counts]:
        """Count the snapshots of each scan."""
        scans, number = np.unique(self.scan, return_inverse=True)
        bottleneck_ns = [self.t_ns[self.is_bottleneck & (self.scan == scan)] for scan in scans]
        columns = (
            np.bincount(number, minlength=len(scans)),
            np.bincount(number, weights=self.low_gpu_count > 0, minlength=len(scans)),
            np.bincount(number, weights=self.is_bottleneck, minlength=len(scans)),
        )
        rows = np.stack(columns, axis=1).astype(np.int64).tolist()
        counts = {}
        for scan, row, t_ns in zip(scans.tolist(), rows, bottleneck_ns, strict=True):
            counts[scan] = _Counts(*row)
            counts[scan].extent.cover(t_ns, t_ns)
        return counts

    def latest_bottlenecks(self) -> list[BottleneckSnapshot]:
        """List the latest snapshots that are bottlenecks."""
        index = np.flatnonzero(self.is_bottleneck)[-MAX_LISTED:]
        columns = (self.t_ns, self.low_gpu_count, np.round(100 * self.busiest_core, 6))
        rows = zip(*(column[index].tolist() for column in columns), strict=True)
        return [BottleneckSnapshot(*row) for row in rows]


class _Counts(msgspec.Struct):
    """Snapshots of a node, or of all nodes."""

    snapshots: int = 0
    low: int = 0
    bottlenecks: int = 0
    extent: Trigger = msgspec.field(default_factory=Trigger)
    """Extent of the bottlenecks; its scans are not used."""
    highest: tuple[int, int] | None = None
    """Bottlenecks and snapshots at the scan that fired with the highest share of them."""

    def add(self, more: _Counts) -> None:
        self.extent.include(more.extent)
        self.snapshots += more.snapshots
        self.low += more.low
        self.bottlenecks += more.bottlenecks

    def fires(self, parameters: BottleneckParameters) -> bool:
        """Return True if there are enough snapshots and too many of them are bottlenecks."""
        if self.snapshots <= parameters.patience:
            return False
        return self.exceeds(parameters)

    def exceeds(self, parameters: BottleneckParameters) -> bool:
        """Return True if the share of bottlenecks is above the threshold."""
        return 100 * self.bottlenecks > parameters.threshold * self.snapshots

    def mark_fired(self) -> None:
        """Record the share of a scan at which the rule fires, if it is the highest."""
        if self.highest is None or (
            self.bottlenecks * self.highest[1] > self.highest[0] * self.snapshots
        ):
            self.highest = (self.bottlenecks, self.snapshots)

    def describe(self, parameters: BottleneckParameters) -> str:
        """Describe the share of bottlenecks; if it fell below the threshold, also the highest."""
        threshold, ratio = parameters.threshold, _ratio(self.bottlenecks, self.snapshots)
        if self.highest is None or self.exceeds(parameters):
            return share_beside(ratio, f"{count(self.snapshots)} snapshots", threshold)
        first = f"the first {count(self.highest[1])} snapshots"
        highest = share_beside(_ratio(*self.highest), first, threshold)
        return f"{highest}, {percent_beside(ratio, threshold)} of all {count(self.snapshots)}"

    def fields(self) -> dict[str, Any]:
        """Return the fields of `SnapshotCounts`."""
        return {
            "snapshot_count": self.snapshots,
            "low_gpu_count": self.low,
            "bottleneck_count": self.bottlenecks,
            "bottleneck_percent_of_snapshots": _percent_of(self.bottlenecks, self.snapshots),
            "bottleneck_percent_of_low_gpu": _percent_of(self.bottlenecks, self.low),
        }


class _NodeState(msgspec.Struct):
    counts: _Counts = msgspec.field(default_factory=_Counts)
    phases: PhasesAtTimes = msgspec.field(default_factory=PhasesAtTimes)
    latest: list[BottleneckSnapshot] = msgspec.field(default_factory=list)


class BottleneckState(msgspec.Struct):
    """Counts by node and in total."""

    nodes: dict[str, _NodeState] = msgspec.field(default_factory=dict)
    total: _Counts = msgspec.field(default_factory=_Counts)
    trigger: Trigger = msgspec.field(default_factory=Trigger)
    triggered: set[str] = msgspec.field(default_factory=set)
    """Nodes on which the rule fired, and `ALL_NODES`."""
    has_gpus: bool = False

    @property
    def triggered_nodes(self) -> list[str]:
        """Nodes on which the rule fired."""
        return sorted(self.triggered - {ALL_NODES})


class Bottleneck(IncrementalRule[P, BottleneckState], Generic[P]):
    """Counts snapshots in which a GPU is low and at least one core is above a threshold."""

    subject: ClassVar[str]
    """Name of the metric in sentences."""

    core_metric: ClassVar[str]
    """Metric of the busiest core."""
    missing_in_traces = samples.NO_SAMPLES_IN_TRACES
    run_state = BottleneckState

    @property
    def core_threshold(self) -> float:
        """Percentage above which a core is busy."""
        raise NotImplementedError

    def update(self, state: BottleneckState, inputs: RuleInputs) -> BottleneckState:
        gpus: dict[str, list[analysis.Series]] = {}
        for device, series in samples.gpu_utilization(inputs).items():
            gpus.setdefault(device.node, []).append(series)
        state.has_gpus |= bool(gpus)
        by_node = {
            name: NodeSnapshots.of(
                inputs,
                gpus.get(name, []),
                cores,
                gpu_threshold=self.parameters.gpu_threshold / 100,
                core_threshold=self.core_threshold / 100,
            )
            for name, cores in samples.node_series(inputs, self.core_metric).items()
        }
        for name, snapshots in by_node.items():
            node = state.nodes.setdefault(name, _NodeState())
            node.latest = [*node.latest, *snapshots.latest_bottlenecks()][-MAX_LISTED:]
        no_times = np.empty(0, dtype=np.int64)
        for name, node in state.nodes.items():
            new = by_node.get(name)
            times = no_times if new is None else new.t_ns[new.is_bottleneck]
            node.phases.add(times, [steps for steps in inputs.steps if steps.node == name])
        self._decide_scans(state, inputs, by_node)
        return state

    def _decide_scans(
        self, state: BottleneckState, inputs: RuleInputs, by_node: Mapping[str, NodeSnapshots]
    ) -> None:
        """Accumulate scan by scan: a share is that of all snapshots up to the end of the scan."""
        counts_by_node = {name: snapshots.counts_by_scan() for name, snapshots in by_node.items()}
        for scan in sorted({scan for counts in counts_by_node.values() for scan in counts}):
            triggered = []
            for name, counts_by_scan in counts_by_node.items():
                if scan in counts_by_scan:
                    counts = state.nodes[name].counts
                    counts.add(counts_by_scan[scan])
                    state.total.add(counts_by_scan[scan])
                    if counts.fires(self.parameters):
                        triggered.append(name)
                        counts.mark_fired()
                        state.trigger.include(counts.extent)
            if state.total.fires(self.parameters):
                triggered.append(ALL_NODES)
                state.total.mark_fired()
                state.trigger.include(state.total.extent)
            if triggered:
                state.triggered.update(triggered)
                state.trigger.add_scans(inputs, np.array([scan]))

    def decide(self, state: BottleneckState) -> schema.Finding | None:
        total = state.total
        if not state.nodes:
            raise NotApplicable(f"no CPU core samples ({self.core_metric})")
        if not state.has_gpus:
            raise NotApplicable(samples.NO_GPU, total.snapshots, advice=samples.GPU_ADVICE)
        require_more_than(self.parameters.patience, total.snapshots, "snapshots")
        return self.finding(
            triggered=state.trigger,
            violations=total.bottlenecks,
            datapoints=total.snapshots,
            details=_details(state),
            sentences=self._sentences(state),
            nodes=state.triggered_nodes or (state.nodes if state.triggered else ()),
        )

    def _sentences(self, state: BottleneckState) -> Iterable[str]:
        p, total = self.parameters, state.total
        yield (
            f"{self.subject} above {number(self.core_threshold)}% with a GPU below "
            f"{number(p.gpu_threshold)}%: {total.describe(p)}."
        )
        if total.low:
            yield (
                f"Of the {count(total.low)} snapshots with a low GPU, "
                f"{percent(_ratio(total.bottlenecks, total.low), 1)} are such bottlenecks."
            )
        for name in state.triggered_nodes if len(state.nodes) > 1 else ():
            yield f"Node {name}: {state.nodes[name].counts.describe(p)}."


def _details(state: BottleneckState) -> BottleneckDetails:
    phase_ns: dict[str, int] = {}
    for node in state.nodes.values():
        add_times(phase_ns, node.phases.phase_ns)
    return BottleneckDetails(
        **state.total.fields(),
        nodes={
            name: NodeBottlenecks(**node.counts.fields(), latest_bottlenecks=node.latest)
            for name, node in sorted(state.nodes.items())
        },
        phase_share_ratio_of_steps_with_bottleneck=shares_of_total(phase_ns),
        steps_with_bottleneck_count=sum(node.phases.step_count for node in state.nodes.values()),
    )


def _percent_of(value: int, total: int) -> float | None:
    return round(100 * value / total, 6) if total else None


def _ratio(value: int, total: int) -> float:
    return value / total if total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUBottleneckParameters(BottleneckParameters):
    """Thresholds of a CPU bottleneck."""

    cpu_threshold: Percentage = 90.0
    """A core is busy if its utilization (%) is above this."""


class CPUBottleneck(Bottleneck[CPUBottleneckParameters]):
    """Checks whether CPU cores are busy while GPUs are not.

    ## What it checks
    Each sampling tick of a node is a snapshot, and a datapoint. It is a bottleneck, and a
    violation, if at least one GPU of the node is below `gpu_threshold` and at least one of the
    cores available to the job is above `cpu_threshold`. The rule fires if more than `threshold`
    percent of the snapshots are bottlenecks, on a node or on all nodes together.

    ## Why it matters
    GPUs that wait while cores are at their limit are waiting for batches: preprocessing is too
    expensive for the available cores.

    ## What to do
    Increase the number of DataLoader workers or their prefetching. Make preprocessing cheaper, do
    it once, or move it to the GPU.

    ## Where the numbers differ from SageMaker Debugger's
    Snapshots are per node. Debugger mixes nodes: if their clocks differ, each node adds snapshots
    of its own; if they agree, a busy core of one node is combined with an idle GPU of another.
    Debugger's report labels the share of all snapshots as a share of those with a low GPU; here
    both shares are reported, each under its name. Debugger looks at all cores of the machine,
    including those that the job may not use.
    """

    topic = "data loading"
    parameters_type = CPUBottleneckParameters
    core_metric = "cpu_busy_max_ratio"
    subject = "CPU core utilization"
    recommendation = (
        "Increase the number of DataLoader workers or their prefetching, or make preprocessing "
        "cheaper."
    )
    metrics = ("cpu_busy_max_ratio", "gpu_busy_ratio")
    evidence = ("system", "input-pipeline")
    plots = ("cpu_busy_max_ratio", "cpu_busy_ratio", "gpu_busy_ratio")

    @property
    def core_threshold(self) -> float:
        return self.parameters.cpu_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class IOBottleneckParameters(BottleneckParameters):
    """Thresholds of an I/O bottleneck."""

    io_threshold: Percentage = 50.0
    """A core waits for storage if its I/O wait (%) is above this."""


class IOBottleneck(Bottleneck[IOBottleneckParameters]):
    """Checks whether CPU cores wait for storage while GPUs are idle.

    ## What it checks
    Each sampling tick of a node is a snapshot, and a datapoint. It is a bottleneck, and a
    violation, if at least one GPU of the node is below `gpu_threshold` and at least one of the
    cores available to the job spent more than `io_threshold` percent of the time waiting for disk
    requests. The rule fires if more than `threshold` percent of the snapshots are bottlenecks, on
    a node or on all nodes together.

    ## Why it matters
    GPUs that wait while cores wait for storage are waiting for data from that storage.

    ## What to do
    Prefetch, store data in a binary format that is read in large blocks, or use faster storage.

    ## Where the numbers differ from SageMaker Debugger's
    As for CPUBottleneck: snapshots are per node, and both shares are reported. The default of
    `gpu_threshold` is that of Debugger's code and reports, 10; its documentation says 70.
    """

    topic = "data loading"
    parameters_type = IOBottleneckParameters
    core_metric = "cpu_iowait_max_ratio"
    subject = "CPU core I/O wait"
    recommendation = "Prefetch data, use a binary file format, or use faster storage."
    metrics = ("cpu_iowait_max_ratio", "gpu_busy_ratio")
    evidence = ("system", "input-pipeline")
    plots = ("cpu_iowait_max_ratio", "cpu_iowait_ratio", "gpu_busy_ratio")

    @property
    def core_threshold(self) -> float:
        return self.parameters.io_threshold
