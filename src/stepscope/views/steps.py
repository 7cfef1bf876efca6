"""`steps`: how long steps take and what they are spent on, per rank and per recording."""

from __future__ import annotations

import msgspec
import numpy as np

from stepscope.analysis import PHASES, Statistics, make_statistics, summarize
from stepscope.run import Rank, Run
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import chosen_traces
from stepscope.views.trace_steps import TraceStepsView, trace_steps

MAX_LISTED_OUTLIERS = 20


class PhaseShare(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of the step."""

    name: str
    share_ratio: float
    mean_ns: float
    p50_ns: float
    p95_ns: float


class RankStepsView(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one training process."""

    rank: str
    process: str
    source: str
    """`marked` by the script, or derived from the `optimizer`."""
    clock: str
    """`host`, or `device` where phases were timed on a device: then a phase of the host counts
    only while the device is idle."""
    step_count: int
    """Complete steps."""
    measured_count: int
    """Steps the statistics are made of: past warm-up and not under a profiler."""
    profiled_count: int
    fetches_per_step: float
    """Batches fetched for one step: micro-batches, when gradients are accumulated."""
    step_ns: Statistics | None
    phases: list[PhaseShare]
    evaluation_ns: int
    outlier_steps: list[int]
    """Numbers of the slowest outliers, counted from 0, slowest first, at most twenty."""


class StepsView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    share_of: str
    """What the shares of the phases of `ranks` are of."""
    ranks: list[RankStepsView]
    """Steps of the whole run, by its spans."""
    traces: list[TraceStepsView]
    """Steps inside recordings of a framework's profiler."""
    missing: str | None
    quality: list[QualityNote]


def steps(run: Run, options: ViewOptions = DEFAULTS) -> StepsView:
    """How long steps take and what they are spent on."""
    ranks = [
        _rank(rank)
        for rank in run.ranks
        if options.trace is None and options.rank in {None, rank.process.rank}
    ]
    traces = chosen_traces(run, options)
    return StepsView(
        share_of="wall time of the rank's measured steps, evaluation left out",
        ranks=ranks,
        traces=[trace_steps(run, trace, options) for trace in traces],
        missing=None if ranks or traces else "no complete training step was recorded",
        quality=notes_across(run, traces),
    )


def _rank(rank: Rank) -> RankStepsView:
    found = rank.steps
    measured = found.measured()
    wall = found.wall_ns[measured]
    summary = summarize(wall)
    return RankStepsView(
        rank=rank.name,
        process=rank.process.process,
        source=found.source,
        clock=found.clock,
        step_count=len(found),
        measured_count=int(measured.sum()),
        profiled_count=int(found.profiled.sum()),
        fetches_per_step=float(found.fetches.mean()),
        step_ns=make_statistics(summary),
        phases=[_phase(rank, name) for name in PHASES] if len(wall) else [],
        evaluation_ns=found.evaluation.total_ns,
        outlier_steps=_outliers(rank, summary.outlier_threshold) if summary else [],
    )


def _phase(rank: Rank, name: str) -> PhaseShare:
    measured = rank.steps.measured()
    values = rank.steps.phase_ns[name][measured]
    p50, p95 = np.percentile(values, [50, 95])
    return PhaseShare(
        name=name,
        share_ratio=float(values.sum() / rank.steps.wall_ns[measured].sum()),
        mean_ns=float(values.mean()),
        p50_ns=float(p50),
        p95_ns=float(p95),
    )


def _outliers(rank: Rank, threshold: float) -> list[int]:
    wall = np.where(rank.steps.measured(), rank.steps.wall_ns, 0)
    slowest = np.argsort(-wall, kind="stable")[:MAX_LISTED_OUTLIERS]
    return [rank.steps.first + int(step) for step in slowest if wall[step] > threshold]
