"""Which recordings a view is about, and what to do where there are none."""

from __future__ import annotations

from stepscope.errors import UsageError
from stepscope.run import Run, RunRange, Trace, reading_ahead
from stepscope.views.options import ViewOptions

NO_RECORDING = (
    "the run holds no recording of a framework's profiler: bring one in with "
    "`stepscope import FILE -o RUN`, or record a window with `stepscope run --window`"
)
NOT_IN_RANGE = "no recording reaches into this range of time"


def chosen_traces(run: Run, options: ViewOptions) -> list[Trace]:
    """The recordings that were asked for, by rank, to be looked at one after the other.

    UsageError when none is of that rank or name.
    """
    found = run.traces
    if options.rank is not None and found:
        ranks = sorted({trace.rank for trace in found if trace.rank is not None})
        found = [trace for trace in found if trace.rank == options.rank]
        if not found:
            known = f"of ranks {', '.join(map(str, ranks))}" if ranks else "of unknown rank"
            raise UsageError(f"No recording is of rank {options.rank}; those here are {known}.")
    if options.trace is not None and found:
        names = [trace.name for trace in found]
        found = [trace for trace in found if trace.name == options.trace]
        if not found:
            raise UsageError(f"No recording is called {options.trace}; there are {_some(names)}.")
    return reading_ahead(found)


def missing_recordings(run: Run, traces: list[Trace]) -> str | None:
    """The sentence that stands in for a view without any recording."""
    if traces:
        return None
    ranged = isinstance(run, RunRange) and run.left_out
    return NOT_IN_RANGE if ranged else NO_RECORDING


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
