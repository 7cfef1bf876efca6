"""`operators`: calls of each operator, and their time on host and device."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from stepscope.analysis import (
    LAUNCHED_KERNEL_COLUMNS,
    STACK_COLUMNS,
    TABLE_COLUMNS,
    OperatorGroup,
    OperatorShape,
    OperatorStack,
    RowLabels,
    build_operator_table,
    make_stack_labels,
    make_string_labels,
)
from stepscope.run import Run, Trace
from stepscope.schema import field_label
from stepscope.views.missing_data import explain_missing
from stepscope.views.options import DEFAULTS, OPERATOR_GROUPS, ViewOptions
from stepscope.views.quality import QualityNote, note_run_quality, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import explain_no_traces, select_traces

NO_OPERATORS = "the trace has no operators of the framework"
NO_INPUT_SHAPES = "the trace has no shapes of inputs"
NO_STACKS = "the trace has no Python stacks"


class TraceOperators(msgspec.Struct, frozen=True, kw_only=True):
    """Operators of one trace."""

    rank: int | None
    trace: str
    group_count: int
    call_count: int
    host_self_ns: Annotated[int, field_label("host self time")]
    """Sum over all calls."""
    device_self_ns: Annotated[int | None, field_label("device self time")]
    """Sum over all calls."""
    operators: list[OperatorGroup]
    shapes: list[OperatorShape]
    """Used instead of `operators` when grouped by shape."""
    stacks: list[OperatorStack]
    """Used instead of `operators` when grouped by stack."""
    missing: str | None
    notes: list[str]
    quality: list[QualityNote]


class OperatorsView(Ranged, frozen=True, kw_only=True):
    """Payload of `operators`."""

    share_of: str
    by: str
    traces: list[TraceOperators]
    missing: str | None
    quality: list[QualityNote]


def show_operators(run: Run, options: ViewOptions = DEFAULTS) -> OperatorsView:
    """Show the calls of each operator and their time."""
    traces = select_traces(run, options)
    by = options.by or OPERATOR_GROUPS[0]
    return OperatorsView(
        share_of=(
            "self time of all operators, on the host or the devices; on tensor cores: time of the "
            "kernels that the operator launched"
        ),
        by=by,
        traces=[_show_trace(trace, by, options.top) for trace in traces],
        missing=explain_no_traces(run, traces),
        quality=note_run_quality(run, traces),
    )


def _show_trace(trace: Trace, by: str, top: int) -> TraceOperators:
    names = TABLE_COLUMNS + (("input_dims",) if by == "shape" else ())
    columns = trace.columns("operators", names)
    kernels = trace.columns("kernels", LAUNCHED_KERNEL_COLUMNS)
    on_device = bool(len(kernels["name"].codes)) or bool(columns["device_self_ns"].any())
    shapes = make_string_labels(columns["input_dims"]) if by == "shape" else None
    stacks = _label_stacks(trace) if by == "stack" else None
    table = build_operator_table(
        columns, kernels if on_device else None, shapes=shapes, stacks=stacks, top=top
    )
    notes = []
    if shapes is not None and not (shapes.codes >= 0).any():
        notes = [explain_missing(NO_INPUT_SHAPES, "shapes", trace)]
    if stacks is not None and not (stacks.codes >= 0).any():
        notes = [explain_missing(NO_STACKS, "stacks", trace)]
    return TraceOperators(
        rank=trace.rank,
        trace=trace.name,
        group_count=table.group_count,
        call_count=table.call_count,
        host_self_ns=table.host_self_ns,
        device_self_ns=table.device_self_ns,
        operators=table.rows if by == "name" else [],
        shapes=[row for row in table.rows if isinstance(row, OperatorShape)],
        stacks=[row for row in table.rows if isinstance(row, OperatorStack)],
        missing=None if table.call_count else explain_missing(NO_OPERATORS, "operators", trace),
        notes=notes,
        quality=note_trace_quality(trace, "operators"),
    )


def _label_stacks(trace: Trace) -> RowLabels:
    """Label operators by stack: as old profilers wrote it, or from the Python functions."""
    columns: dict[str, Any] = trace.columns("operators", ("call_stack", "python"))
    if (columns["call_stack"].codes >= 0).any():
        return make_string_labels(columns["call_stack"])
    return make_stack_labels(trace.columns("python_functions", STACK_COLUMNS), columns["python"])
