"""Everything else."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, EVENT_ID, NAME, START_NS, TRACE, TRACK
from stepscope.schema.table import Column, Table

OTHER_EVENTS = Table(
    name="other_events",
    doc=(
        "One row per event of a kind that no other table holds: synchronisation, profiler "
        "overhead, marks."
    ),
    key=("trace", "id"),
    columns=(
        TRACE,
        EVENT_ID,
        TRACK,
        Column(
            name="phase",
            type="VARCHAR",
            doc="The file's event type: X for a range, i for an instant.",
        ),
        Column(name="category", type="VARCHAR", nullable=True, doc="The file's category."),
        NAME,
        START_NS,
        Column(
            name="duration_ns",
            type="BIGINT",
            unit="ns",
            nullable=True,
            doc="How long it took; null for an instant.",
        ),
        ARGS,
    ),
)
