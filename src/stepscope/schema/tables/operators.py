"""What the framework's own profiler recorded in a detailed window."""

from __future__ import annotations

from stepscope.schema.table import Column, Table

OPERATORS = Table(
    name="operators",
    doc="One row per operator, runtime call, kernel, copy or annotation of a detailed window. "
    "The recorded kinds are those of the framework's profiler.",
    key=("process", "window", "seq"),
    columns=(
        Column(name="node", type="VARCHAR", doc="Host on which the window was recorded."),
        Column(name="process", type="VARCHAR", doc="Process that recorded it."),
        Column(name="window", type="INTEGER", doc="Number of the window in its process."),
        Column(name="seq", type="BIGINT", unit="count", doc="Place of the event in its file."),
        Column(
            name="category",
            type="VARCHAR",
            doc="cpu_op, user_annotation, cuda_runtime, cuda_driver, kernel, gpu_memcpy, "
            "gpu_memset or another category of the framework's profiler.",
        ),
        Column(name="name", type="VARCHAR", doc="Name of the operator, call or kernel."),
        Column(name="start_ns", type="BIGINT", unit="epoch_ns", doc="When it began."),
        Column(name="end_ns", type="BIGINT", unit="epoch_ns", doc="When it ended."),
        Column(name="thread", type="VARCHAR", doc="Host thread, or device stream for device work."),
        Column(
            name="device",
            type="INTEGER",
            doc="Device number for device work, -1 for host work.",
        ),
        Column(
            name="correlation",
            type="BIGINT",
            doc="Links a runtime call to the device work it launched; 0 when there is none.",
        ),
    ),
)
