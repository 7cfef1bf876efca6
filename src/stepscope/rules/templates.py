"""Templates of incremental rules: a statistic per device, a statistic per rank, results per trace.

A rule supplies the state of one device or rank, its update by new data, and the details and
sentences; `PerDeviceRule` and `PerRankRule` supply everything that such rules have in common.
`TraceResults` is for rules that evaluate traces, alone or in addition to steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from stepscope import analysis, intervals, schema
from stepscope.rules.base import IncrementalRule, NotApplicable, P, Trigger, require_more_than
from stepscope.rules.inputs import (
    RankStepTimes,
    RuleInputs,
    RuleTrace,
    TracedGpu,
    TracedSteps,
    imported_steps,
)
from stepscope.rules.samples import NO_STEPS, STEP_ADVICE, sort_traces


class DeviceState(msgspec.Struct, kw_only=True):
    """State of one device; a rule adds its own fields."""

    datapoint_count: int = 0
    violation_count: int = 0
    triggered: bool = False


class RankState(msgspec.Struct, kw_only=True):
    """State of one rank; a rule adds its own fields."""

    node: str
    """Empty for the steps of traces."""
    step_count: int = 0
    """Steps that count: the datapoints."""
    violation_count: int = 0
    triggered: bool = False


D = TypeVar("D", bound=DeviceState)
R = TypeVar("R", bound=RankState)
T = TypeVar("T", bound=msgspec.Struct)


class GpuInTrace(NamedTuple):
    """Results of one GPU in one trace of a job that was not watched."""

    details: msgspec.Struct
    """As the rule's details have for each GPU."""
    datapoint_count: int
    violation_count: int
    sentence: str


Devices = Mapping[analysis.Device, D]
Ranks = Mapping[str, R]


@dataclass(slots=True)
class DeviceStates(Generic[D]):
    """State of a rule with a statistic per device."""

    devices: dict[analysis.Device, D] = field(default_factory=dict)
    in_traces: dict[str, GpuInTrace] = field(default_factory=dict)
    """By trace and GPU."""
    triggered_ranks: set[str] = field(default_factory=set)
    """Ranks of the traces on which the rule fired."""
    trigger: Trigger = field(default_factory=Trigger)


class PerDeviceRule(IncrementalRule[P, DeviceStates[D]], Generic[P, D]):
    """Evaluates a statistic of the samples of each device at the end of each scan.

    Datapoints are those of the device that has most; violations are those of all devices. Steps of
    imported traces count where no device was sampled.
    """

    unit: ClassVar[str] = "samples per GPU"
    """Unit of the datapoints, for the message about too few of them."""
    missing: ClassVar[str]
    """Reason why the rule does not apply to a run without such samples."""
    advice: ClassVar[str] = ""
    """What to do to get such samples."""
    details_type: ClassVar[type[Any]]
    """Details of the rule, with those of each GPU in the field `gpus`."""
    run_state = DeviceStates

    @property
    def patience_count(self) -> int:
        """Number of datapoints that a device must exceed."""
        raise NotImplementedError

    @staticmethod
    def samples(inputs: RuleInputs) -> Mapping[analysis.Device, analysis.Series]:
        """Return the sorted samples of each device."""
        raise NotImplementedError

    def new_device(self) -> D:
        """Return the state of a device before any samples."""
        raise NotImplementedError

    def update_device(
        self, device: D, series: analysis.Series, inputs: RuleInputs, trigger: Trigger
    ) -> None:
        """Add samples to the state of a device, and scans in which the condition held."""
        raise NotImplementedError

    def evaluate_in_trace(self, gpu: TracedGpu, steps: TracedSteps) -> GpuInTrace | None:
        """Evaluate the steps of one GPU; None if they lack what the rule needs."""
        return None

    def details_of(self, device: D) -> msgspec.Struct:
        """Return the numbers of one device behind the sentences."""
        raise NotImplementedError

    def details(self, devices: Devices[D]) -> Any:
        """Return the numbers behind the sentences."""
        gpus = {str(name): self.details_of(device) for name, device in devices.items()}
        return self.details_type(gpus=gpus)

    def sentences(self, devices: Devices[D], triggered: Devices[D]) -> Iterable[str]:
        """Describe all devices and those on which the rule fired."""
        raise NotImplementedError

    def update(self, state: DeviceStates[D], inputs: RuleInputs) -> DeviceStates[D]:
        for name, series in self.samples(inputs).items():
            if name not in state.devices:
                state.devices[name] = self.new_device()
            self.update_device(state.devices[name], series, inputs, state.trigger)
        for trace in sort_traces(inputs):
            self._add_trace(state, trace, inputs)
        return state

    def _add_trace(self, state: DeviceStates[D], trace: RuleTrace, inputs: RuleInputs) -> None:
        steps = None if trace.is_watched else trace.steps
        if steps is None:
            return
        for gpu in trace.gpus:
            result = self.evaluate_in_trace(gpu, steps)
            if result is not None:
                state.in_traces[f"{trace.name}, GPU {gpu.number}"] = result
                if result.violation_count:
                    state.triggered_ranks.add(trace.rank)
                    state.trigger.add_times(inputs, [trace.end_ns - 1])
                    state.trigger.cover(steps.times.start_ns, steps.times.end_ns)

    def decide(self, state: DeviceStates[D]) -> schema.Finding | None:
        if not state.devices:
            return self._decide_on_traces(state)
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

    def _decide_on_traces(self, state: DeviceStates[D]) -> schema.Finding:
        results = state.in_traces
        if not results:
            raise NotApplicable(self.missing, advice=self.advice)
        return self.finding(
            triggered=state.trigger,
            violations=sum(result.violation_count for result in results.values()),
            datapoints=sum(result.datapoint_count for result in results.values()),
            details=self.details_type(gpus={name: r.details for name, r in results.items()}),
            sentences=[f"Trace {name}: {result.sentence}" for name, result in results.items()],
            ranks=state.triggered_ranks,
        )


@dataclass(slots=True)
class TraceResults(Generic[T]):
    """Details of traces by name, and the rank of each trace on which the rule fired."""

    details: dict[str, T] = field(default_factory=dict)
    triggered: dict[str, str] = field(default_factory=dict)

    def add(
        self, trace: RuleTrace, details: T, *, fires: bool, inputs: RuleInputs, trigger: Trigger
    ) -> None:
        """Add a trace, and its extent and the scan in which it ended if the rule fires on it."""
        self.details[trace.name] = details
        if fires:
            self.triggered[trace.name] = trace.rank
            trigger.add_times(inputs, [trace.end_ns - 1])
            trigger.cover(trace.start_ns, trace.end_ns)


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

    def update_traced(self, state: K, steps: TracedSteps, inputs: RuleInputs) -> None:
        """Add the marked steps of a trace of a job that was not watched."""

    def update_rank(self, state: K, steps: RankStepTimes, inputs: RuleInputs) -> None:
        """Add steps to the state of their rank, and scans in which the condition held."""
        raise NotImplementedError

    def require_inputs(self, state: K) -> None:
        """Raise NotApplicable unless there is enough data for a decision."""
        if not state.ranks:
            raise NotApplicable(NO_STEPS, advice=STEP_ADVICE)

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

    def extent(self, state: K, triggered: Ranks[R]) -> Trigger:
        """Return the extent of the data that violated the condition."""
        return state.trigger

    def details(self, state: K, ranks: Ranks[R]) -> msgspec.Struct:
        """Return the numbers behind the sentences."""
        raise NotImplementedError

    def sentences(self, state: K, ranks: Ranks[R], triggered: Ranks[R]) -> Iterable[str]:
        """Describe the evaluated ranks and those on which the rule fired."""
        raise NotImplementedError

    def select_steps(self, inputs: RuleInputs) -> Sequence[RankStepTimes]:
        """Return the new steps that the rule evaluates."""
        return inputs.steps

    def update(self, state: K, inputs: RuleInputs) -> K:
        for steps in self.select_steps(inputs):
            self.update_rank(state, steps, inputs)
        for trace in sort_traces(inputs):
            traced = imported_steps(trace)
            if traced is not None:
                self.update_traced(state, traced, inputs)
        return state

    def decide(self, state: K) -> schema.Finding | None:
        self.require_inputs(state)
        ranks = self.evaluated_ranks(state)
        triggered = {name: rank for name, rank in ranks.items() if rank.triggered}
        violation_count = sum(self.violation_count(rank) for rank in ranks.values())
        return self.finding(
            triggered=state.trigger,
            extent=self.extent(state, triggered),
            violations=violation_count + len(state.traces.triggered),
            datapoints=self.datapoint_count(state),
            details=self.details(state, ranks),
            sentences=self.sentences(state, ranks, triggered),
            ranks=[*triggered, *state.traces.triggered.values()],
            nodes={rank.node for rank in triggered.values()} - {""},
        )


MAX_PENDING = 100_000
"""Times kept per node until the steps that contain them have ended."""


class PhasesAtTimes(msgspec.Struct):
    """Phase times of the steps of one node that contain given times; each step counts once."""

    phase_ns: dict[str, int] = msgspec.field(default_factory=dict)
    step_count: int = 0
    pending: intervals.Int = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def add(self, times: intervals.Int, steps: list[RankStepTimes]) -> None:
        """Add new times of the node and the new steps of its ranks."""
        pending = np.sort(np.concatenate([self.pending, times]))
        if not len(pending):
            return
        for rank_steps in steps:
            first = np.searchsorted(pending, rank_steps.start_ns)
            contains = np.searchsorted(pending, rank_steps.end_ns) > first
            self.step_count += int(contains.sum())
            add_times(
                self.phase_ns,
                {phase: int(ns[contains].sum()) for phase, ns in rank_steps.phase_ns.items()},
            )
        ends = [int(rank_steps.end_ns[-1]) for rank_steps in steps if len(rank_steps)]
        if ends:
            pending = pending[np.searchsorted(pending, min(ends)) :]
        self.pending = pending[-MAX_PENDING:]


def add_times(totals: dict[str, int], times: Mapping[str, int]) -> None:
    """Add times to totals by name."""
    for name, time_ns in times.items():
        totals[name] = totals.get(name, 0) + time_ns


def shares_of_total(times: Mapping[str, float]) -> dict[str, float]:
    """Return each value as a share of the total, largest first; empty if the total is 0.

    >>> shares_of_total({"a": 1, "b": 3})
    {'b': 0.75, 'a': 0.25}
    """
    total = sum(times.values())
    ordered = sorted(times.items(), key=lambda item: -item[1])
    return {name: value / total for name, value in ordered if value} if total else {}
