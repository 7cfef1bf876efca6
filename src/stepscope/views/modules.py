"""`modules`: time of the modules of the model."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import (
    FUNCTION_COLUMNS,
    MODULE_ANNOTATION_COLUMNS,
    MODULE_OPERATOR_COLUMNS,
    TREE_COLUMNS,
    Columns,
    Module,
    ModuleCalls,
    build_module_table,
    build_operator_tree,
    find_lightning_module_calls,
    find_python_module_calls,
)
from stepscope.run import Run, Trace
from stepscope.schema import field_label
from stepscope.views.missing_data import explain_missing
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import show_traces

NO_MODULES = "the trace has no modules of the model"
_NO_GRADIENTS = (
    "backward operators are not attributed to modules: the trace does not link them to forward "
    "operators"
)


class TraceModules(msgspec.Struct, frozen=True, kw_only=True):
    """Modules of one trace, each before the modules inside it."""

    rank: int | None
    trace: str
    source: str | None
    """`torch.nn`, or `lightning` if its annotations name the modules."""
    module_count: int
    operator_device_ns: Annotated[int | None, field_label("device time of operators")]
    """Device time of all operators."""
    outside_device_ns: Annotated[int | None, field_label("device time outside of modules")]
    """Part of `operator_device_ns` outside every module: loss, optimizer, and backward operators
    that are not attributed."""
    no_operator_device_ns: Annotated[int | None, field_label("device time without an operator")]
    """Work launched by graphs, before the window, or by no operator: it belongs to no module."""
    modules: list[Module]
    missing: str | None
    notes: list[str]
    quality: list[QualityNote]


class ModulesView(Ranged, frozen=True, kw_only=True):
    """Payload of `modules`."""

    share_of: str
    traces: list[TraceModules]
    missing: str | None
    quality: list[QualityNote]


def show_modules(run: Run, options: ViewOptions = DEFAULTS) -> ModulesView:
    """Show the time of the modules of the model."""
    return ModulesView(
        share_of="device time of all operators of the trace, and of work without an operator",
        **show_traces(run, options, lambda trace: _show_trace(trace, options.top)),
    )


def read_module_calls(trace: Trace) -> tuple[ModuleCalls, Columns]:
    """Read the calls of modules in a trace, and its operators."""
    operators = trace.columns(
        "operators", tuple(dict.fromkeys(TREE_COLUMNS + MODULE_OPERATOR_COLUMNS))
    )
    functions = trace.columns("python_functions", FUNCTION_COLUMNS)
    calls = find_python_module_calls(functions, operators["python"])
    if not len(calls.name):
        ranges = trace.columns("annotations", MODULE_ANNOTATION_COLUMNS, condition="on_device = 0")
        calls = find_lightning_module_calls(ranges, operators)
    return calls, operators


def _measure_work_without_operator(trace: Trace) -> int:
    tables = [
        trace.columns(table, ("duration_ns",), condition="operator IS NULL")
        for table in ("kernels", "copies")
    ]
    return sum(int(table["duration_ns"].sum()) for table in tables)


def _show_trace(trace: Trace, top: int) -> TraceModules:
    calls, operators = read_module_calls(trace)
    no_operator_ns = _measure_work_without_operator(trace)
    on_device = no_operator_ns > 0 or bool(operators["device_self_ns"].any())
    table = build_module_table(
        calls,
        build_operator_tree(operators),
        operators,
        on_device=on_device,
        no_operator_device_ns=no_operator_ns,
        top=top,
    )
    linked = bool((operators["forward"] >= 0).any())
    return TraceModules(
        rank=trace.rank,
        trace=trace.name,
        source=table.source if table.rows else None,
        module_count=table.module_count,
        operator_device_ns=table.operator_device_ns,
        outside_device_ns=table.outside_device_ns,
        no_operator_device_ns=no_operator_ns if on_device else None,
        modules=[
            msgspec.structs.replace(row, name="  " * row.depth + row.name) for row in table.rows
        ],
        missing=None if table.rows else explain_missing(NO_MODULES, "modules", trace),
        notes=[_NO_GRADIENTS] if table.rows and not linked else [],
        quality=note_trace_quality(trace, "operators"),
    )
