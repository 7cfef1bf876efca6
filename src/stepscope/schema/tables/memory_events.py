"""Table of allocations by the framework."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, EVENT
from stepscope.schema.table import Table, column

MEMORY_EVENTS = Table(
    name="memory_events",
    doc="One row per allocation or release by the framework's allocator.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        column("t_ns", "BIGINT", "Time.", "epoch_ns"),
        column("device_type", "SMALLINT", "0 host, 1 CUDA, else the framework's device type."),
        column("device", "INTEGER", "Number of the device; -1 for the host."),
        column("address", "BIGINT NULL", "Address, equal for an allocation and its release."),
        column("size_bytes", "BIGINT", "Bytes, negative for a release.", "bytes"),
        column("allocated_bytes", "BIGINT NULL", "Bytes in use on the device afterwards.", "bytes"),
        column(
            "reserved_bytes",
            "BIGINT NULL",
            "Bytes that the allocator holds on the device afterwards.",
            "bytes",
        ),
        column("operator", "BIGINT NULL", "Innermost operator running on the thread."),
        ARGS,
    ),
)
