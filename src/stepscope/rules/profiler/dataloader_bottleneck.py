"""Steps wait for their batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepscope.intervals import Int
from stepscope.rules.parameters import Percentage
from stepscope.rules.profiler.step_share import ShareState, StepShare, StepShareParameters
from stepscope.rules.signals import RankSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class DataloaderBottleneckParameters(StepShareParameters):
    """When loading holds training up."""

    threshold: Percentage = 20.0
    """Share of the step's wall time (%) spent waiting for batches above which the rule fires."""


class DataloaderBottleneck(StepShare[DataloaderBottleneckParameters]):
    """Checks whether training waits for its batches.

    ## What it checks
    For each rank, at the end of each scan, how much of the wall time of its last `window` steps it
    waited for the input pipeline. Only what nothing hides counts: loading beside computation costs
    no time, and where phases were timed on the device, neither does waiting while the device is
    busy. Datapoints are steps, violations those of them whose own share is above `threshold`.

    ## Why it matters
    While a step waits for its batch every GPU of the job idles. Below a fifth of the step loading
    counts as healthy.

    ## What to do
    `stepscope diagnose RUN` names the stage that takes the time. Cache what is decoded, move
    augmentation to the GPU, use more workers with a larger prefetch_factor, and pin memory so that
    copies overlap.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no rule of this name, though its users ask for it; its Dataloader rule only counts
    processes.
    """

    parameters_type = DataloaderBottleneckParameters
    recommendation = (
        "Cache decoded data, move augmentation to the GPU, use more DataLoader workers, pin "
        "memory; `stepscope diagnose RUN` names the stage."
    )
    evidence = ("input-pipeline", "steps")
    plots = ("step", "data_wait")
    part_name = "data_wait"
    part_text = "waiting for batches"

    def part_ns(self, steps: RankSteps) -> Int:
        return steps.phase_ns["data_wait"]

    def sentences(self, state: ShareState, details: dict[str, Any]) -> list[str]:
        return super().sentences(state, details) + [
            f"{name} computes for {details['ranks'][name]['compute_share_ratio']:.1%} of the step."
            for name in self.accused(state)
        ]
