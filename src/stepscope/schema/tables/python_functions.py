"""Table of Python frames and modules."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, DURATION_NS, EVENT, START_NS
from stepscope.schema.table import Table, column

PYTHON_FUNCTIONS = Table(
    name="python_functions",
    doc="One row per call of a Python function or of a module's forward in a trace with stacks.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        column("name", "VARCHAR", "file(line): function, or nn.Module: Class_number for a module."),
        START_NS,
        DURATION_NS,
        column("parent", "BIGINT NULL", "Calling Python function."),
        column("module", "BIGINT NULL", "Innermost enclosing module call, itself included."),
        column("module_id", "BIGINT NULL", "Profiler's number of the module, for a module call."),
        ARGS,
    ),
)
