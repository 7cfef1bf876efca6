"""Exposed communication."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from stepscope.analysis import compute_exposed_exchange_ratio
from stepscope.intervals import Int
from stepscope.rules.base import NotApplicable
from stepscope.rules.inputs import RankStepTimes
from stepscope.rules.parameters import Percentage
from stepscope.rules.profiler.step_share import (
    RankShare,
    RankShareState,
    StepShareParameters,
    TracedShare,
    TraceShare,
)
from stepscope.rules.samples import NO_DEVICE_WORK_IN_TRACES
from stepscope.rules.templates import RankStates
from stepscope.rules.threshold_text import share_beside
from stepscope.rules.traces import RuleTrace
from stepscope.schema import DdpFact


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationBoundParameters(StepShareParameters):
    """Threshold of exposed communication."""

    threshold: Percentage = 20.0
    """The rule fires if exposed communication takes more of the step's wall time, or of a trace's
    device time, (%) than this."""


class CommunicationShare(RankShare, frozen=True, kw_only=True):
    """Share of exposed communication in the steps of one rank."""

    part_share_ratio: float = msgspec.field(default=0.0, name="exposed_communication_share_ratio")


class TraceCommunication(TraceShare, frozen=True, kw_only=True):
    """Communication in one trace, as shares of device time."""

    exposed_communication_share_ratio: float = 0.0
    communication_share_ratio: float = 0.0
    """Exposed or not."""


class CommunicationBound(TracedShare[CommunicationBoundParameters, TraceCommunication]):
    """Checks whether ranks wait for exposed communication.

    ## What it checks
    For each rank, at the end of each scan, the share in its last `window` steps of collectives that
    the script calls, plus the share of DDP's gradient exchange that DDP itself reports as not
    hidden behind the backward pass. Both contain the time in which the rank waits for slower ranks;
    the verdict counts that time for the work of the slowest rank. And in each trace of the
    framework's profiler, the share of device time with communication and no computation. Datapoints
    are steps and traces; violations are those above `threshold`.

    ## Why it matters
    Communication that overlaps computation is free; exposed communication is time in which all
    devices of the job wait for the network.

    ## What to do
    Overlap it (bucket sizes of DDP, prefetching of FSDP), send less (gradient accumulation with
    no_sync, lower precision), keep groups that communicate often within a node, and look for a
    straggler.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "framework overhead"
    parameters_type = CommunicationBoundParameters
    recommendation = (
        "Overlap communication with computation, send less, or keep groups that communicate often "
        "within a node."
    )
    evidence = ("gpu-time", "steps")
    plots = ("step", "communication")
    missing_in_traces = NO_DEVICE_WORK_IN_TRACES
    rank_type = CommunicationShare
    part = "exposed communication, with waiting for slower ranks,"

    def part_ns(self, steps: RankStepTimes) -> Int:
        ddp_facts = steps.process.facts_of(DdpFact)
        exposed = compute_exposed_exchange_ratio(ddp_facts[-1]) if ddp_facts else 0.0
        exchange: Int = np.rint(exposed * steps.phase_ns["backward"]).astype(np.int64)
        return steps.phase_ns["communication"] + exchange

    def evaluate_trace(self, trace: RuleTrace) -> tuple[TraceCommunication, bool] | None:
        time = trace.gpu_time
        if time is None or not time.total_ns:
            return None
        details = TraceCommunication(
            rank=trace.rank,
            exposed_communication_share_ratio=time.exposed_comm_ns / time.total_ns,
            communication_share_ratio=time.comm_ns / time.total_ns,
        )
        return details, 100 * time.exposed_comm_ns > self.parameters.threshold * time.total_ns

    def trace_sentence(self, name: str, trace: TraceCommunication) -> str:
        exposed = trace.exposed_communication_share_ratio
        share = share_beside(exposed, "device time", self.parameters.threshold)
        return f"Trace {name}: exposed communication takes {share}."

    def require_inputs(self, state: RankStates[RankShareState, TraceCommunication]) -> None:
        communicates = any(rank.part_ns for rank in state.ranks.values())
        if len(state.ranks) < 2 and not communicates and not state.traces.details:
            raise NotApplicable("a single rank, no collectives, and no trace with device work")
