"""Counters inside recordings."""

from __future__ import annotations

from stepscope.schema.event_columns import EVENT_ID, NAME, TRACE, TRACK
from stepscope.schema.table import Column, Table

COUNTERS = Table(
    name="counters",
    doc=("One row per value of a counter in a recording."),
    key=("trace", "id", "series"),
    columns=(
        TRACE,
        EVENT_ID,
        TRACK,
        NAME,
        Column(name="t_ns", type="BIGINT", unit="epoch_ns", doc="When."),
        Column(name="series", type="VARCHAR", doc="Which value of the counter."),
        Column(name="value", type="DOUBLE", doc="The value."),
    ),
)
