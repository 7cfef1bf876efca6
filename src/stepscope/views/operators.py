"""`operators`: how often each operator was called, and what its calls took."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from stepscope.analysis import (
    LAUNCHED_KERNEL_COLUMNS,
    STACK_COLUMNS,
    TABLE_COLUMNS,
    OperatorRow,
    RowLabels,
    build_operator_table,
    make_stack_labels,
    make_string_labels,
)
from stepscope.run import Run, Trace
from stepscope.views.lacking import how_to_get
from stepscope.views.options import DEFAULTS, OPERATOR_GROUPS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across, quality_notes
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import chosen_traces, missing_recordings

_NO_OPERATORS = "no operator of the framework is in this recording"
_NO_SHAPES = "no shapes of inputs are in this recording"
_NO_STACKS = "no Python stacks are in this recording"


class OperatorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one operator; what needs a device is null in a recording without one."""

    name: str
    calls: int
    device_self_ns: int | None
    """Kernels, copies and sets that the calls launched themselves."""
    device_self_ratio: float | None
    device_total_ns: int | None
    """The same with everything below the calls."""
    host_self_ns: int
    """Durations without those of operators and runtime calls inside."""
    host_self_ratio: float
    host_total_ns: int
    tensor_core_eligible: bool | None
    tensor_core_self_ratio: float | None
    """Share of the time of kernels that the calls launched themselves; by the kernels' names."""
    tensor_core_total_ratio: float | None
    """The same with everything below the calls."""


class OperatorShape(OperatorGroup, frozen=True, kw_only=True):
    """Calls of one operator on inputs of the same shapes."""

    input_dims: str | None
    """Shapes of the inputs as JSON; null where none were recorded."""


class OperatorStack(OperatorGroup, frozen=True, kw_only=True):
    """Calls of one operator from the same place."""

    stack: str | None
    """Python stack, innermost first, joined by ';'; null where none was recorded."""


Group = TypeVar("Group", bound=OperatorGroup)


class TraceOperators(msgspec.Struct, frozen=True, kw_only=True):
    """Operators of one recording."""

    rank: int | None
    trace: str
    group_count: int
    call_count: int
    host_self_ns: int
    """Of all calls."""
    device_self_ns: int | None
    """Of all calls."""
    operators: list[OperatorGroup]
    shapes: list[OperatorShape]
    """Instead of `operators`, when grouped by shape."""
    stacks: list[OperatorStack]
    """Instead of `operators`, when grouped by stack."""
    missing: str | None
    notes: list[str]
    quality: list[QualityNote]


class OperatorsView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    share_of: str
    by: str
    traces: list[TraceOperators]
    missing: str | None
    quality: list[QualityNote]


def operators(run: Run, options: ViewOptions = DEFAULTS) -> OperatorsView:
    """How often each operator was called, and what its calls took."""
    traces = chosen_traces(run, options)
    by = options.by or OPERATOR_GROUPS[0]
    return OperatorsView(
        share_of=(
            "the self time of all operators, on the host or the devices; on tensor cores: the "
            "time of the kernels that the operator launched"
        ),
        by=by,
        traces=[_trace(trace, by, options.top) for trace in traces],
        missing=missing_recordings(run, traces),
        quality=notes_across(run, traces),
    )


def _trace(trace: Trace, by: str, top: int) -> TraceOperators:
    wanted = TABLE_COLUMNS + (("input_dims",) if by == "shape" else ())
    columns = trace.columns("operators", wanted)
    kernels = trace.columns("kernels", LAUNCHED_KERNEL_COLUMNS)
    on_device = bool(len(kernels["name"].codes)) or bool(columns["device_self_ns"].any())
    shapes = make_string_labels(columns["input_dims"]) if by == "shape" else None
    stacks = _stacks(trace) if by == "stack" else None
    found = build_operator_table(
        columns, kernels if on_device else None, shapes=shapes, stacks=stacks, top=top
    )
    notes = []
    if shapes is not None and not (shapes.codes >= 0).any():
        notes = [f"{_NO_SHAPES}: {how_to_get('shapes', trace)}"]
    if stacks is not None and not (stacks.codes >= 0).any():
        notes = [f"{_NO_STACKS}: {how_to_get('stacks', trace)}"]
    return TraceOperators(
        rank=trace.rank,
        trace=trace.name,
        group_count=found.group_count,
        call_count=found.call_count,
        host_self_ns=found.host_self_ns,
        device_self_ns=found.device_self_ns,
        operators=_groups(OperatorGroup, found.rows) if by == "name" else [],
        shapes=_groups(OperatorShape, found.rows) if by == "shape" else [],
        stacks=_groups(OperatorStack, found.rows) if by == "stack" else [],
        missing=None if found.call_count else f"{_NO_OPERATORS}: {how_to_get('operators', trace)}",
        notes=notes,
        quality=quality_notes(trace, "operators"),
    )


def _groups(kind: type[Group], rows: list[OperatorRow]) -> list[Group]:
    """Rows as structs of a kind, with the fields that it has."""
    return [kind(**{name: getattr(row, name) for name in kind.__struct_fields__}) for row in rows]


def _stacks(trace: Trace) -> RowLabels:
    """Stacks as old recorders wrote them to each operator, or from the Python functions."""
    found: dict[str, Any] = trace.columns("operators", ("call_stack", "python"))
    if (found["call_stack"].codes >= 0).any():
        return make_string_labels(found["call_stack"])
    return make_stack_labels(trace.columns("python_functions", STACK_COLUMNS), found["python"])
