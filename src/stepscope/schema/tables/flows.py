"""Table of arrows between events."""

from __future__ import annotations

from stepscope.schema.event_columns import NAME, TRACE
from stepscope.schema.table import Table, column

FLOWS = Table(
    name="flows",
    doc="One row per arrow between two events that no other table implies: launches are in "
    "kernels.launch, gradients also in operators.forward.",
    key=("trace", "kind", "flow"),
    columns=(
        TRACE,
        column("kind", "VARCHAR", "Category of the arrow, such as fwdbwd."),
        NAME,
        column("flow", "BIGINT", "Number of the arrow in the file."),
        column("source_track", "INTEGER NULL", "Track on which it starts."),
        column("source_ns", "BIGINT NULL", "Time at which it starts.", "epoch_ns"),
        column("source", "BIGINT NULL", "Event that starts there."),
        column("target_track", "INTEGER NULL", "Track on which it ends."),
        column("target_ns", "BIGINT NULL", "Time at which it ends.", "epoch_ns"),
        column("target", "BIGINT NULL", "Event that starts there."),
    ),
)
