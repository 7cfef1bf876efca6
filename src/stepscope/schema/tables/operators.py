"""Table of framework operators on the host."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, EVENT, NAMED_RANGE
from stepscope.schema.table import Table, column

OPERATORS = Table(
    name="operators",
    doc="One row per operator of the framework, with its position in the operator tree of its "
    "thread.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        *NAMED_RANGE,
        column("parent", "BIGINT NULL", "Innermost enclosing operator on its thread."),
        column("depth", "SMALLINT", "Enclosing operators.", "count"),
        column("python", "BIGINT NULL", "Innermost enclosing function; see `python_functions`."),
        column("sequence", "BIGINT NULL", "Number shared by forward and backward operators."),
        column(
            "forward_thread",
            "BIGINT NULL",
            "Non-zero in a backward operator: the profiler's number of the forward thread.",
        ),
        column("forward", "BIGINT NULL", "Forward operator whose gradient it computes."),
        column("record_function", "BIGINT NULL", "Identifier in execution traces (Chakra)."),
        column("input_dims", "VARCHAR NULL", "Input shapes as JSON, such as [[64,3,224,224],[]]."),
        column("input_types", "VARCHAR NULL", "Input element types as a JSON array of strings."),
        column("input_strides", "VARCHAR NULL", "Input strides as JSON."),
        column("concrete_inputs", "VARCHAR NULL", "Scalar inputs as a JSON array of strings."),
        column(
            "call_stack",
            "VARCHAR NULL",
            "Python stack in the format of older profilers, outermost last, joined by ';'.",
        ),
        column(
            "runtime_ns",
            "BIGINT NULL",
            "Total duration of the runtime calls that it makes itself; null if it makes none. Its "
            "self time is its duration minus this and minus the durations of its children.",
            "ns",
        ),
        column(
            "launched_ns",
            "BIGINT NULL",
            "Total duration of the kernels, copies and sets that its own runtime calls launched; "
            "null if they launched none.",
            "ns",
        ),
        column(
            "launched_below_ns",
            "BIGINT NULL",
            "The same total for all operators inside it; null if they launched none.",
            "ns",
        ),
        ARGS,
    ),
)
