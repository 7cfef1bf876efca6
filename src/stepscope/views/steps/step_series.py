"""`step-series`: the steps of one rank over their numbers, in levels of detail.

Without `--rank` it is the rank that the others wait for: of a job with a straggler its steps tell
more than those of rank 0.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope import analysis, schema
from stepscope.run import Run, Trace, number_ranks
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions
from stepscope.views.steps.ranks import report_lateness
from stepscope.views.steps.steps import explain_no_steps, measure_trace
from stepscope.views.trace_data import QualityNote, note_run_quality, select_traces

PIXELS_PER_GROUP = 2


class SeriesRank(msgspec.Struct, frozen=True, kw_only=True):
    """Rank with steps."""

    rank: int | None
    """Number for `--rank`; null where it is not known."""
    name: str


class SeriesPhase(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one phase."""

    name: Annotated[str, schema.field_label("phase")]
    mean_ns: list[float]
    """Mean over the steps of each group."""


class SeriesOutlier(msgspec.Struct, frozen=True, kw_only=True):
    """Outlier, the slowest one of its group."""

    step: Annotated[int, schema.field_label(display="identifier")]
    """Number of the step, counted from 0."""
    start_after_ns: int
    """Start, after the run's origin."""
    duration_ns: int
    phase: str
    """Phase that exceeds its median by most."""
    excess_ns: int
    """Time by which it does."""


class StepSeries(Ranged, frozen=True, kw_only=True):
    """Payload of `step-series`."""

    ranks: list[SeriesRank]
    """Ranks with steps."""
    rank: SeriesRank | None
    """Rank whose steps are shown: that of `--rank`, or the latest one, or the first one."""
    step_count: int
    group_step_count: Annotated[int, schema.field_label("steps per group")]
    """1 where each step is shown."""
    steps: Annotated[list[int], schema.field_label(display="identifier")]
    """Number of the first step of each group, then that after the last step."""
    start_after_ns: list[int]
    """Start of each group after the run's origin, then the end of the last step."""
    phases: list[SeriesPhase]
    """Phases in their order within a step, or categories of a trace; they sum to the mean wall time
    of the steps."""
    median_ns: list[float]
    """Moving median of the durations at each group."""
    median_step_count: Annotated[int, schema.field_label("steps per median")]
    outlier_threshold_ns: float | None
    """Outliers are measured steps above this: p75 + 3 (p75 - p25), or a quarter above the median if
    that is more."""
    outlier_count: int
    outliers: list[SeriesOutlier]
    edges_ns: Annotated[list[float], schema.field_label("edges of bins")]
    """Edges of the bins of the measured durations without outliers, one more than there are
    counts."""
    counts: Annotated[list[int], schema.field_label("steps per bin", unit="count")]
    quality: list[QualityNote]
    """Of traces; empty for a rank that was watched."""
    missing: str | None


def show_step_series(run: Run, options: ViewOptions = DEFAULTS) -> StepSeries:
    """Show the steps of one rank over their numbers: of a trace if one is named, or if no rank was
    watched."""
    number_ranks(run).require(options.rank)
    if run.ranks and options.trace is None:
        return _show_watched(run, options)
    return _show_traced(run, options)


def _find_latest_rank(run: Run) -> int | None:
    """Find the number of the rank that costs the others most time; None where none is late."""
    report = report_lateness(run)
    if isinstance(report, str) or not report.culprits:
        return None
    return report.ranks[report.culprits[0]].number


def _show_watched(run: Run, options: ViewOptions) -> StepSeries:
    numbers = number_ranks(run).by_process
    ranks = [
        SeriesRank(rank=numbers.get(rank.process.process), name=rank.name) for rank in run.ranks
    ]
    latest = _find_latest_rank(run.whole_run) if options.rank is None else None
    pairs = zip(run.ranks, ranks, strict=True)
    for rank, row in sorted(pairs, key=lambda pair: latest not in {None, pair[1].rank}):
        if options.rank in {None, row.rank} and len(rank.steps):
            return _show_steps(run, rank.steps, ranks, row, options, quality=[])
    return _make_empty(run, ranks, [])


def _show_traced(run: Run, options: ViewOptions) -> StepSeries:
    """Show the steps of the first of the selected traces that has steps, the latest rank first."""
    numbers = number_ranks(run).by_trace
    rows = {
        trace.trace: SeriesRank(
            rank=numbers.get(trace.trace),
            name=trace.name if trace.rank is None else f"rank {trace.rank}",
        )
        for trace in run.traces
    }
    ranks = list(dict.fromkeys(rows.values()))
    traces = select_traces(run, options)
    quality = note_run_quality(run, traces)
    is_chosen = options.rank is not None or options.trace is not None
    latest = None if is_chosen else _find_latest_rank(run.whole_run)
    for trace in sorted(traces, key=lambda trace: latest not in {None, numbers.get(trace.trace)}):
        steps = _find_steps(run, trace, options)
        if steps is not None:
            return _show_steps(run, steps, ranks, rows[trace.trace], options, quality=quality)
    return _make_empty(run, ranks, quality)


def _find_steps(run: Run, trace: Trace, options: ViewOptions) -> analysis.Steps | None:
    """Find the steps of a trace, with the time of each category; None if it names none."""
    measured = measure_trace(run, trace, options.carry_over)
    if measured.marked.source == "whole" or not measured.steps.names:
        return None
    return analysis.number_trace_steps(
        measured.steps, measured.times, clock="device" if len(measured.work) else "host"
    )


def _show_steps(
    run: Run,
    steps: analysis.Steps,
    ranks: list[SeriesRank],
    shown: SeriesRank,
    options: ViewOptions,
    *,
    quality: list[QualityNote],
) -> StepSeries:
    origin_ns = run.clock.origin_ns
    groups = analysis.group_steps(steps, max(1, options.pixels // PIXELS_PER_GROUP))
    durations = steps.duration_ns[steps.measured()]
    distribution = analysis.summarize(durations)
    threshold_ns = None if distribution is None else distribution.outlier_threshold
    outliers, outlier_count = (
        ([], 0)
        if threshold_ns is None
        else analysis.find_outliers_of_groups(steps, groups, threshold_ns)
    )
    usual = durations if threshold_ns is None else durations[durations <= threshold_ns]
    edges = analysis.make_range_edges(usual)
    histogram = None if edges is None else analysis.build_histogram(usual, edges)
    starts = steps.start[groups.first] - origin_ns
    return StepSeries(
        ranks=ranks,
        rank=shown,
        step_count=len(steps),
        group_step_count=groups.size,
        steps=[*(steps.first + groups.first).tolist(), steps.first + len(steps)],
        start_after_ns=[*starts.tolist(), int(steps.end[-1]) - origin_ns],
        phases=[
            SeriesPhase(name=name, mean_ns=times.tolist())
            for name, times in groups.phase_ns.items()
        ],
        median_ns=groups.median_ns.tolist(),
        median_step_count=groups.median_steps,
        outlier_threshold_ns=threshold_ns,
        outlier_count=outlier_count,
        outliers=[
            SeriesOutlier(
                step=steps.first + outlier.step_index,
                start_after_ns=int(steps.start[outlier.step_index]) - origin_ns,
                duration_ns=int(steps.duration_ns[outlier.step_index]),
                phase=outlier.phase,
                excess_ns=outlier.excess_ns,
            )
            for outlier in outliers
        ],
        edges_ns=[] if histogram is None else histogram.edges.tolist(),
        counts=[] if histogram is None else histogram.counts.tolist(),
        quality=quality,
        missing=None,
    )


def _make_empty(run: Run, ranks: list[SeriesRank], quality: list[QualityNote]) -> StepSeries:
    return StepSeries(
        ranks=ranks,
        rank=None,
        step_count=0,
        group_step_count=0,
        steps=[],
        start_after_ns=[],
        phases=[],
        median_ns=[],
        median_step_count=0,
        outlier_threshold_ns=None,
        outlier_count=0,
        outliers=[],
        edges_ns=[],
        counts=[],
        quality=quality,
        missing=explain_no_steps(run),
    )
