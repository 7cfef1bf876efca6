"""Table of calls of CUDA, HIP or another runtime."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, DURATION_NS, EVENT, START_NS
from stepscope.schema.table import Table, column

RUNTIME_CALLS = Table(
    name="runtime_calls",
    doc="One row per call of the device's runtime or driver.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        column("name", "VARCHAR", "Called function, such as cudaLaunchKernel."),
        START_NS,
        DURATION_NS,
        column("driver", "SMALLINT", "1 for the driver API, 0 for the runtime API."),
        column("correlation", "BIGINT NULL", "Correlation number of the call and its work."),
        column("operator", "BIGINT NULL", "Operator that made the call."),
        column(
            "python",
            "BIGINT NULL",
            "Innermost enclosing Python function, for calls outside every operator.",
        ),
        ARGS,
    ),
)
