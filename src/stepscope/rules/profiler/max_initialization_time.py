"""Training begins late."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stepscope.rules.base import IncrementalRule, NotApplicable
from stepscope.rules.firing import Firing
from stepscope.rules.inputs import scan_ends
from stepscope.rules.parameters import Positive
from stepscope.rules.signals import Signals, scan_numbers
from stepscope.schema import Finding

MINUTE_NS = 60_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxInitializationTimeParameters:
    """How long is too long."""

    threshold: Positive = 20.0
    """Minutes from the job's beginning that may pass without a step."""


@dataclass(slots=True)
class _State:
    origin_ns: int = 0
    end_ns: int = 0
    first_start_ns: int | None = None
    last_end_ns: int | None = None
    step_count: int = 0
    monitored: bool = False
    firing: Firing = field(default_factory=Firing)


class MaxInitializationTime(IncrementalRule[MaxInitializationTimeParameters, _State]):
    """Checks whether it takes long until the first training step.

    ## What it checks
    Each scan that begins more than `threshold` minutes after the job while no step has ended fires
    the rule, and is a violation. Datapoints are steps. The details hold when the job and its
    first and last steps began and ended, for the summary of a report.

    ## Why it matters
    Machines are paid for while data sets are downloaded, unpacked and indexed.

    ## What to do
    Stream the data instead of downloading all of it first; keep it prepared; start fewer
    processes that do the same work.

    ## Where the numbers differ from SageMaker Debugger's
    The same condition. Debugger's report calls the threshold a percentage; it is minutes. The
    beginning is that of the job, not of its first sample.
    """

    parameters_type = MaxInitializationTimeParameters
    recommendation = "Stream the training data instead of downloading all of it before training."
    evidence = ("overview",)
    plots = ("cpu_busy_ratio", "gpu_busy_ratio")

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        state.origin_ns, state.end_ns = signals.origin_ns, signals.end_ns
        state.monitored |= bool(signals.nodes)
        before = state.step_count
        new = [each for each in signals.steps if len(each)]
        if new:
            state.step_count += sum(len(each) for each in new)
            first = min(int(each.start_ns[0]) for each in new)
            last = max(int(each.end_ns[-1]) for each in new)
            state.first_start_ns = min(first, state.first_start_ns or first)
            state.last_end_ns = max(last, state.last_end_ns or last)
        if not before and signals.nodes:
            seen = min((int(each.end_ns[0]) for each in new), default=signals.end_ns)
            state.firing.add(self._without_step(signals, seen))
        return state

    def _without_step(self, signals: Signals, until_ns: int) -> list[int]:
        """Ends of the scans of the range that began too late and saw no step."""
        moments = np.array([signals.begin_ns, until_ns - 1], dtype=np.int64)
        first, last = scan_numbers(signals, moments).tolist()
        last -= until_ns < signals.end_ns  # that scan saw the first step
        late = int(self.parameters.threshold * MINUTE_NS) // signals.scan_ns + 1
        return scan_ends(signals, np.arange(max(first, late), last + 1))

    def decide(self, state: _State) -> Finding | None:
        if not state.monitored:
            raise NotApplicable("no node has been monitored")
        begun = state.first_start_ns
        waited = (begun if begun is not None else state.end_ns) - state.origin_ns
        minutes = max(0, waited) / MINUTE_NS
        p = self.parameters
        until = "until the first step began" if begun is not None else "and no step has been seen"
        return self.finding(
            triggered=state.firing,
            violations=len(state.firing),
            datapoints=state.step_count,
            details={
                "initialization_minutes": round(minutes, 6),
                "job_start_ns": state.origin_ns,
                "job_end_ns": state.end_ns,
                "first_step_start_ns": begun,
                "last_step_end_ns": state.last_end_ns,
            },
            sentences=[
                f"{minutes:.1f} minutes passed {until}; the threshold is {p.threshold:g} minutes."
            ],
        )
