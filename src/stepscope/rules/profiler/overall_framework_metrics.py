"""Statistics of phases, operators and kernels; never fires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepscope.analysis import is_communication
from stepscope.rules.base import IncrementalRule, NotApplicable
from stepscope.rules.firing import Firing
from stepscope.rules.inputs import recordings
from stepscope.rules.parameters import NoParameters
from stepscope.rules.phases_at import shares
from stepscope.rules.signals import Signals
from stepscope.schema import Finding

TRAINING = ("h2d", "forward", "loss", "backward", "optimizer", "communication")
"""Phases that count as TRAIN; waiting, checkpoints and the time between phases are others."""
LISTED_ABOVE = 0.02
"""Share of all that an operator needs to be in its table."""


@dataclass(slots=True)
class _State:
    phase_ns: dict[str, int] = field(default_factory=dict)
    evaluation_ns: int = 0
    step_count: int = 0
    recording_count: int = 0
    operator_ns: dict[str, int] = field(default_factory=dict)
    kernel_ns: dict[str, int] = field(default_factory=dict)
    collective_ns: dict[str, int] = field(default_factory=dict)


class OverallFrameworkMetrics(IncrementalRule[NoParameters, _State]):
    """Sums up what the framework spent its time on; never fires.

    ## What it checks
    Time of all ranks by TRAIN (copying batches, forward, loss, backward, optimizer,
    communication), EVAL and others (waiting for batches, checkpoints, the time between phases);
    forward against backward; and of all recordings of the framework's profiler, operators on the
    host by their own time and kernels by name. Tables list what has more than 2 % of their sum,
    and the listed ones add up to 100 %. Datapoints are steps.

    ## Why it matters
    Most of the time should go into training phases, and the first operator of a table is the one
    that pays for an improvement.

    ## What to do
    Look at the largest entries; `stepscope show RUN operators` and `kernels` say where they come
    from.

    ## Where the numbers differ from SageMaker Debugger's
    Operators count their own time, without the operators that they call; Debugger counts nested
    ones again in each that is around them. Debugger's "others" adds itself up at every update, and
    its CPU and GPU ratios have each other's labels.
    """

    evidence = ("steps", "operators", "kernels")

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        for steps in signals.steps:
            state.step_count += len(steps)
            extent = int((steps.end_ns - steps.start_ns).sum())
            state.evaluation_ns += extent - int(steps.wall_ns.sum())
            _add(state.phase_ns, {p: int(ns.sum()) for p, ns in steps.phase_ns.items()})
        for recording in recordings(signals):
            state.recording_count += 1
            _add(state.operator_ns, recording.operator_ns)
            kernels = recording.device_ns
            _add(state.kernel_ns, {n: ns for n, ns in kernels.items() if not is_communication(n)})
            _add(state.collective_ns, {n: ns for n, ns in kernels.items() if is_communication(n)})
        return state

    def decide(self, state: _State) -> Finding | None:
        if not state.step_count and not state.recording_count:
            raise NotApplicable("the run holds neither training steps nor recordings")
        train = sum(state.phase_ns.get(phase, 0) for phase in TRAINING)
        whole = sum(state.phase_ns.values())
        phases = {"TRAIN": train, "EVAL": state.evaluation_ns, "others": whole - train}
        passes = {p: state.phase_ns.get(p, 0) for p in ("forward", "backward")}
        host, device = sum(state.operator_ns.values()), sum(state.kernel_ns.values())
        details: dict[str, Any] = {
            "phase_share_ratio": shares(phases),
            "step_phase_share_ratio": shares(state.phase_ns),
            "forward_backward_share_ratio": shares(passes),
            "cpu_gpu_share_ratio": shares({"CPU operators": host, "GPU kernels": device}),
            "cpu_operators": operator_table(state.operator_ns),
            "gpu_kernels": operator_table(state.kernel_ns),
            "collectives": operator_table(state.collective_ns),
            "recording_count": state.recording_count,
        }
        return self.finding(
            triggered=Firing(),
            datapoints=state.step_count,
            details=details,
            sentences=_sentences(details),
        )


def _sentences(details: Mapping[str, Any]) -> list[str]:
    said = []
    if details["phase_share_ratio"]:
        parts = [f"{name} {share:.0%}" for name, share in details["phase_share_ratio"].items()]
        said.append(f"The ranks spent their time on {', '.join(parts)}.")
    for key, what in (("cpu_operators", "operator on the CPU"), ("gpu_kernels", "kernel")):
        if details[key]:
            first = details[key][0]
            said.append(
                f"The most expensive {what} is {first['name']} with {int(first['percent'])} %."
            )
    return said


def operator_table(time_ns: Mapping[str, int]) -> list[dict[str, str | int | float]]:
    """Names with more than 2 % of the sum, longest first; their percentages add up to 100."""
    whole = sum(time_ns.values())
    listed = {name: ns for name, ns in time_ns.items() if ns > LISTED_ABOVE * whole}
    return [
        {"name": name, "time_ns": listed[name], "percent": round(100 * share, 6)}
        for name, share in shares(listed).items()
    ]


def _add(times: dict[str, int], more: Mapping[str, int]) -> None:
    for name, time_ns in more.items():
        times[name] = times.get(name, 0) + time_ns
