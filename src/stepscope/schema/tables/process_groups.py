"""Table of the groups of ranks that communicate."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, TRACE
from stepscope.schema.table import Table, column

PROCESS_GROUPS = Table(
    name="process_groups",
    doc="One row per group of ranks that a trace describes.",
    key=("trace", "name"),
    columns=(
        TRACE,
        column("name", "VARCHAR", "Name of the group."),
        column("description", "VARCHAR NULL", "Purpose of the group."),
        column("backend", "VARCHAR NULL", "Communication backend."),
        column("size", "INTEGER NULL", "Ranks in the group.", "count"),
        column("ranks", "VARCHAR NULL", "Ranks as a JSON array; the profiler may cut it off."),
        ARGS,
    ),
)
