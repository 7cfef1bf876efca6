"""Named ranges on host and device."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, DURATION_NS, EVENT_ID, NAME, START_NS, TRACE, TRACK
from stepscope.schema.table import Column, Table

ANNOTATIONS = Table(
    name="annotations",
    doc=(
        "One row per named range: of the user, of the framework's optimizers and loaders, and"
        " of profiler steps."
    ),
    key=("trace", "id"),
    columns=(
        TRACE,
        EVENT_ID,
        TRACK,
        NAME,
        START_NS,
        DURATION_NS,
        Column(
            name="on_device",
            type="SMALLINT",
            doc=(
                "1 for the shadow of a host range on a device's stream, which covers the work"
                " launched inside it."
            ),
        ),
        Column(
            name="host",
            type="BIGINT",
            nullable=True,
            doc="Of such a shadow, the host range that it belongs to; a range has one per stream.",
        ),
        Column(
            name="python", type="BIGINT", nullable=True, doc="Innermost Python function around it."
        ),
        ARGS,
    ),
)
