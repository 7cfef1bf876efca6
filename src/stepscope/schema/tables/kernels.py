"""What the devices computed."""

from __future__ import annotations

from stepscope.schema.event_columns import (
    ARGS,
    DURATION_NS,
    EVENT_ID,
    GRAPH_LINK,
    LAUNCH_LINK,
    NAME,
    START_NS,
    TRACE,
)
from stepscope.schema.table import Column, Table

KERNELS = Table(
    name="kernels",
    doc=("One row per kernel that a device ran."),
    key=("trace", "id"),
    columns=(
        TRACE,
        EVENT_ID,
        Column(name="track", type="INTEGER", doc="Its stream; see `tracks`."),
        Column(name="device", type="INTEGER", doc="Its device."),
        NAME,
        START_NS,
        DURATION_NS,
        *LAUNCH_LINK,
        *GRAPH_LINK,
        Column(
            name="grid_x", type="INTEGER", unit="count", nullable=True, doc="Blocks of the grid."
        ),
        Column(
            name="grid_y", type="INTEGER", unit="count", nullable=True, doc="Blocks of the grid."
        ),
        Column(
            name="grid_z", type="INTEGER", unit="count", nullable=True, doc="Blocks of the grid."
        ),
        Column(
            name="block_x", type="INTEGER", unit="count", nullable=True, doc="Threads of a block."
        ),
        Column(
            name="block_y", type="INTEGER", unit="count", nullable=True, doc="Threads of a block."
        ),
        Column(
            name="block_z", type="INTEGER", unit="count", nullable=True, doc="Threads of a block."
        ),
        Column(
            name="registers_per_thread",
            type="INTEGER",
            unit="count",
            nullable=True,
            doc="Registers of a thread.",
        ),
        Column(
            name="shared_memory_bytes",
            type="INTEGER",
            unit="bytes",
            nullable=True,
            doc="Shared memory of a block.",
        ),
        Column(
            name="blocks_per_multiprocessor",
            type="DOUBLE",
            unit="count",
            nullable=True,
            doc="Blocks of the grid per multiprocessor of the device.",
        ),
        Column(
            name="warps_per_multiprocessor",
            type="DOUBLE",
            unit="count",
            nullable=True,
            doc="Warps of the grid per multiprocessor of the device.",
        ),
        Column(
            name="occupancy_percent",
            type="DOUBLE",
            unit="percent",
            nullable=True,
            doc="Occupancy as the recorder estimates it.",
        ),
        ARGS,
    ),
)
