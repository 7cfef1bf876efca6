"""What the framework called on the host."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, DURATION_NS, EVENT_ID, NAME, START_NS, TRACE, TRACK
from stepscope.schema.table import Column, Table

OPERATORS = Table(
    name="operators",
    doc=(
        "One row per operator of the framework, with its place in the tree of operators of "
        "its thread."
    ),
    key=("trace", "id"),
    columns=(
        TRACE,
        EVENT_ID,
        TRACK,
        NAME,
        START_NS,
        DURATION_NS,
        Column(
            name="parent",
            type="BIGINT",
            nullable=True,
            doc="Innermost operator around it on its thread.",
        ),
        Column(name="depth", type="SMALLINT", unit="count", doc="Operators around it."),
        Column(
            name="python",
            type="BIGINT",
            nullable=True,
            doc=("Innermost Python function around it; see `python_functions`."),
        ),
        Column(
            name="sequence",
            type="BIGINT",
            nullable=True,
            doc=("Number that a forward operator shares with its backward operators."),
        ),
        Column(
            name="forward_thread",
            type="BIGINT",
            nullable=True,
            doc=("Non-zero in a backward operator: the recorder's number of the forward thread."),
        ),
        Column(
            name="forward",
            type="BIGINT",
            nullable=True,
            doc=("Of a backward operator, the forward operator whose gradient it computes."),
        ),
        Column(
            name="record_function",
            type="BIGINT",
            nullable=True,
            doc="Identifier shared with execution traces (Chakra).",
        ),
        Column(
            name="input_dims",
            type="VARCHAR",
            nullable=True,
            doc="Shapes of the inputs as JSON, such as [[64,3,224,224],[]].",
        ),
        Column(
            name="input_types",
            type="VARCHAR",
            nullable=True,
            doc="Element types of the inputs as a JSON array of strings.",
        ),
        Column(
            name="input_strides",
            type="VARCHAR",
            nullable=True,
            doc="Strides of the inputs as JSON.",
        ),
        Column(
            name="concrete_inputs",
            type="VARCHAR",
            nullable=True,
            doc="Values of scalar inputs as a JSON array of strings.",
        ),
        Column(
            name="call_stack",
            type="VARCHAR",
            nullable=True,
            doc=("Python stack as older recorders wrote it, outermost last, joined by ';'."),
        ),
        Column(
            name="runtime_ns",
            type="BIGINT",
            unit="ns",
            nullable=True,
            doc="Durations, summed, of the runtime calls that it makes itself; null when it makes "
            "none. Its own time is its duration less this and the durations of its children.",
        ),
        Column(
            name="launched_ns",
            type="BIGINT",
            unit="ns",
            nullable=True,
            doc="Durations, summed, of the kernels, copies and sets that its own runtime calls "
            "launched; null when they launched none.",
        ),
        Column(
            name="launched_below_ns",
            type="BIGINT",
            unit="ns",
            nullable=True,
            doc="The same of all operators inside it; null when they launched none.",
        ),
        ARGS,
    ),
)
