"""Traces that a view is about: choice, quality, missing data, buckets of curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Generic, Literal, TypedDict, TypeVar

import msgspec

from stepscope import analysis, errors, quantities, schema
from stepscope.quantities import count, count as format_count
from stepscope.run import (
    QualityIssue,
    Run,
    Trace,
    accelerator_of,
    compare_traces,
    number_ranges,
    number_ranks,
    reading_ahead,
)
from stepscope.views.options import ViewOptions, list_names

Topic = Literal["device", "launches", "operators"]
"""Basis of a figure: times on devices, links from devices to the host, the tree of operators."""

_TOPICS: dict[str, tuple[Topic, ...]] = {
    "unlinked_device": ("launches", "operators"),
    "carry_over": ("device", "launches", "operators"),
    "unlinked_launch": ("launches",),
    "captured_by_kind": ("operators",),
    "zero_correlation": ("launches", "operators"),
    "duplicate_correlation": ("launches", "operators"),
    "same_stream_overlap": ("device",),
    "overhang": ("operators",),
    "unmatched_external_id": ("operators",),
    "unmatched_flow": ("operators",),
    "clock_base": (),
    "device_layout": (),
    "copy": (),
    "refused": (),
    "missing_column": (),
    "left_out_process": (),
    "recorder_message": (),
}
"""Topics that each check affects. A check that is not listed, such as `truncated`, affects all of
them; the clock base, copies and refused files matter only between traces."""

_UNCOUNTED = frozenset(["truncated", "unit", "clock_base"])
"""Checks of the trace as a whole, whose count tells nothing."""
_NO_CLOCK_BASE = (
    "Traces without a clock base: their times are read as microseconds since 1970 and may not be "
    "comparable with those of other traces:"
)


class QualityNote(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of the quality record that affects the figures of a view."""

    sentence: Annotated[str, schema.field_label("issue")]
    count: int
    of_count: Annotated[int | None, schema.field_label("of")]
    worst_ns: Annotated[int | None, schema.field_label("largest")]
    check: str


def note_trace_quality(trace: Trace, *topics: Topic) -> list[QualityNote]:
    """Note the quality issues of a trace that affect figures on these topics."""
    return [
        _make_note(issue, schema.QUALITY_CHECKS.get(check, ""))
        for check, issue in trace.quality_issues.items()
        if issue.count and (check not in _TOPICS or set(topics) & set(_TOPICS[check]))
    ]


def note_run_quality(run: Run, traces: Sequence[Trace]) -> list[QualityNote]:
    """Note the quality issues across traces: absent ranks, unlike clocks, and imported traces that
    do not belong together.

    Args:
        run: the run; a rank is absent if no trace of the run is of that rank.
        traces: traces that the view shows.
    """
    baseless = [trace.name for trace in traces if not trace.base_ns] if len(traces) > 1 else []
    clock_base = QualityIssue(
        check="clock_base",
        count=len(baseless),
        of_count=len(traces),
        worst_ns=None,
        detail=f"{list_names(baseless)}.",
    )
    notes = [_make_note(issue, "") for issue in compare_traces(run)]
    return [*notes, _make_note(clock_base, _NO_CLOCK_BASE)] if baseless else notes


def _make_note(issue: QualityIssue, meaning: str) -> QualityNote:
    of_count = f" of {format_count(issue.of_count)}" if issue.of_count is not None else ""
    if meaning and issue.check not in _UNCOUNTED:
        meaning = f"{format_count(issue.count)}{of_count}: {meaning[0].lower()}{meaning[1:]}"
    worst = (
        f"Largest: {quantities.duration(issue.worst_ns)}." if issue.worst_ns is not None else None
    )
    detail = issue.detail and f"{issue.detail.removesuffix('.')}."
    if detail and not meaning.endswith(":"):  # what follows is no sentence of its own
        detail = f"{detail[:1].upper()}{detail[1:]}"
    return QualityNote(
        check=issue.check,
        count=issue.count,
        of_count=issue.of_count,
        worst_ns=issue.worst_ns,
        sentence=" ".join(part for part in (meaning, worst, detail) if part),
    )


class TraceQuality(msgspec.Struct, frozen=True, kw_only=True):
    """Quality record of one trace."""

    trace: str
    rank: int | None
    checks: list[QualityNote]


class QualityView(schema.Payload, frozen=True, kw_only=True):
    """Payload of `quality`."""

    headline: str | None
    traces: list[TraceQuality]
    quality: list[QualityNote]
    """Issues across traces."""
    missing: str | None


def show_quality(run: Run, options: ViewOptions) -> QualityView:
    """Show every check that found an issue in a trace."""
    traces = select_traces(run, options)
    return QualityView(
        headline=_write_headline(traces) if traces else None,
        traces=[
            TraceQuality(
                trace=trace.name,
                rank=trace.rank,
                checks=[
                    _make_note(issue, schema.QUALITY_CHECKS.get(check, ""))
                    for check, issue in trace.quality_issues.items()
                ],
            )
            for trace in traces
        ],
        quality=note_run_quality(run, traces),
        missing=explain_no_traces(run, traces),
    )


def _write_headline(traces: Sequence[Trace]) -> str:
    """Write how many checks found an issue that affects figures, and in how many traces."""
    affecting = [
        [
            check
            for check, issue in trace.quality_issues.items()
            if issue.count and _TOPICS.get(check) != ()
        ]
        for trace in traces
    ]
    checks = {check for names in affecting for check in names}
    if not checks:
        return "No check found an issue that affects figures."
    share = "" if len(traces) == 1 else f", in {sum(map(bool, affecting))} of {len(traces)} traces"
    return f"{quantities.count_of(len(checks), 'check')} found issues that affect figures{share}."


NO_TRACE = (
    "the run has no trace of a framework's profiler: import one with "
    "`stepscope import FILE -o RUN`, or record a window with `stepscope run --start-step N -- CMD`"
)
NO_TRACE_IN_FILES = "the imported files contain no trace of a framework's profiler"
NO_TRACE_IN_RANGE = "no trace overlaps the selected time range"
T = TypeVar("T")


class TraceFields(TypedDict, Generic[T]):
    """Fields that the payloads of views of traces have in common."""

    traces: list[T]
    missing: str | None
    quality: list[QualityNote]


def show_traces(run: Run, options: ViewOptions, show: Callable[[Trace], T]) -> TraceFields[T]:
    """Show each selected trace, and why there is none."""
    traces = select_traces(run, options)
    return {
        "traces": [show(trace) for trace in traces],
        "missing": explain_no_traces(run, traces),
        "quality": note_run_quality(run, traces),
    }


def select_traces(run: Run, options: ViewOptions) -> list[Trace]:
    """Select the traces of the requested rank and name, by rank, to be processed in turn.

    Raises:
        UsageError: the run has no such rank, or no trace has that name.
    """
    traces = run.traces
    if options.rank is not None:
        ranks = number_ranks(run)
        ranks.require(options.rank)
        traces = [trace for trace in traces if ranks.by_trace.get(trace.trace) == options.rank]
    if options.trace is not None and traces:
        names = [trace.name for trace in traces]
        traces = [trace for trace in traces if trace.name == options.trace]
        if not traces:
            raise errors.UsageError(
                f"No trace is called {options.trace}; available: {list_names(names)}."
            )
    return reading_ahead(traces)


def explain_no_traces(run: Run, traces: list[Trace]) -> str | None:
    """Explain why a view has no trace; None if it has one."""
    if traces:
        return None
    if run.traces:  # of other ranks
        ranks = {number_ranks(run).by_trace.get(trace.trace) for trace in run.traces}
        known_ranks = number_ranges(sorted(rank for rank in ranks if rank is not None))
        return f"no trace of this rank was recorded; available: {', '.join(known_ranks) or 'none'}"
    if run.left_out:
        return NO_TRACE_IN_RANGE
    return NO_TRACE_IN_FILES if run.is_imported else NO_TRACE


_NOT_BY_DEBUGGER = "SageMaker Debugger wrote none"
_CAPTURE = "while the job runs, open a window with"
_WITH_STEPSCOPE: dict[schema.Subject, str] = {
    "devices": "a window contains device work when the job uses a GPU",
    "launches": "a window contains the calls made while it is open",
    "operators": "a light window has none; open one with `stepscope capture RUN --full`",
    "steps": "mark steps with stepscope.step()",
    "shapes": f"{_CAPTURE} `stepscope capture RUN --shapes`",
    "stacks": f"{_CAPTURE} `stepscope capture RUN --stacks`",
    "memory": f"{_CAPTURE} `stepscope capture RUN --memory`",
    "modules": f"{_CAPTURE} `stepscope capture RUN --modules`",
}
"""Advice for users of `stepscope run`."""
_WIDER_RANGE = "none starts in the selected time range; choose a wider range or the whole run"
_NO_DEVICE_WORK = "the trace has no kernels, copies or sets of a device"
_NO_DEVICE_WORK_IN_LIGHT = (
    "the window is light, which records only device work and runtime calls, and it has none: open "
    "one with `stepscope capture RUN --full` to record operators, or train on a GPU"
)


def advise_recording(subject: schema.Subject, trace: Trace) -> str:
    """Advise how to record what a window of a job does not have; of an imported trace, explain when
    the tool that recorded it stores that."""
    if trace.within is not None:
        return _WIDER_RANGE
    if trace.metadata.get("recorder") == schema.DEBUGGER:
        return _NOT_BY_DEBUGGER
    if trace.process is None or subject not in _WITH_STEPSCOPE:
        advice = trace.recorder.advise(subject)
    else:
        advice = _WITH_STEPSCOPE[subject]
    return accelerator_of(trace).adapt(advice)


def explain_missing(sentence: str, subject: schema.Subject, trace: Trace) -> str:
    """Complete a sentence about missing data with the advice how to record it."""
    return f"{sentence}: {advise_recording(subject, trace)}"


def explain_no_device_work(trace: Trace) -> str:
    """Explain why a trace has no kernels, copies or sets of a device that are understood."""
    if trace.unknown_devices is not None:
        advice = f": {advise_recording('devices', trace)}" if trace.unrecorded_devices else ""
        return f"{trace.unknown_devices}{advice}"
    facts = trace.window_facts
    if trace.within is None and facts is not None and facts.depth == "light":
        return _NO_DEVICE_WORK_IN_LIGHT
    return explain_missing(_NO_DEVICE_WORK, "devices", trace)


MAX_BUCKETS = 100_000


def choose_buckets(trace: Trace, options: ViewOptions) -> analysis.Buckets | None:
    """Choose buckets over one trace, of the requested width.

    They cover the range in which the profiler was active, or else the range of all events.
    """
    start_ns, end_ns = find_profiled_range(trace)
    width_ns = options.bucket_ns
    if width_ns is not None and (end_ns - start_ns) // width_ns > MAX_BUCKETS:
        raise errors.UsageError(
            f"Buckets of {quantities.duration(width_ns)} cut {trace.name} into more than "
            f"{count(MAX_BUCKETS)} pieces. Choose wider buckets with --bucket."
        )
    return analysis.cut_into_buckets(start_ns, end_ns, width_ns)


def find_profiled_range(trace: Trace) -> tuple[int, int]:
    """Find the range in which the profiler was active, clipped to the selected range."""
    marks = trace.columns(
        "other_events",
        ("start_ns", "duration_ns"),
        condition="category = 'Trace' AND name LIKE 'PyTorch Profiler%' AND duration_ns > 0",
    )
    if not len(marks["start_ns"]):
        return trace.extent
    start_ns = int(marks["start_ns"].min())
    end_ns = int((marks["start_ns"] + marks["duration_ns"]).max())
    return start_ns, end_ns if trace.within is None else min(end_ns, trace.within[1])
