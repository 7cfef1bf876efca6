"""Templates of incremental rules: a statistic per device, a statistic per rank, results per trace.

A rule supplies the state of one device or rank, its update by new data, and the details and
sentences; `PerDeviceRule` and `PerRankRule` supply everything that such rules have in common.
`TraceResults` is for rules that evaluate traces, alone or in addition to steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from stepscope.analysis import Device, Series
from stepscope.rules.base import IncrementalRule, NotApplicable, P, require_more_than
from stepscope.rules.inputs import RankStepTimes, RuleInputs, RuleTrace
from stepscope.rules.samples import NO_STEPS
from stepscope.rules.trigger import Trigger
from stepscope.schema import Finding


@dataclass(slots=True, kw_only=True)
class DeviceState:
    """State of one device; a rule adds its own fields."""

    datapoint_count: int = 0
    violation_count: int = 0
    triggered: bool = False


@dataclass(slots=True, kw_only=True)
class RankState:
    """State of one rank; a rule adds its own fields."""

    node: str
    step_count: int = 0
    """Steps that count: the datapoints."""
    violation_count: int = 0
    triggered: bool = False


D = TypeVar("D", bound=DeviceState)
R = TypeVar("R", bound=RankState)
T = TypeVar("T", bound=msgspec.Struct)
Devices = Mapping[Device, D]
Ranks = Mapping[str, R]


@dataclass(slots=True)
class DeviceStates(Generic[D]):
    """State of a rule with a statistic per device."""

    devices: dict[Device, D] = field(default_factory=dict)
    trigger: Trigger = field(default_factory=Trigger)


class PerDeviceRule(IncrementalRule[P, DeviceStates[D]], Generic[P, D]):
    """Evaluates a statistic of the samples of each device at the end of each scan.

    Datapoints are those of the device that has most; violations are those of all devices.
    """

    unit: ClassVar[str] = "samples per GPU"
    """Unit of the datapoints, for the message about too few of them."""
    missing: ClassVar[str]
    """Reason why the rule does not apply to a run without such samples."""

    @property
    def patience_count(self) -> int:
        """Number of datapoints that a device must exceed."""
        raise NotImplementedError

    def samples(self, inputs: RuleInputs) -> Mapping[Device, Series]:
        """Return the sorted samples of each device."""
        raise NotImplementedError

    def new_device(self) -> D:
        """Return the state of a device before any samples."""
        raise NotImplementedError

    def update_device(
        self, device: D, series: Series, inputs: RuleInputs, trigger: Trigger
    ) -> None:
        """Add samples to the state of a device, and scans in which the condition held."""
        raise NotImplementedError

    def details(self, devices: Devices[D]) -> msgspec.Struct:
        """Return the numbers behind the sentences."""
        raise NotImplementedError

    def sentences(self, devices: Devices[D], triggered: Devices[D]) -> Iterable[str]:
        """Describe all devices and those on which the rule fired."""
        raise NotImplementedError

    def start(self) -> DeviceStates[D]:
        return DeviceStates()

    def update(self, state: DeviceStates[D], inputs: RuleInputs) -> DeviceStates[D]:
        for name, series in self.samples(inputs).items():
            if name not in state.devices:
                state.devices[name] = self.new_device()
            self.update_device(state.devices[name], series, inputs, state.trigger)
        return state

    def decide(self, state: DeviceStates[D]) -> Finding | None:
        if not state.devices:
            raise NotApplicable(self.missing)
        devices = dict(sorted(state.devices.items()))
        datapoint_count = max(device.datapoint_count for device in devices.values())
        require_more_than(self.patience_count, datapoint_count, self.unit)
        triggered = {name: device for name, device in devices.items() if device.triggered}
        return self.finding(
            triggered=state.trigger,
            violations=sum(device.violation_count for device in devices.values()),
            datapoints=datapoint_count,
            details=self.details(devices),
            sentences=self.sentences(devices, triggered),
            devices=triggered,
        )


@dataclass(slots=True)
class TraceResults(Generic[T]):
    """Details of traces by name, and the rank of each trace on which the rule fired."""

    details: dict[str, T] = field(default_factory=dict)
    triggered: dict[str, str] = field(default_factory=dict)

    def add(
        self, trace: RuleTrace, details: T, *, fires: bool, inputs: RuleInputs, trigger: Trigger
    ) -> None:
        """Add a trace, and the scan in which it ended if the rule fires on it."""
        self.details[trace.name] = details
        if fires:
            self.triggered[trace.name] = trace.rank
            trigger.add_times(inputs, [trace.end_ns - 1])


@dataclass(slots=True)
class RankStates(Generic[R, T]):
    """State of a rule with a statistic per rank, and with results per trace."""

    ranks: dict[str, R] = field(default_factory=dict)
    traces: TraceResults[T] = field(default_factory=TraceResults)
    trigger: Trigger = field(default_factory=Trigger)


K = TypeVar("K", bound=RankStates[Any, Any])


class PerRankRule(IncrementalRule[P, K], Generic[P, R, K]):
    """Evaluates a statistic of the steps of each rank.

    Datapoints and violations are those of all ranks, plus traces if the rule evaluates them.
    """

    def update_rank(self, state: K, steps: RankStepTimes, inputs: RuleInputs) -> None:
        """Add steps to the state of their rank, and scans in which the condition held."""
        raise NotImplementedError

    def require_inputs(self, state: K) -> None:
        """Raise NotApplicable unless there is enough data for a decision."""
        if not state.ranks:
            raise NotApplicable(NO_STEPS)

    def evaluated_ranks(self, state: K) -> dict[str, R]:
        """Return the ranks that have enough data, sorted by name."""
        return dict(sorted(state.ranks.items()))

    def datapoint_count(self, state: K) -> int:
        """Count the steps of all ranks and the traces."""
        ranks: Iterable[RankState] = state.ranks.values()
        return sum(rank.step_count for rank in ranks) + len(state.traces.details)

    def violation_count(self, rank: R) -> int:
        """Count the violations of one rank."""
        return rank.violation_count

    def details(self, state: K, ranks: Ranks[R]) -> msgspec.Struct:
        """Return the numbers behind the sentences."""
        raise NotImplementedError

    def sentences(self, state: K, ranks: Ranks[R], triggered: Ranks[R]) -> Iterable[str]:
        """Describe the evaluated ranks and those on which the rule fired."""
        raise NotImplementedError

    def update(self, state: K, inputs: RuleInputs) -> K:
        for steps in inputs.steps:
            self.update_rank(state, steps, inputs)
        return state

    def decide(self, state: K) -> Finding | None:
        self.require_inputs(state)
        ranks = self.evaluated_ranks(state)
        triggered = {name: rank for name, rank in ranks.items() if rank.triggered}
        violation_count = sum(self.violation_count(rank) for rank in ranks.values())
        return self.finding(
            triggered=state.trigger,
            violations=violation_count + len(state.traces.triggered),
            datapoints=self.datapoint_count(state),
            details=self.details(state, ranks),
            sentences=self.sentences(state, ranks, triggered),
            ranks=[*triggered, *state.traces.triggered.values()],
            nodes={rank.node for rank in triggered.values()},
        )
