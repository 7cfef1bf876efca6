"""What CPUBottleneck and IOBottleneck share: something is busy while a GPU is not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int
from stepscope.rules.base import IncrementalRule, NotApplicable, require_more
from stepscope.rules.firing import Firing
from stepscope.rules.inputs import NO_GPU, gpu_busy, node_samples, sampling_times, scan_ends
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.phases_at import PhasesAt, shares
from stepscope.rules.signals import Series, Signals
from stepscope.schema import Finding

LATEST = 1000
"""Bottleneck snapshots per node that the details list."""
ALL_NODES = "all nodes"
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BottleneckParameters:
    """Of both rules."""

    threshold: Percentage = 50.0
    """The rule fires when more of the snapshots (%) than this are bottlenecks."""
    gpu_threshold: Percentage = 10.0
    """A GPU is low when its utilisation (%) is below this."""
    patience: Count = 1000
    """No decision until there are more snapshots than this."""


P = TypeVar("P", bound=BottleneckParameters)


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Sampling times of one node within a range."""

    t_ns: Int
    scan: Int
    low: Int
    """How many GPUs were low."""
    busiest: Floats
    """How busy the busiest core was, as a ratio; 0 where no core was read."""
    bottleneck: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        signals: Signals,
        gpus: list[Series],
        cores: Series,
        *,
        gpu_threshold: float,
        threshold: float,
    ) -> Snapshots:
        """Readings within 20 ms are one snapshot.

        Args:
            signals: of the range.
            gpus: how busy each GPU was, as ratios.
            cores: how busy the busiest core was; not empty.
            gpu_threshold: a GPU is low below this ratio.
            threshold: a core is busy above this ratio.
        """
        times = sampling_times(signals, [cores, *gpus])
        low = np.zeros(len(times.t_ns), dtype=np.int64)
        for gpu, place in zip(gpus, times.place[1:], strict=True):
            low += np.bincount(place[gpu.value < gpu_threshold], minlength=len(low))
        busiest = np.zeros(len(low))
        first = np.flatnonzero(np.diff(times.place[0], prepend=-1))
        busiest[times.place[0][first]] = np.maximum.reduceat(cores.value, first)
        return cls(
            t_ns=times.t_ns,
            scan=times.scan,
            low=low,
            busiest=busiest,
            bottleneck=(low > 0) & (busiest > threshold),
        )


@dataclass(slots=True)
class Counts:
    """Snapshots of a node, or of all nodes."""

    datapoints: int = 0
    low: int = 0
    bottlenecks: int = 0

    def add(self, other: Counts) -> None:
        """Count more."""
        self.datapoints += other.datapoints
        self.low += other.low
        self.bottlenecks += other.bottlenecks

    def fires(self, parameters: BottleneckParameters) -> bool:
        """Enough was seen, and more than the threshold of it are bottlenecks."""
        enough = self.datapoints > parameters.patience
        return enough and 100 * self.bottlenecks > parameters.threshold * self.datapoints

    def details(self) -> dict[str, float | int | None]:
        """Counts and shares; every share says of what."""
        return {
            "snapshot_count": self.datapoints,
            "low_gpu_count": self.low,
            "bottleneck_count": self.bottlenecks,
            "bottleneck_percent_of_snapshots": _percent(self.bottlenecks, self.datapoints),
            "bottleneck_percent_of_low_gpu": _percent(self.bottlenecks, self.low),
        }


@dataclass(slots=True)
class _Node:
    counts: Counts = field(default_factory=Counts)
    phases: PhasesAt = field(default_factory=PhasesAt)
    latest: list[dict[str, float]] = field(default_factory=list)


@dataclass(slots=True)
class BottleneckState:
    """Counts by node and in all."""

    nodes: dict[str, _Node] = field(default_factory=dict)
    total: Counts = field(default_factory=Counts)
    firing: Firing = field(default_factory=Firing)
    where: set[str] = field(default_factory=set)
    gpus_seen: bool = False


class Bottleneck(IncrementalRule[P, BottleneckState], Generic[P]):
    """Counts snapshots in which a GPU is low and at least one core above a threshold."""

    metric: ClassVar[str]
    """Of the busiest core."""
    subject: ClassVar[str]
    """What is busy, such as "CPU utilisation"."""

    @property
    def busy_threshold(self) -> float:
        """Per cent above which a core counts."""
        raise NotImplementedError

    def start(self) -> BottleneckState:
        return BottleneckState()

    def update(self, state: BottleneckState, signals: Signals) -> BottleneckState:
        p = self.parameters
        gpus: dict[str, list[Series]] = {}
        for device, series in gpu_busy(signals).items():
            gpus.setdefault(device.node, []).append(series)
        state.gpus_seen |= bool(gpus)
        found = {}
        for node, cores in node_samples(signals, self.metric).items():
            found[node] = Snapshots.of(
                signals,
                gpus.get(node, []),
                cores,
                gpu_threshold=p.gpu_threshold / 100,
                threshold=self.busy_threshold / 100,
            )
            _keep_latest(state.nodes.setdefault(node, _Node()), found[node])
        nothing = np.empty(0, dtype=np.int64)
        for name, known in state.nodes.items():
            seen = found.get(name)
            moments = nothing if seen is None else seen.t_ns[seen.bottleneck]
            known.phases.add(moments, [s for s in signals.steps if s.node == name])
        self._decide_scans(state, signals, found)
        return state

    def _decide_scans(
        self, state: BottleneckState, signals: Signals, found: dict[str, Snapshots]
    ) -> None:
        """Add up scan by scan: a share is that of everything up to the end of the scan."""
        portions = {node: _by_scan(seen) for node, seen in found.items()}
        every = sorted({scan for portion in portions.values() for scan in portion})
        for scan in every:
            where = []
            for node, portion in portions.items():
                if scan in portion:
                    counts = state.nodes[node].counts
                    counts.add(portion[scan])
                    state.total.add(portion[scan])
                    where += [node] if counts.fires(self.parameters) else []
            if state.total.fires(self.parameters):
                where.append(ALL_NODES)
            if where:
                state.where.update(where)
                state.firing.add(scan_ends(signals, np.array([scan])))

    def decide(self, state: BottleneckState) -> Finding | None:
        total = state.total
        if not state.nodes:
            raise NotApplicable(f"no core was sampled ({self.metric})")
        if not state.gpus_seen:
            raise NotApplicable(NO_GPU, total.datapoints)
        require_more(total.datapoints, self.parameters.patience, "snapshots")
        phase_ns: dict[str, int] = {}
        for node in state.nodes.values():
            for phase, time_ns in node.phases.phase_ns.items():
                phase_ns[phase] = phase_ns.get(phase, 0) + time_ns
        return self.finding(
            triggered=state.firing,
            violations=total.bottlenecks,
            datapoints=total.datapoints,
            details={
                **total.details(),
                "nodes": {
                    name: {**node.counts.details(), "latest_bottlenecks": node.latest}
                    for name, node in sorted(state.nodes.items())
                },
                "phase_share_ratio_of_steps_with_bottleneck": shares(phase_ns),
                "steps_with_bottleneck_count": sum(
                    node.phases.step_count for node in state.nodes.values()
                ),
            },
            sentences=self._sentences(state),
            nodes=sorted(state.where - {ALL_NODES}) or (state.nodes if state.where else ()),
        )

    def _sentences(self, state: BottleneckState) -> Iterable[str]:
        p, total = self.parameters, state.total
        share, of_low = (
            _percent(total.bottlenecks, total.datapoints),
            _percent(total.bottlenecks, total.low),
        )
        yield (
            f"{self.subject} was above {self.busy_threshold:g} % while a GPU was below "
            f"{p.gpu_threshold:g} % in {total.bottlenecks} of {total.datapoints} snapshots: "
            f"{share or 0:.2f} % of the time; the threshold is {p.threshold:g} %."
        )
        if of_low is not None:
            yield (
                f"A GPU was low in {total.low} snapshots; {of_low:.2f} % of these are such "
                "bottlenecks."
            )
        for name in sorted(state.where - {ALL_NODES}):
            counts = state.nodes[name].counts
            if len(state.nodes) > 1:
                yield (
                    f"On {name}: {counts.bottlenecks} of {counts.datapoints} snapshots "
                    f"({_percent(counts.bottlenecks, counts.datapoints) or 0:.2f} %)."
                )


def _keep_latest(node: _Node, seen: Snapshots) -> None:
    which = np.flatnonzero(seen.bottleneck)[-LATEST:]
    columns = (seen.t_ns, seen.low, np.round(100 * seen.busiest, 6))
    node.latest += [
        {"t_ns": t_ns, "low_gpu_count": low, "busiest_core_percent": busiest}
        for t_ns, low, busiest in zip(*(each[which].tolist() for each in columns), strict=True)
    ]
    del node.latest[:-LATEST]


def _by_scan(seen: Snapshots) -> dict[int, Counts]:
    scans, number = np.unique(seen.scan, return_inverse=True)
    low = seen.low > 0
    columns = (
        np.bincount(number, minlength=len(scans)),
        np.bincount(number, weights=low, minlength=len(scans)),
        np.bincount(number, weights=seen.bottleneck, minlength=len(scans)),
    )
    rows = np.stack(columns, axis=1).astype(np.int64).tolist()
    return {scan: Counts(*row) for scan, row in zip(scans.tolist(), rows, strict=True)}


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 6) if whole else None
