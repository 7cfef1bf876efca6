"""Table of kernels."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, DEVICE_EVENT, GRAPH_LINK, LAUNCH_LINK, NAMED_RANGE
from stepscope.schema.table import Table, column

KERNELS = Table(
    name="kernels",
    doc="One row per kernel that a device ran.",
    key=("trace", "id"),
    columns=(
        *DEVICE_EVENT,
        *NAMED_RANGE,
        *LAUNCH_LINK,
        *GRAPH_LINK,
        column("grid_x", "INTEGER NULL", "Blocks of the grid, x.", "count"),
        column("grid_y", "INTEGER NULL", "Blocks of the grid, y.", "count"),
        column("grid_z", "INTEGER NULL", "Blocks of the grid, z.", "count"),
        column("block_x", "INTEGER NULL", "Threads of a block, x.", "count"),
        column("block_y", "INTEGER NULL", "Threads of a block, y.", "count"),
        column("block_z", "INTEGER NULL", "Threads of a block, z.", "count"),
        column("registers_per_thread", "INTEGER NULL", "Registers per thread.", "count"),
        column("shared_memory_bytes", "INTEGER NULL", "Shared memory per block.", "bytes"),
        column("blocks_per_multiprocessor", "DOUBLE NULL", "Blocks per multiprocessor.", "count"),
        column("warps_per_multiprocessor", "DOUBLE NULL", "Warps per multiprocessor.", "count"),
        column(
            "occupancy_percent", "DOUBLE NULL", "Occupancy, estimated by the profiler.", "percent"
        ),
        ARGS,
    ),
)
