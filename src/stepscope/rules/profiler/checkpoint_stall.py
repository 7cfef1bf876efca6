"""Training stalls while checkpoints are written."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from stepscope.intervals import Int
from stepscope.rules.inputs import RankStepTimes
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.profiler.step_share import (
    RankShare,
    StepShare,
    StepShareParameters,
    TraceShare,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStallParameters(StepShareParameters):
    """Threshold of the time that checkpoints take."""

    threshold: Percentage = 5.0
    """The rule fires if saving takes more of the steps' wall time (%) than this."""
    window: Count = 1000
    """Latest steps of a rank over which the share is computed: enough for several checkpoints."""


class CheckpointShare(RankShare, frozen=True, kw_only=True):
    """Share of checkpoints in the steps of one rank."""

    part_share_ratio: float = msgspec.field(default=0.0, name="checkpoint_share_ratio")


class CheckpointStall(StepShare[CheckpointStallParameters, TraceShare]):
    """Checks whether training stalls while checkpoints are written.

    ## What it checks
    For each rank, at the end of each scan, the share of torch.save and similar calls in the wall
    time of its last `window` steps. Datapoints are steps; violations are steps in which a
    checkpoint takes more than `threshold` percent of the step.

    ## Why it matters
    While one rank writes, all others wait. A few seconds every few hundred steps add up to several
    percent of the cost.

    ## What to do
    Save less often, write asynchronously (torch.distributed.checkpoint.async_save), save shards
    from each rank instead of everything from one, or write to local disk first.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "step time"
    parameters_type = CheckpointStallParameters
    recommendation = "Save less often, asynchronously, or in shards from each rank."
    evidence = ("steps",)
    plots = ("step", "checkpoint")
    missing_in_traces = "imported traces do not show when checkpoints are saved"
    rank_type = CheckpointShare
    part = "saving checkpoints"

    def part_ns(self, steps: RankStepTimes) -> Int:
        return steps.phase_ns["checkpoint"]
