"""Jobs that record no more tensors."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from stepscope import quantities, schema
from stepscope.rules.base import IncrementalRule, NotRecorded, Trigger
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Positive
from stepscope.rules.tensor.base import NO_TENSORS, TENSOR_ADVICE


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledTrainingParameters:
    """Length of a pause."""

    threshold: Positive = 1800.0
    """The rule fires if no tensor and no loss is recorded for longer than this (seconds)."""


class StalledTrainingDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses of all processes together."""

    longest_pause_s: float = 0.0
    """Longest time between two records, or since the last one."""
    pause_count: int = 0
    """Pauses longer than the threshold."""


class _State(msgspec.Struct):
    latest_ns: int | None = None
    record_count: int = 0
    longest_ns: int = 0
    pause_count: int = 0
    open_ns: int = 0
    """Time since the last record at the end of the range."""
    trigger: Trigger = msgspec.field(default_factory=Trigger)


class StalledTrainingRule(IncrementalRule[StalledTrainingParameters, _State]):
    """Checks whether training has stopped going on.

    ## What it checks
    The time between the records of tensors and losses of all processes, and the time since the last
    one. The rule fires if it is above `threshold` seconds. Datapoints are records, violations
    pauses above the threshold.

    ## Why it matters
    A job that hangs costs as much as one that trains.

    ## What to do
    Look at the stacks of the training threads: `stepscope show RUN input-pipeline` and the timeline
    show the last samples. The option `--stop-on StalledTrainingRule` ends such a job.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger's `stop_training_on_fire` and `training_job_name_prefix` are the option `--stop-on`
    here.
    """

    topic = "losses"
    parameters_type = StalledTrainingParameters
    recommendation = "Look at the stacks of the training threads; stop a job that hangs."
    evidence = ("timeline", "steps")
    missing_in_traces = "imported traces have no records of tensors and losses"
    run_state = _State

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        recorded = [series.t_ns for series in inputs.tensors]
        recorded += [series.t_ns for series in inputs.scalars]
        times = sorted(t_ns for t in recorded for t_ns in dict.fromkeys(t.tolist()))
        limit_ns = round(self.parameters.threshold * 1e9)
        state.record_count += len(times)
        for t_ns in times:
            self._add_pause(state, t_ns, limit_ns, inputs)
            state.latest_ns = max(t_ns, state.latest_ns or t_ns)
        state.open_ns = inputs.end_ns - state.latest_ns if state.latest_ns is not None else 0
        if state.latest_ns is not None and state.open_ns > limit_ns:
            state.trigger.add_times(inputs, [state.latest_ns + limit_ns])
            state.trigger.cover(state.latest_ns, state.latest_ns + state.open_ns)
        return state

    def _add_pause(self, state: _State, t_ns: int, limit_ns: int, inputs: RuleInputs) -> None:
        """Count the pause before a record."""
        if state.latest_ns is None:
            return
        pause_ns = t_ns - state.latest_ns
        state.longest_ns = max(pause_ns, state.longest_ns)
        if pause_ns > limit_ns:
            state.pause_count += 1
            state.trigger.add_times(inputs, [state.latest_ns + limit_ns])
            state.trigger.cover(state.latest_ns, t_ns)

    def decide(self, state: _State) -> schema.Finding | None:
        if state.latest_ns is None:
            raise NotRecorded(NO_TENSORS, advice=TENSOR_ADVICE)
        is_open = state.open_ns > self.parameters.threshold * 1e9
        longest_ns = max(state.longest_ns, state.open_ns)
        pause_count = state.pause_count + is_open
        return self.finding(
            triggered=state.trigger,
            violations=pause_count,
            datapoints=state.record_count,
            details=StalledTrainingDetails(
                longest_pause_s=longest_ns / 1e9, pause_count=pause_count
            ),
            sentences=[
                f"No tensor or loss was recorded for {quantities.duration(longest_ns)}"
                f"{', up to the end of the recorded time' if is_open else ''}."
            ]
            if pause_count
            else [],
        )
