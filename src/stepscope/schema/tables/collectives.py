"""Table of communication between ranks."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, NAME, TRACE
from stepscope.schema.table import Table, column

COLLECTIVES = Table(
    name="collectives",
    doc="One row per event that describes a collective: the operator that requested it, and the "
    "kernel that ran it.",
    key=("trace", "id"),
    columns=(
        TRACE,
        column("id", "BIGINT", "Operator or kernel."),
        column("on_device", "SMALLINT", "1 for a kernel, 0 for an operator."),
        NAME,
        column("dtype", "VARCHAR NULL", "Element type as the profiler writes it."),
        column("in_elements", "BIGINT NULL", "Elements sent by this rank.", "count"),
        column("out_elements", "BIGINT NULL", "Elements received by this rank.", "count"),
        column("group", "VARCHAR NULL", "Name of the process group."),
        column("group_description", "VARCHAR NULL", "Purpose of the group."),
        column("group_size", "INTEGER NULL", "Ranks in the group.", "count"),
        column("group_ranks", "VARCHAR NULL", "Ranks as the profiler writes them; may be cut off."),
        column("sequence", "BIGINT NULL", "Number of the collective within its group."),
        column("peer_source", "INTEGER NULL", "Sending rank of a point-to-point operation."),
        column("peer_destination", "INTEGER NULL", "Receiving rank of a point-to-point operation."),
        column("in_split", "VARCHAR NULL", "Sizes sent to the ranks."),
        column("out_split", "VARCHAR NULL", "Sizes received from the ranks."),
        ARGS,
    ),
)
