"""Table of named ranges on host and device."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, EVENT, NAMED_RANGE
from stepscope.schema.table import Table, column

ANNOTATIONS = Table(
    name="annotations",
    doc="One row per named range: user annotations, the framework's optimizers and loaders, and "
    "profiler steps.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        *NAMED_RANGE,
        column(
            "on_device",
            "SMALLINT",
            "1 for the shadow of a host range on a device stream, which covers the work launched "
            "in the range.",
        ),
        column("host", "BIGINT NULL", "Host range of a shadow; a range has one shadow per stream."),
        column("python", "BIGINT NULL", "Innermost enclosing Python function."),
        ARGS,
    ),
)
