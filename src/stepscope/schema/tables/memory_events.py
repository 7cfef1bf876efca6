"""What the framework allocated."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, EVENT_ID, TRACE, TRACK
from stepscope.schema.table import Column, Table

MEMORY_EVENTS = Table(
    name="memory_events",
    doc=("One row per allocation or release by the framework's allocator."),
    key=("trace", "id"),
    columns=(
        TRACE,
        EVENT_ID,
        TRACK,
        Column(name="t_ns", type="BIGINT", unit="epoch_ns", doc="When."),
        Column(
            name="device_type",
            type="SMALLINT",
            doc=("0 host, 1 CUDA, otherwise the framework's number of the device type."),
        ),
        Column(name="device", type="INTEGER", doc="Number of the device; -1 for the host."),
        Column(
            name="address",
            type="BIGINT",
            nullable=True,
            doc="Address, the same for an allocation and its release.",
        ),
        Column(
            name="size_bytes", type="BIGINT", unit="bytes", doc="Bytes, negative for a release."
        ),
        Column(
            name="allocated_bytes",
            type="BIGINT",
            unit="bytes",
            nullable=True,
            doc="Bytes in use on the device afterwards.",
        ),
        Column(
            name="reserved_bytes",
            type="BIGINT",
            unit="bytes",
            nullable=True,
            doc="Bytes the allocator holds of the device afterwards.",
        ),
        Column(
            name="operator",
            type="BIGINT",
            nullable=True,
            doc="Innermost operator that was running on the thread.",
        ),
        ARGS,
    ),
)
