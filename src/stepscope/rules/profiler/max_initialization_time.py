"""Late start of training."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from stepscope import intervals, quantities, schema
from stepscope.rules.base import IncrementalRule, NotApplicable, Trigger
from stepscope.rules.inputs import RuleInputs, scan_indices
from stepscope.rules.parameters import Positive, duration_beside

MINUTE_NS = 60_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxInitializationTimeParameters:
    """Limit of the time before the first step."""

    threshold: Positive = 20.0
    """Minutes from the start of the job that may pass without a step."""


class MaxInitializationTimeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Start and end of the job and of its steps, in epoch nanoseconds."""

    initialization_minutes: float = 0.0
    """Time from the start of the job to the first step, or to its end so far."""
    job_start_ns: int = 0
    job_end_ns: int = 0
    first_step_start_ns: int | None = None
    last_step_end_ns: int | None = None


class _State(msgspec.Struct):
    origin_ns: int = 0
    end_ns: int = 0
    first_start_ns: int | None = None
    last_end_ns: int | None = None
    step_count: int = 0
    is_monitored: bool = False
    recording_end_ns: int | None = None
    """End of the recording of steps, if it has one."""
    trigger: Trigger = msgspec.field(default_factory=Trigger)


class MaxInitializationTime(IncrementalRule[MaxInitializationTimeParameters, _State]):
    """Checks whether the first training step comes late.

    ## What it checks
    Each scan that starts more than `threshold` minutes after the job, while no step has ended,
    fires the rule and is a violation. Datapoints are steps. The details hold the start and end of
    the job and of its first and last step, for the summary of a report.

    ## Why it matters
    Machines cost money while datasets are downloaded, unpacked and indexed.

    ## What to do
    Stream the data instead of downloading all of it first. Keep it preprocessed. Start fewer
    processes that do the same work.

    ## Where the numbers differ from SageMaker Debugger's
    The condition is the same. Debugger's report calls the threshold a percentage; it is minutes.
    The start is that of the job, by the creation of its run, not by its first sample.
    """

    topic = "framework overhead"
    parameters_type = MaxInitializationTimeParameters
    recommendation = "Stream the training data instead of downloading all of it before training."
    evidence = ("overview",)
    plots = ("cpu_busy_ratio", "gpu_busy_ratio")
    missing_in_traces = "imported traces do not show when the job started"
    run_state = _State

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        state.origin_ns, state.end_ns = inputs.origin_ns, inputs.end_ns
        state.is_monitored |= bool(inputs.nodes)
        had_steps = state.step_count > 0
        new = [steps for steps in inputs.steps if len(steps)]
        if new:
            state.step_count += sum(len(steps) for steps in new)
            first = min(int(steps.start_ns[0]) for steps in new)
            last = max(int(steps.end_ns[-1]) for steps in new)
            state.first_start_ns = min(first, state.first_start_ns or first)
            state.last_end_ns = max(last, state.last_end_ns or last)
        if not had_steps and inputs.nodes:
            ends = [node.recording_end_ns for node in inputs.nodes.values()]
            state.recording_end_ns = min((end for end in ends if end is not None), default=None)
            until_ns = min((int(steps.end_ns[0]) for steps in new), default=inputs.end_ns)
            until_ns = min(until_ns, state.recording_end_ns or until_ns)
            state.trigger.add_scans(inputs, self._late_scans(inputs, until_ns))
        return state

    def _late_scans(self, inputs: RuleInputs, until_ns: int) -> intervals.Int:
        """Return the scans of the range that started too late and contain no end of a step."""
        times = np.array([inputs.start_ns, until_ns - 1], dtype=np.int64)
        first, last = scan_indices(inputs, times).tolist()
        last -= until_ns < inputs.end_ns  # that scan contains the end of the first step
        first_late = int(self.parameters.threshold * MINUTE_NS) // inputs.scan_ns + 1
        return np.arange(max(first, first_late), last + 1)

    def decide(self, state: _State) -> schema.Finding | None:
        if not state.is_monitored:
            raise NotApplicable("no node has been monitored")
        has_started = state.first_start_ns is not None
        until_ns = min(state.end_ns, state.recording_end_ns or state.end_ns)
        if not has_started and until_ns < state.end_ns and not len(state.trigger):
            raise NotApplicable("the recording of steps ended before the first step")
        start_ns = until_ns if state.first_start_ns is None else state.first_start_ns
        extent = Trigger()
        extent.cover(state.origin_ns, min(start_ns, state.end_ns - 1))
        wait_ns = max(0, start_ns - state.origin_ns)
        threshold = self.parameters.threshold
        event = "First training step after" if has_started else "No training step after"
        return self.finding(
            triggered=state.trigger,
            extent=extent,
            violations=len(state.trigger),
            datapoints=state.step_count,
            details=MaxInitializationTimeDetails(
                initialization_minutes=round(wait_ns / MINUTE_NS, 6),
                job_start_ns=state.origin_ns,
                job_end_ns=state.end_ns,
                first_step_start_ns=state.first_start_ns,
                last_step_end_ns=state.last_end_ns,
            ),
            sentences=[
                f"{event} {duration_beside(wait_ns, MINUTE_NS * threshold)} (threshold "
                f"{quantities.number(threshold)} min)."
            ],
        )
