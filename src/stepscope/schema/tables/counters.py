"""Table of counters in traces."""

from __future__ import annotations

from stepscope.schema.event_columns import EVENT, NAME
from stepscope.schema.table import Table, column

COUNTERS = Table(
    name="counters",
    doc="One row per value of a counter in a trace.",
    key=("trace", "id", "series"),
    columns=(
        *EVENT,
        NAME,
        column("t_ns", "BIGINT", "Time of the value.", "epoch_ns"),
        column("series", "VARCHAR", "Series of the counter."),
        column("value", "DOUBLE", "Value."),
    ),
)
