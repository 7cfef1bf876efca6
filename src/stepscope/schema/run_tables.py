"""Tables of a run by name."""

from __future__ import annotations

from stepscope.schema.event_kinds import EVENT_TABLES
from stepscope.schema.table import Table
from stepscope.schema.tables import job, traces
from stepscope.schema.tables.metrics import METRICS
from stepscope.schema.tables.trace_events import COLLECTIVES, COUNTERS, FLOWS, OTHER_EVENTS

TRACE_TABLES = (
    traces.TRACES,
    traces.QUALITY,
    traces.TRACKS,
    traces.DEVICES,
    traces.PROCESS_GROUPS,
    *EVENT_TABLES,
    OTHER_EVENTS,
    COLLECTIVES,
    FLOWS,
    COUNTERS,
    traces.TIMELINE,
)
"""Tables of the traces of a framework's profiler."""
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        *(
            job.SPANS,
            METRICS,
            job.STACKS,
            job.SCALARS,
            job.TENSOR_STATISTICS,
            job.TENSOR_HISTOGRAMS,
            job.TENSOR_VALUES,
        ),
        *(
            job.TENSOR_ELEMENTS,
            traces.MEMORY_CATEGORIES,
            job.PYTHON_PROFILES,
            job.COLLECTIVE_CALLS,
            job.STAGE_OPERATIONS,
        ),
        *TRACE_TABLES,
    )
}
"""Tables of a run by name."""
