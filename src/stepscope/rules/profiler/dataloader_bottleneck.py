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
    StepShareParameters,
    TracedShare,
    TraceShare,
)
from stepscope.rules.samples import NO_FETCHES_IN_TRACES
from stepscope.rules.templates import Ranks, RankStates
from stepscope.rules.threshold_text import share_beside
from stepscope.rules.traces import RuleTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class DataloaderBottleneckParameters(StepShareParameters):
    """Threshold of the time spent waiting for batches."""

    threshold: Percentage = 20.0
    """The rule fires if waits for batches take more of the step's wall time (%) than this."""


class DataWaitShare(RankShare, frozen=True, kw_only=True):
    """Share of waits for batches in the steps of one rank."""

    part_share_ratio: float = msgspec.field(default=0.0, name="data_wait_share_ratio")


class TraceDataWait(TraceShare, frozen=True, kw_only=True):
    """Waits for batches in one imported trace, as shares of step time."""

    data_wait_share_ratio: float = 0.0
    compute_share_ratio: float = 0.0
    has_workers: bool = True
    """False if the training process creates its batches itself (num_workers=0)."""


class DataloaderBottleneck(TracedShare[DataloaderBottleneckParameters, TraceDataWait]):
    """Checks whether training waits for its batches.

    ## What it checks
    For each rank, at the end of each scan, the share of waits for the input pipeline in the wall
    time of its last `window` steps. Only exposed waits count: loading that overlaps computation
    costs no time, and where phases were timed on the device, neither does a wait while the device
    is busy. The verdict also counts copies to the device and data preparation by the training
    thread, and leaves out waits that other processes on the cores cause. And in each imported
    trace, the share of step time in which a batch is fetched while the device has no work; windows
    of a watched job are part of its steps. Datapoints are steps and imported traces; violations are
    those whose share is above `threshold`.

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
        "Cache decoded data or use more DataLoader workers; with GPUs, augment there and pin "
        "memory. `stepscope diagnose RUN` names the slow stage."
    )
    evidence = ("input-pipeline", "steps")
    plots = ("step", "data_wait")
    rank_type = DataWaitShare
    part = "waiting for batches"
    missing_in_traces = NO_FETCHES_IN_TRACES

    def part_ns(self, steps: RankStepTimes) -> Int:
        return steps.phase_ns["data_wait"]

    def evaluate_trace(self, trace: RuleTrace) -> tuple[TraceDataWait, bool] | None:
        if trace.is_watched or trace.steps is None or trace.batches is None:
            return None
        details = TraceDataWait(
            rank=trace.rank,
            data_wait_share_ratio=trace.steps.share(["data_loader"]),
            compute_share_ratio=trace.steps.share(["compute"]),
            has_workers=trace.batches.has_workers,
        )
        return details, 100 * details.data_wait_share_ratio > self.parameters.threshold

    def trace_sentence(self, name: str, trace: TraceDataWait) -> str:
        creates = "" if trace.has_workers else " The training process creates its batches itself."
        share = share_beside(trace.data_wait_share_ratio, "step time", self.parameters.threshold)
        compute = percent(trace.compute_share_ratio, 1)
        return f"Trace {name}: {self.part} takes {share}, computation {compute}.{creates}"

    def require_inputs(self, state: RankStates[RankShareState, TraceDataWait]) -> None:
        if not state.traces.details:
            super().require_inputs(state)

    def sentences(
        self,
        state: RankStates[RankShareState, TraceDataWait],
        ranks: Ranks[RankShareState],
        triggered: Ranks[RankShareState],
    ) -> Iterable[str]:
        yield from super().sentences(state, ranks, triggered)
        for name, rank in self.rank_details(triggered).items():
            yield f"{name}: compute takes {percent(rank.compute_share_ratio, 1)} of step time."
