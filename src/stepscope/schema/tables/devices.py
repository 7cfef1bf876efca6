"""The devices of each recording."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, TRACE
from stepscope.schema.table import Column, Table

DEVICES = Table(
    name="devices",
    doc=("One row per device that a recording describes."),
    key=("trace", "device"),
    columns=(
        TRACE,
        Column(name="device", type="INTEGER", doc="Number of the device in the file."),
        Column(name="name", type="VARCHAR", doc="Model."),
        Column(name="memory_bytes", type="BIGINT", unit="bytes", nullable=True, doc="Memory."),
        Column(
            name="compute_major",
            type="INTEGER",
            nullable=True,
            doc=("Compute capability, first number (on AMD the number of the architecture)."),
        ),
        Column(
            name="compute_minor",
            type="INTEGER",
            nullable=True,
            doc="Compute capability, second number.",
        ),
        Column(
            name="multiprocessor_count",
            type="INTEGER",
            unit="count",
            nullable=True,
            doc="Streaming multiprocessors or compute units.",
        ),
        Column(
            name="threads_per_multiprocessor",
            type="INTEGER",
            unit="count",
            nullable=True,
            doc="Threads that may reside on one of them.",
        ),
        Column(
            name="threads_per_block",
            type="INTEGER",
            unit="count",
            nullable=True,
            doc="Threads that a block may have.",
        ),
        Column(
            name="warp_size",
            type="INTEGER",
            unit="count",
            nullable=True,
            doc="Threads of a warp or wavefront.",
        ),
        Column(
            name="registers_per_block",
            type="INTEGER",
            unit="count",
            nullable=True,
            doc="Registers that a block may use.",
        ),
        Column(
            name="shared_memory_per_block_bytes",
            type="BIGINT",
            unit="bytes",
            nullable=True,
            doc="Shared memory that a block may use.",
        ),
        ARGS,
    ),
)
