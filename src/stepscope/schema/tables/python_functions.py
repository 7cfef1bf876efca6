"""Python frames and modules."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, DURATION_NS, EVENT_ID, START_NS, TRACE, TRACK
from stepscope.schema.table import Column, Table

PYTHON_FUNCTIONS = Table(
    name="python_functions",
    doc=(
        "One row per call of a Python function or of a module's forward that was recorded "
        "with stacks."
    ),
    key=("trace", "id"),
    columns=(
        TRACE,
        EVENT_ID,
        TRACK,
        Column(
            name="name",
            type="VARCHAR",
            doc=("file(line): function, or nn.Module: Class_number for a module."),
        ),
        START_NS,
        DURATION_NS,
        Column(
            name="parent", type="BIGINT", nullable=True, doc="The Python function that called it."
        ),
        Column(
            name="module",
            type="BIGINT",
            nullable=True,
            doc="Innermost call of a module around it, itself included.",
        ),
        Column(
            name="module_id",
            type="BIGINT",
            nullable=True,
            doc=("Of a module's call, the recorder's number of the module instance."),
        ),
        ARGS,
    ),
)
