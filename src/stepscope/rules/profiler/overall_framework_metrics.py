"""Statistics of phases, operators and kernels; never fires."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from stepscope.analysis import PART_NAMES, is_communication
from stepscope.quantities import percent
from stepscope.rules.base import IncrementalRule, NotApplicable
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import NoParameters
from stepscope.rules.samples import sort_traces
from stepscope.rules.step_phases import add_times, shares_of_total
from stepscope.rules.traces import imported_steps
from stepscope.rules.trigger import Trigger
from stepscope.schema import Finding

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


@dataclass(slots=True)
class _State:
    phase_ns: dict[str, int] = field(default_factory=dict)
    evaluation_ns: int = 0
    step_count: int = 0
    trace_count: int = 0
    part_ns: dict[str, int] = field(default_factory=dict)
    operator_ns: dict[str, int] = field(default_factory=dict)
    kernel_ns: dict[str, int] = field(default_factory=dict)
    collective_ns: dict[str, int] = field(default_factory=dict)


class OverallFrameworkMetrics(IncrementalRule[NoParameters, _State]):
    """Summarizes the time of phases, operators and kernels; never fires.

    ## What it checks
    Time of all ranks by TRAIN (batch copies, forward, loss, backward, optimizer, calls and
    execution of functions compiled by JAX, communication), EVAL and others (waits for batches,
    checkpoints, time between phases); forward against backward; and, over all traces of the
    framework's profiler, operators on the host by self time and kernels by name. Tables list
    entries above 2% of their total, and the listed entries add up to 100%. Of imported traces, also
    the parts of their steps. Datapoints are steps.

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
    run_state = _State

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        for steps in inputs.steps:
            state.step_count += len(steps)
            total_ns = int((steps.end_ns - steps.start_ns).sum())
            state.evaluation_ns += total_ns - int(steps.wall_ns.sum())
            add_times(state.phase_ns, {p: int(ns.sum()) for p, ns in steps.phase_ns.items()})
        for trace in sort_traces(inputs):
            state.trace_count += 1
            traced = imported_steps(trace)
            if traced is not None:
                state.step_count += len(traced.times)
                parts = {part: int(ns.sum()) for part, ns in traced.times.phase_ns.items()}
                add_times(state.part_ns, parts)
            add_times(state.operator_ns, trace.operator_ns)
            for name, time_ns in trace.device_ns.items():
                collective = is_communication(name)
                add_times(state.collective_ns if collective else state.kernel_ns, {name: time_ns})
        return state

    def decide(self, state: _State) -> Finding | None:
        if not state.step_count and not state.trace_count:
            raise NotApplicable("no training steps and no traces")
        details = _details(state)
        return self.finding(
            triggered=Trigger(),
            datapoints=state.step_count,
            details=details,
            sentences=_sentences(details),
        )


def _details(state: _State) -> OverallFrameworkMetricsDetails:
    train_ns = sum(state.phase_ns.get(phase, 0) for phase in TRAINING_PHASES)
    total_ns = sum(state.phase_ns.values())
    modes = {"TRAIN": train_ns, "EVAL": state.evaluation_ns, "others": total_ns - train_ns}
    passes = {phase: state.phase_ns.get(phase, 0) for phase in ("forward", "backward")}
    processors = {
        "CPU operators": sum(state.operator_ns.values()),
        "GPU kernels": sum(state.kernel_ns.values()),
    }
    return OverallFrameworkMetricsDetails(
        phase_share_ratio=shares_of_total(modes),
        step_phase_share_ratio=shares_of_total(state.phase_ns),
        step_part_share_ratio=shares_of_total(state.part_ns),
        forward_backward_share_ratio=shares_of_total(passes),
        cpu_gpu_share_ratio=shares_of_total(processors),
        cpu_operators=operator_table(state.operator_ns),
        gpu_kernels=operator_table(state.kernel_ns),
        collectives=operator_table(state.collective_ns),
        recording_count=state.trace_count,
    )


def _sentences(details: OverallFrameworkMetricsDetails) -> Iterable[str]:
    if details.phase_share_ratio:
        shares = (f"{name} {percent(v)}" for name, v in details.phase_share_ratio.items())
        yield f"Time of all ranks: {', '.join(shares)}."
    if details.step_part_share_ratio:
        parts = details.step_part_share_ratio.items()
        listed = (f"{PART_NAMES[part]} {percent(v)}" for part, v in parts if v >= MIN_LISTED_SHARE)
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
