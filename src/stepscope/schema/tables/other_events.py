"""Table of events of all other kinds."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, EVENT, NAME, START_NS
from stepscope.schema.table import Table, column

OTHER_EVENTS = Table(
    name="other_events",
    doc="One row per event of a kind without a table of its own: synchronization, profiler "
    "overhead, marks.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        column("phase", "VARCHAR", "Event type in the file: X for a range, i for an instant."),
        column("category", "VARCHAR NULL", "Category in the file."),
        NAME,
        START_NS,
        column("duration_ns", "BIGINT NULL", "Duration; null for an instant.", "ns"),
        ARGS,
    ),
)
