"""Table of the devices of each trace."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, TRACE
from stepscope.schema.table import Table, column

DEVICES = Table(
    name="devices",
    doc="One row per device that a trace describes.",
    key=("trace", "device"),
    columns=(
        TRACE,
        column("device", "INTEGER", "Number of the device in the file."),
        column("name", "VARCHAR", "Model."),
        column("memory_bytes", "BIGINT NULL", "Memory.", "bytes"),
        column("compute_major", "INTEGER NULL", "Compute capability, major (AMD: architecture)."),
        column("compute_minor", "INTEGER NULL", "Compute capability, minor."),
        column(
            "multiprocessor_count", "INTEGER NULL", "Multiprocessors or compute units.", "count"
        ),
        column(
            "threads_per_multiprocessor",
            "INTEGER NULL",
            "Maximum resident threads per multiprocessor.",
            "count",
        ),
        column("threads_per_block", "INTEGER NULL", "Maximum threads per block.", "count"),
        column("warp_size", "INTEGER NULL", "Threads per warp or wavefront.", "count"),
        column("registers_per_block", "INTEGER NULL", "Maximum registers per block.", "count"),
        column(
            "shared_memory_per_block_bytes",
            "BIGINT NULL",
            "Maximum shared memory per block.",
            "bytes",
        ),
        ARGS,
    ),
)
