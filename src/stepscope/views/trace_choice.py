"""Choice of the traces that a view is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypedDict, TypeVar

from stepscope.errors import UsageError
from stepscope.run import Run, Trace, number_ranges, number_ranks, reading_ahead
from stepscope.views.names import list_names
from stepscope.views.options import ViewOptions
from stepscope.views.quality import QualityNote, note_run_quality

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
            raise UsageError(f"No trace is called {options.trace}; available: {list_names(names)}.")
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
