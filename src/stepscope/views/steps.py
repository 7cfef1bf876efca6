"""`steps`: duration of steps and its breakdown, by rank and by trace."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import (
    PhaseShare,
    Statistics,
    find_slowest_steps,
    measure_phases,
    summarize,
)
from stepscope.run import Rank, Run, number_ranks
from stepscope.schema import field_label
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_run_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import select_traces
from stepscope.views.trace_steps import TraceStepsView, show_trace_steps

MAX_LISTED_OUTLIERS = 20
NO_STEPS = "no complete training step was recorded"


class RankStepsView(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one training process."""

    rank: str
    process: str
    source: str
    """`marked` by the script, or derived from the `optimizer` or, without one, `backward`."""
    clock: str
    """`host`, or `device` where phases were timed on a device: then a phase of the host counts
    only while the device is idle."""
    step_count: int
    """Complete steps."""
    measured_count: int
    """Steps that the statistics include: after warm-up and not under a profiler."""
    profiled_count: Annotated[int, field_label("under the profiler")]
    fetches_per_step: Annotated[float, field_label("batches per step", unit="count")]
    """Batches fetched per step: micro-batches, if gradients are accumulated."""
    step_ns: Statistics | None
    phases: list[PhaseShare]
    evaluation_ns: int
    outlier_steps: Annotated[list[int], field_label(display="identifier")]
    """Numbers of at most twenty outliers, counted from 0, slowest first."""


class StepsView(Ranged, frozen=True, kw_only=True):
    """Payload of `steps`."""

    share_of: str
    """Denominator of the shares of the phases in `ranks`."""
    ranks: list[RankStepsView]
    """Steps of the whole run, from its spans."""
    traces: list[TraceStepsView]
    """Steps in traces of a framework's profiler."""
    missing: str | None
    quality: list[QualityNote]


def show_steps(run: Run, options: ViewOptions = DEFAULTS) -> StepsView:
    """Show the duration of steps and its breakdown."""
    traces = select_traces(run, options)
    numbers = number_ranks(run).by_process
    ranks = [
        _show_rank(rank)
        for rank in run.ranks
        if options.trace is None and options.rank in {None, numbers.get(rank.process.process)}
    ]
    return StepsView(
        share_of="wall time of the rank's measured steps without evaluation",
        ranks=ranks,
        traces=[show_trace_steps(run, trace, options) for trace in traces],
        missing=None if ranks or traces else NO_STEPS,
        quality=note_run_quality(run, traces),
    )


def _show_rank(rank: Rank) -> RankStepsView:
    rank_steps = rank.steps
    measured = rank_steps.measured()
    distribution = summarize(rank_steps.wall_ns[measured])
    outliers: list[int] = []
    if distribution is not None:
        threshold_ns = distribution.outlier_threshold
        outliers = find_slowest_steps(rank_steps, threshold_ns, top=MAX_LISTED_OUTLIERS)
    return RankStepsView(
        rank=rank.name,
        process=rank.process.process,
        source=rank_steps.source,
        clock=rank_steps.clock,
        step_count=len(rank_steps),
        measured_count=int(measured.sum()),
        profiled_count=int(rank_steps.profiled.sum()),
        fetches_per_step=float(rank_steps.fetches.mean()),
        step_ns=distribution,
        phases=measure_phases(rank_steps),
        evaluation_ns=rank_steps.evaluation.total_ns,
        outlier_steps=outliers,
    )
