"""Training stands still while checkpoints are written."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.intervals import Int
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.profiler.step_share import StepShare, StepShareParameters
from stepscope.rules.signals import RankSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStallParameters(StepShareParameters):
    """When saving costs too much."""

    threshold: Percentage = 5.0
    """Share of the steps' wall time (%) spent saving above which the rule fires."""
    window: Count = 1000
    """Steps of a rank that the share is of: long enough to hold several checkpoints."""


class CheckpointStall(StepShare[CheckpointStallParameters]):
    """Checks whether training stands still for long while checkpoints are written.

    ## What it checks
    For each rank, at the end of each scan, how much of the wall time of its last `window` steps it
    spent in torch.save or its like. Datapoints are steps; violations are those with a checkpoint
    that takes more than `threshold` per cent of the step.

    ## Why it matters
    While one rank writes, all wait. A few seconds every few hundred steps are per cents of the
    bill.

    ## What to do
    Save less often, write asynchronously (torch.distributed.checkpoint.async_save), save shards
    from every rank instead of everything from one, or write to local disk first.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    parameters_type = CheckpointStallParameters
    recommendation = "Save less often, or asynchronously, or in shards from every rank."
    evidence = ("steps",)
    plots = ("step", "checkpoint")
    part_name = "checkpoint"
    part_text = "saving checkpoints"

    def part_ns(self, steps: RankSteps) -> Int:
        return steps.phase_ns["checkpoint"]
