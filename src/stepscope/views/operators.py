"""`operators`: calls of each operator, and their time on host and device."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from stepscope.analysis import (
    LAUNCHED_WORK_COLUMNS,
    RECOMPUTATION_COLUMNS,
    STACK_COLUMNS,
    TABLE_COLUMNS,
    OperatorGroup,
    OperatorShape,
    OperatorStack,
    Recomputation,
    ReplayedOperator,
    RowLabels,
    build_operator_table,
    find_recomputation,
    make_stack_labels,
    make_string_labels,
    split_graph_time,
    sum_replayed_operators,
)
from stepscope.quantities import percent
from stepscope.run import Replays, Run, Trace, graph_calls_of, replays_of
from stepscope.schema import field_label
from stepscope.views.missing_data import explain_missing
from stepscope.views.options import DEFAULTS, OPERATOR_GROUPS, ViewOptions
from stepscope.views.quality import QualityNote, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import show_traces

NO_OPERATORS = "the trace has no operators of the framework"
NO_INPUT_SHAPES = "the trace has no shapes of inputs"
NO_STACKS = "the trace has no Python stacks"
NO_CAPTURE = (
    "{share} of device time is in graphs whose operators are unknown: import the trace in which "
    "they were captured into the same run"
)
CAPTURED = (
    "{share} of device time is in graphs whose operators follow from their captures: launches and "
    "replayed kernels have the same kinds, order and, where recorded, names"
)


class TraceOperators(msgspec.Struct, frozen=True, kw_only=True):
    """Operators of one trace."""

    rank: int | None
    trace: str
    group_count: int
    call_count: int
    host_self_ns: Annotated[int, field_label("host self time")]
    """Sum over all calls."""
    device_self_ns: Annotated[int | None, field_label("device self time")]
    """Sum over all rows, including work that no operator launched."""
    operators: list[OperatorGroup]
    shapes: list[OperatorShape]
    """Used instead of `operators` when grouped by shape."""
    stacks: list[OperatorStack]
    """Used instead of `operators` when grouped by stack."""
    replayed: list[ReplayedOperator]
    """Operators captured into graphs; their rows in the table above do not include this time."""
    recomputation: Recomputation | None
    """Null if unknown: no backward pass in the trace, or no sequence numbers."""
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
    by = options.by or OPERATOR_GROUPS[0]
    return OperatorsView(
        share_of=(
            "self time of all operators on the host, or all work of the devices; on tensor cores: "
            "time of the kernels that the operator launched"
        ),
        by=by,
        **show_traces(run, options, lambda trace: _show_trace(run, trace, by, options.top)),
    )


def _show_trace(run: Run, trace: Trace, by: str, top: int) -> TraceOperators:
    names = TABLE_COLUMNS + (("input_dims",) if by == "shape" else ())
    columns = trace.columns("operators", names)
    kernels = trace.columns("kernels", LAUNCHED_WORK_COLUMNS)
    copies = trace.columns("copies", LAUNCHED_WORK_COLUMNS)
    has_work = any(len(table["duration_ns"]) for table in (kernels, copies))
    on_device = has_work or bool(columns["device_self_ns"].any())
    graph_calls = graph_calls_of(trace)
    shapes = make_string_labels(columns["input_dims"]) if by == "shape" else None
    stacks = _label_stacks(trace) if by == "stack" else None
    table = build_operator_table(
        columns,
        kernels if on_device else None,
        copies,
        graph_calls=graph_calls,
        shapes=shapes,
        stacks=stacks,
        top=top,
    )
    replays = replays_of(run, trace, graph_calls)
    device_ns = table.device_self_ns or 0
    notes = _note_graphs(replays, device_ns)
    if shapes is not None and not (shapes.codes >= 0).any():
        notes.append(explain_missing(NO_INPUT_SHAPES, "shapes", trace))
    if stacks is not None and not (stacks.codes >= 0).any():
        notes.append(explain_missing(NO_STACKS, "stacks", trace))
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
        replayed=sum_replayed_operators(replays.work, replays.operators, device_ns)[: top or None],
        recomputation=find_recomputation(
            trace.columns("operators", RECOMPUTATION_COLUMNS), top=top
        ),
        missing=None if table.call_count else explain_missing(NO_OPERATORS, "operators", trace),
        notes=notes,
        quality=note_trace_quality(trace, "operators"),
    )


def _note_graphs(replays: Replays, device_ns: int) -> list[str]:
    """State the shares of graphs with captured operators, and without any operator."""
    captured_ns, unknown_ns = split_graph_time(replays.work, replays.operators)
    sums = {CAPTURED: captured_ns, NO_CAPTURE: unknown_ns}
    return [
        sentence.format(share=percent(ns / device_ns, 1)) for sentence, ns in sums.items() if ns
    ]


def _label_stacks(trace: Trace) -> RowLabels:
    """Label operators by stack: as old profilers wrote it, or from the Python functions."""
    columns: dict[str, Any] = trace.columns("operators", ("call_stack", "python"))
    if (columns["call_stack"].codes >= 0).any():
        return make_string_labels(columns["call_stack"])
    return make_stack_labels(trace.columns("python_functions", STACK_COLUMNS), columns["python"])
