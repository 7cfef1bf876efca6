"""Steps wait for batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from stepscope.intervals import Int
from stepscope.quantities import percent
from stepscope.rules.inputs import RankStepTimes
from stepscope.rules.parameters import Percentage
from stepscope.rules.profiler.step_share import (
    RankShare,
    RankShareState,
    StepShare,
    StepShareParameters,
    TraceShare,
)
from stepscope.rules.templates import Ranks, RankStates


@dataclass(frozen=True, slots=True, kw_only=True)
class DataloaderBottleneckParameters(StepShareParameters):
    """Threshold of the time spent waiting for batches."""

    threshold: Percentage = 20.0
    """The rule fires if waits for batches take more of the step's wall time (%) than this."""


class DataWaitShare(RankShare, frozen=True, kw_only=True):
    """Share of waits for batches in the steps of one rank."""

    part_share_ratio: float = msgspec.field(default=0.0, name="data_wait_share_ratio")


class DataloaderBottleneck(StepShare[DataloaderBottleneckParameters, TraceShare]):
    """Checks whether training waits for its batches.

    ## What it checks
    For each rank, at the end of each scan, the share of waits for the input pipeline in the wall
    time of its last `window` steps. Only exposed waits count: loading that overlaps computation
    costs no time, and where phases were timed on the device, neither does a wait while the device
    is busy. Datapoints are steps; violations are steps whose share is above `threshold`.

    ## Why it matters
    While a step waits for its batch, the GPUs of the job idle. A share of loading below a fifth of
    the step is considered healthy.

    ## What to do
    `stepscope diagnose RUN` names the stage that takes the time. Cache decoded data, move
    augmentation to the GPU, use more workers with a larger prefetch_factor, and pin memory so that
    copies overlap.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no rule of this name, although its users ask for it; its Dataloader rule only
    counts processes.
    """

    topic = "data loading"
    parameters_type = DataloaderBottleneckParameters
    recommendation = (
        "Cache decoded data, move augmentation to the GPU, use more DataLoader workers, or pin "
        "memory; `stepscope diagnose RUN` names the slow stage."
    )
    evidence = ("input-pipeline", "steps")
    plots = ("step", "data_wait")
    rank_type = DataWaitShare
    part = "waiting for batches"

    def part_ns(self, steps: RankStepTimes) -> Int:
        return steps.phase_ns["data_wait"]

    def sentences(
        self,
        state: RankStates[RankShareState, TraceShare],
        ranks: Ranks[RankShareState],
        triggered: Ranks[RankShareState],
    ) -> Iterable[str]:
        yield from super().sentences(state, ranks, triggered)
        for name, rank in self.rank_details(triggered).items():
            yield f"{name}: compute takes {percent(rank.compute_share_ratio, 1)} of step time."
