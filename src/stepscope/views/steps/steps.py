"""`steps`: duration of steps and its breakdown, by rank and by trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from stepscope import analysis, diagnosis, intervals, quantities, schema
from stepscope.run import (
    CarryOver,
    MarkedSteps,
    Rank,
    Run,
    Trace,
    begins_with_start_up,
    calls_of,
    device_work_of,
    host_categories,
    marked_steps,
    number_ranks,
    read_marks,
)
from stepscope.views import trace_data
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions

DEVICE_CATEGORIES = ("kernel", "memcpy", "memset")
COLLECTIVE_CATEGORIES = ("communication",)
RUNTIME_CATEGORIES = ("runtime",)
HOST_CATEGORIES = ("data_loader", "cpu_exec")
NO_STEPS_IN_TRACE = "the trace has no steps and is shown as one step"
DERIVED_STEPS = "the trace names no steps: a step is the time from one range “{name}” to the next"
NO_HOST = (
    "the trace has no operators, annotations or Python functions, so the activity of the host is "
    "unknown"
)


class CategoryShare(msgspec.Struct, frozen=True, kw_only=True):
    """One category over all steps; null where the trace cannot contain it."""

    category: str
    mean_ns: float | None
    share_ratio: float | None
    """Share of the mean step."""


class RecordedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step; its categories sum to `wall_ns`, with unknown ones in `other_ns`."""

    step: str
    wall_ns: Annotated[int, schema.field_label("duration")]
    """Duration until its device work is done."""
    kernel_ns: int | None
    memcpy_ns: Annotated[int | None, schema.field_label("copy")]
    memset_ns: int | None
    communication_ns: int | None
    runtime_ns: Annotated[int | None, schema.field_label("runtime calls")]
    data_loader_ns: int | None
    cpu_exec_ns: Annotated[int | None, schema.field_label("host")]
    other_ns: int
    device_work_count: Annotated[int, schema.field_label("device work")]
    """Kernels, copies and sets launched inside the step."""


class HostStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step as marked by the host, and device activity in that time."""

    step: str
    host_ns: Annotated[int, schema.field_label("duration")]
    """Duration of the mark."""
    computation_ns: int
    """Kernels that do not communicate."""
    communication_ns: int
    """Kernels of collectives."""
    overlap_ns: Annotated[int, schema.field_label("both")]
    """Both at the same time."""
    neither_ns: int


class TraceStepsView(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one trace."""

    rank: int | None
    trace: str
    carry_over: CarryOver
    """Whether device work launched before the window counts."""
    step_count: int
    cut_off: list[str]
    """Last steps, of which the trace has less device work than of the steps before."""
    measured_count: int
    """Steps of the mean and the shares: all, or all but a first one that is start-up."""
    share_of: str
    mean_step_ns: float
    categories: list[CategoryShare]
    """Categories by priority: each instant counts for the first one that is active."""
    steps: list[RecordedStep]
    host_steps: list[HostStep]
    notes: list[str]
    quality: list[trace_data.QualityNote]


class MeasuredTrace(NamedTuple):
    """Steps of one trace with the time of each category."""

    marked: MarkedSteps
    steps: analysis.TraceSteps
    times: dict[str, intervals.Int]
    work: analysis.DeviceWork
    unknown: tuple[str, ...]
    """Categories that were not recorded."""


def measure_trace(run: Run, trace: Trace, carry_over: CarryOver) -> MeasuredTrace:
    """Measure the steps of one trace."""
    work = device_work_of(trace, carry_over)
    marked = marked_steps(run, trace)
    calls = calls_of(trace)
    steps = analysis.find_trace_steps(marked.steps, work, calls)
    host = host_categories(trace, calls, read_marks(trace))
    times = analysis.break_down_steps(
        steps.extent, analysis.merge_categories(analysis.find_device_categories(work), host)
    )
    return MeasuredTrace(marked, steps, times, work, _find_unknown_categories(work, host))


def show_trace_steps(run: Run, trace: Trace, options: ViewOptions) -> TraceStepsView:
    """Show the steps of one trace."""
    marked, steps, times, work, unknown = measure_trace(run, trace, options.carry_over)
    first = int(begins_with_start_up(steps.wall_ns))
    wall_ns = steps.wall_ns[first:]
    return TraceStepsView(
        rank=trace.rank,
        trace=trace.name,
        carry_over=options.carry_over,
        step_count=len(steps.names),
        cut_off=steps.cut_off,
        measured_count=len(wall_ns),
        share_of="mean step, until its device work is done" if len(work) else "mean step",
        mean_step_ns=float(wall_ns.mean()),
        categories=[
            _show_category(name, times[name][first:], int(wall_ns.sum()), name in unknown)
            for name in analysis.CATEGORIES
        ],
        steps=_show_steps(steps, times, unknown),
        host_steps=_show_host_steps(steps, analysis.measure_overlap(steps.host, work))
        if len(work)
        else [],
        notes=_write_notes(trace, steps, marked=marked, unknown=unknown),
        quality=trace_data.note_trace_quality(trace, "device", "launches"),
    )


def _show_category(name: str, times: intervals.Int, wall_ns: int, unknown: bool) -> CategoryShare:
    return CategoryShare(
        category=name,
        mean_ns=None if unknown else float(times.mean()),
        share_ratio=None if unknown or not wall_ns else float(times.sum() / wall_ns),
    )


def _show_steps(
    steps: analysis.TraceSteps, times: dict[str, intervals.Int], unknown: tuple[str, ...]
) -> list[RecordedStep]:
    rows = []
    for i, name in enumerate(steps.names):
        parts: dict[str, Any] = {
            f"{category}_ns": None if category in unknown else int(times[category][i])
            for category in analysis.CATEGORIES
        }
        work_count = int(steps.device_work_count[i])
        wall_ns = int(steps.wall_ns[i])
        rows.append(RecordedStep(step=name, wall_ns=wall_ns, device_work_count=work_count, **parts))
    return rows


def _show_host_steps(steps: analysis.TraceSteps, times: analysis.Overlap) -> list[HostStep]:
    host_ns = steps.host.end - steps.host.start
    neither_ns = host_ns - times.computation_ns - times.communication_ns + times.overlap_ns
    return [
        HostStep(
            step=name,
            host_ns=int(host_ns[i]),
            computation_ns=int(times.computation_ns[i]),
            communication_ns=int(times.communication_ns[i]),
            overlap_ns=int(times.overlap_ns[i]),
            neither_ns=int(neither_ns[i]),
        )
        for i, name in enumerate(steps.names)
    ]


def _find_unknown_categories(
    work: analysis.DeviceWork, host: Mapping[str, intervals.Intervals]
) -> tuple[str, ...]:
    """Find the categories that were not recorded."""
    has_host = any(len(host[category].start) for category in HOST_CATEGORIES)
    return (
        *(() if len(work) else DEVICE_CATEGORIES),
        *(() if len(work) or len(host["communication"].start) else COLLECTIVE_CATEGORIES),
        *(() if len(host["runtime"].start) else RUNTIME_CATEGORIES),
        *(() if has_host else HOST_CATEGORIES),
    )


def _write_notes(
    trace: Trace, steps: analysis.TraceSteps, *, marked: MarkedSteps, unknown: tuple[str, ...]
) -> list[str]:
    notes = (
        [trace_data.explain_missing(NO_STEPS_IN_TRACE, "steps", trace)]
        if marked.source == "whole"
        else []
    )
    if marked.range_name:
        notes.append(DERIVED_STEPS.format(name=marked.range_name))
    if begins_with_start_up(steps.wall_ns):
        start_up = quantities.duration(int(steps.wall_ns[0]))
        notes.append(f"the first step took {start_up}: means and shares leave it out as start-up")
    if DEVICE_CATEGORIES[0] in unknown:
        notes.append(trace_data.explain_no_device_work(trace))
    if HOST_CATEGORIES[0] in unknown:
        notes.append(trace_data.explain_missing(NO_HOST, "operators", trace))
    if steps.cut_off:
        notes.append(
            f"excluded steps: {', '.join(steps.cut_off)}; the trace has less device work of them "
            "than of the steps before, as when it ends while the device is still busy"
        )
    return notes


MAX_LISTED_OUTLIERS = 20
NO_STEPS_IN_FILES = "no complete training step was recorded"
NO_STEPS = f"{NO_STEPS_IN_FILES}: mark each with `stepscope.step()`"


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
    profiled_count: Annotated[int, schema.field_label("under the profiler")]
    fetches_per_step: Annotated[float, schema.field_label("batches per step", unit="count")]
    """Batches fetched per step: micro-batches, if gradients are accumulated."""
    step_ns: analysis.Statistics | None
    between_ns: Annotated[float | None, schema.field_label("between steps")]
    """Mean time between the ranges of two steps; null where steps follow each other without gap.
    Phases include it, step time does not."""
    phases: list[analysis.PhaseShare]
    evaluation_ns: int
    outlier_steps: Annotated[list[int], schema.field_label(display="identifier")]
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
    stages: Annotated[str | None, schema.field_label("stages of training")] = None
    """Says that `ranks` mix several trainings; null for one."""
    quality: list[trace_data.QualityNote]


def explain_no_steps(run: Run) -> str:
    """Explain why a run has no steps."""
    return NO_STEPS_IN_FILES if run.is_imported else NO_STEPS


def show_steps(run: Run, options: ViewOptions = DEFAULTS) -> StepsView:
    """Show the duration of steps and its breakdown."""
    traces = trace_data.select_traces(run, options)
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
        missing=None if ranks or traces else explain_no_steps(run),
        stages=diagnosis.explain_mixed_stages(run) if ranks else None,
        quality=trace_data.note_run_quality(run, traces),
    )


def _show_rank(rank: Rank) -> RankStepsView:
    rank_steps = rank.steps
    measured = rank_steps.measured()
    distribution = analysis.summarize(rank_steps.duration_ns[measured])
    outliers: list[int] = []
    if distribution is not None:
        threshold_ns = distribution.outlier_threshold
        outliers = analysis.find_slowest_steps(rank_steps, threshold_ns, top=MAX_LISTED_OUTLIERS)
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
        between_ns=_measure_between(rank_steps),
        phases=analysis.measure_phases(rank_steps),
        evaluation_ns=rank_steps.evaluation.total_ns,
        outlier_steps=outliers,
    )


def _measure_between(steps: analysis.Steps) -> float | None:
    measured = steps.measured()
    if steps.range_ns is None or not measured.any():
        return None
    return float((steps.wall_ns - steps.range_ns)[measured].mean())
