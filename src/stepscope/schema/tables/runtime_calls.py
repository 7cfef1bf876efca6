"""Calls of CUDA, HIP or another runtime."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, DURATION_NS, EVENT_ID, START_NS, TRACE, TRACK
from stepscope.schema.table import Column, Table

RUNTIME_CALLS = Table(
    name="runtime_calls",
    doc=("One row per call of the device's runtime or driver."),
    key=("trace", "id"),
    columns=(
        TRACE,
        EVENT_ID,
        TRACK,
        Column(name="name", type="VARCHAR", doc="Function called, such as cudaLaunchKernel."),
        START_NS,
        DURATION_NS,
        Column(
            name="driver", type="SMALLINT", doc="1 for the driver's interface, 0 for the runtime's."
        ),
        Column(
            name="correlation",
            type="BIGINT",
            nullable=True,
            doc=("Number that the recorder gave the call and what it launched."),
        ),
        Column(name="operator", type="BIGINT", nullable=True, doc="Operator that made the call."),
        Column(
            name="python",
            type="BIGINT",
            nullable=True,
            doc=("Innermost Python function around it, for calls outside every operator."),
        ),
        ARGS,
    ),
)
