"""Ranks wait for communication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stepscope.analysis import compute_exposed_exchange_ratio
from stepscope.intervals import Int
from stepscope.rules.base import NotApplicable
from stepscope.rules.parameters import Percentage
from stepscope.rules.profiler.step_share import (
    RecordedShare,
    ShareState,
    StepShareParameters,
)
from stepscope.rules.signals import RankSteps, Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationBoundParameters(StepShareParameters):
    """When communication holds training up."""

    threshold: Percentage = 20.0
    """Share of the step's wall time, or of a recording's device time, (%) in communication that
    nothing hides above which the rule fires."""


class CommunicationBound(RecordedShare[CommunicationBoundParameters]):
    """Checks whether ranks wait for communication that no computation hides.

    ## What it checks
    For each rank, at the end of each scan, how much of its last `window` steps were collectives
    that the script calls, plus the part of DDP's gradient exchange that its own account says was
    not hidden behind the backward pass. And in each recording of the framework's profiler, how
    much of the devices' time was communication without computation beside it. Datapoints are steps
    and recordings, violations those above `threshold`.

    ## Why it matters
    Communication that runs beside computation is free; what is exposed is time in which all
    devices of the job wait for the network.

    ## What to do
    Let it overlap (bucket sizes of DDP, prefetching of FSDP), send less (gradient accumulation
    with no_sync, lower precision), keep chatty groups within a node, look for a straggler.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    parameters_type = CommunicationBoundParameters
    recommendation = (
        "Overlap communication with computation, send less, or keep chatty groups within a node."
    )
    evidence = ("gpu-time", "steps")
    plots = ("step", "communication")
    part_name = "exposed_communication"
    part_text = "exposed communication"

    def part_ns(self, steps: RankSteps) -> Int:
        accounts = [f for f in steps.process.facts if f.get("fact") == "ddp"]
        exposed = compute_exposed_exchange_ratio(accounts[-1]) if accounts else 0.0
        exchange: Int = np.rint(exposed * steps.phase_ns["backward"]).astype(np.int64)
        return steps.phase_ns["communication"] + exchange

    def judge(self, recording: Recording) -> tuple[dict[str, Any], bool] | None:
        time = recording.gpu_time
        if time is None or not time.total_ns:
            return None
        figures = {
            "exposed_communication_share_ratio": time.exposed_comm_ns / time.total_ns,
            "communication_share_ratio": time.comm_ns / time.total_ns,
        }
        return figures, 100 * time.exposed_comm_ns > self.parameters.threshold * time.total_ns

    def recording_sentence(self, name: str, figures: dict[str, Any]) -> str:
        return (
            f"In the recording {name}, {figures['exposed_communication_share_ratio']:.1%} of the "
            f"devices' time is exposed communication."
        )

    def require(self, state: ShareState) -> None:
        distributed = [name for name, rank in state.ranks.items() if rank.part_ns]
        if len(state.ranks) < 2 and not distributed and not state.recordings:
            raise NotApplicable("one rank, no collectives and no recording with device work")
