"""Choice of the traces that a view is about."""

from __future__ import annotations

from stepscope.errors import UsageError
from stepscope.run import Run, Trace, reading_ahead
from stepscope.views.names import list_names
from stepscope.views.options import ViewOptions

NO_TRACE = (
    "the run has no trace of a framework's profiler: import one with "
    "`stepscope import FILE -o RUN`, or record a window with `stepscope run --window`"
)
NO_TRACE_IN_FILES = "the imported files contain no trace of a framework's profiler"
NO_TRACE_IN_RANGE = "no trace overlaps the selected time range"


def select_traces(run: Run, options: ViewOptions) -> list[Trace]:
    """Select the traces of the requested rank and name, by rank, to be processed in turn.

    Raises:
        UsageError: no trace has that rank or name.
    """
    traces = run.traces
    if options.rank is not None and traces:
        ranks = sorted({trace.rank for trace in traces if trace.rank is not None})
        traces = [trace for trace in traces if trace.rank == options.rank]
        if not traces:
            known_ranks = f"of ranks {', '.join(map(str, ranks))}" if ranks else "of unknown rank"
            raise UsageError(f"No trace is of rank {options.rank}; available: {known_ranks}.")
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
    if run.left_out:
        return NO_TRACE_IN_RANGE
    return NO_TRACE_IN_FILES if run.is_imported else NO_TRACE
