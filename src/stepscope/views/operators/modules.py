"""`modules` and `modules-flame`: time of modules and their operators, as table and tree."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope import analysis, schema
from stepscope.quantities import count_of, duration, percent
from stepscope.run import Run, Trace
from stepscope.views import trace_data
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions, shorten_name
from stepscope.views.timeline.payload import FlameNode, build_flame_nodes

NO_MODULES = "the trace has no modules of the model"
_NO_GRADIENTS = (
    "backward operators are not attributed to modules: the trace does not link them to forward "
    "operators"
)


class TraceModules(msgspec.Struct, frozen=True, kw_only=True):
    """Modules of one trace, each before the modules inside it."""

    rank: int | None
    trace: str
    sentence: str
    """Class of modules with the longest self time; empty without modules."""
    source: str | None
    """`torch.nn`, or `lightning` if its annotations name the modules."""
    module_count: int
    operator_device_ns: Annotated[int | None, schema.field_label("device time of operators")]
    """Device time of all operators."""
    outside_device_ns: Annotated[int | None, schema.field_label("device time outside of modules")]
    """Part of `operator_device_ns` outside every module: loss, optimizer, and backward operators
    that are not attributed."""
    no_operator_device_ns: Annotated[
        int | None, schema.field_label("device time without an operator")
    ]
    """Work launched by graphs, before the window, or by no operator: it belongs to no module."""
    modules: list[analysis.Module]
    missing: str | None
    notes: list[str]
    quality: list[trace_data.QualityNote]


class ModulesView(Ranged, frozen=True, kw_only=True):
    """Payload of `modules`."""

    share_of: str
    traces: list[TraceModules]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_modules(run: Run, options: ViewOptions = DEFAULTS) -> ModulesView:
    """Show the time of the modules of the model."""
    return ModulesView(
        share_of="device time of all operators of the trace, and of work without an operator",
        **trace_data.show_traces(run, options, lambda trace: _show_modules_of(trace, options.top)),
    )


def read_module_calls(trace: Trace) -> tuple[analysis.ModuleCalls, analysis.Columns]:
    """Read the calls of modules in a trace, and its operators."""
    operators = trace.columns(
        "operators", tuple(dict.fromkeys(analysis.TREE_COLUMNS + analysis.MODULE_OPERATOR_COLUMNS))
    )
    functions = trace.columns("python_functions", analysis.FUNCTION_COLUMNS)
    calls = analysis.find_python_module_calls(functions, operators["python"])
    if not len(calls.name):
        ranges = trace.columns(
            "annotations", analysis.MODULE_ANNOTATION_COLUMNS, condition="on_device = 0"
        )
        calls = analysis.find_lightning_module_calls(ranges, operators)
    return calls, operators


def _measure_work_without_operator(trace: Trace) -> int:
    tables = [
        trace.columns(table, ("duration_ns",), condition="operator IS NULL")
        for table in ("kernels", "copies")
    ]
    return sum(int(table["duration_ns"].sum()) for table in tables)


def _show_modules_of(trace: Trace, top: int) -> TraceModules:
    calls, operators = read_module_calls(trace)
    no_operator_ns = _measure_work_without_operator(trace)
    on_device = no_operator_ns > 0 or bool(operators["device_self_ns"].any())
    table = analysis.build_module_table(
        calls,
        analysis.build_operator_tree(operators),
        operators,
        on_device=on_device,
        no_operator_device_ns=no_operator_ns,
        top=top,
    )
    linked = bool((operators["forward"] >= 0).any())
    return TraceModules(
        rank=trace.rank,
        trace=trace.name,
        sentence=_write_sentence(table),
        source=table.source if table.rows else None,
        module_count=table.module_count,
        operator_device_ns=table.operator_device_ns,
        outside_device_ns=table.outside_device_ns,
        no_operator_device_ns=no_operator_ns if on_device else None,
        modules=[
            msgspec.structs.replace(row, name="  " * row.depth + row.name) for row in table.rows
        ],
        missing=None if table.rows else trace_data.explain_missing(NO_MODULES, "modules", trace),
        notes=[_NO_GRADIENTS] if table.rows and not linked else [],
        quality=trace_data.note_trace_quality(trace, "operators"),
    )


def _write_sentence(table: analysis.ModuleTable) -> str:
    slowest = table.slowest
    if slowest is None:
        return ""
    base = "the host time of modules" if table.operator_device_ns is None else "device time"
    modules = (
        f"{shorten_name(slowest.name)} itself takes"
        if slowest.module_count == 1
        else f"The {slowest.module_count} {shorten_name(slowest.name)} modules themselves take"
    )
    return (
        f"{modules} {percent(slowest.self_ratio)} of {base}, {duration(slowest.self_ns)} in "
        f"{count_of(slowest.call_count, 'call')}."
    )


_TIMES: dict[analysis.Measure, str] = {
    "host": "host time of modules and operators, and of the backward operators that compute the "
    "gradients of a module",
    "device": "device time of operators, forward and backward",
}


class TraceModulesFlame(msgspec.Struct, frozen=True, kw_only=True):
    """Flame graph of one trace."""

    rank: int | None
    trace: str
    total_ns: int
    """Time of the outermost modules."""
    outside_ns: int
    """Time of operators outside every module, such as loss and optimizer; not in the total."""
    roots: list[FlameNode]
    """Outermost modules, largest first."""
    left_out_ns: int
    """Self time of paths that are too small to be listed."""
    missing: str | None
    quality: list[trace_data.QualityNote]


class ModulesFlameView(Ranged, frozen=True, kw_only=True):
    """Payload of `modules-flame`."""

    by: analysis.Measure
    time_of: str
    """Definition of the time of the nodes."""
    traces: list[TraceModulesFlame]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_modules_flame(run: Run, options: ViewOptions = DEFAULTS) -> ModulesFlameView:
    """Show the time of modules, nested modules and their operators as a tree."""
    by: analysis.Measure = "device" if options.by == "device" else "host"
    return ModulesFlameView(
        by=by,
        time_of=_TIMES[by],
        **trace_data.show_traces(run, options, lambda trace: _show_flame_of(trace, by)),
    )


def _show_flame_of(trace: Trace, by: analysis.Measure) -> TraceModulesFlame:
    calls, operators = read_module_calls(trace)
    flame = analysis.build_module_flame(
        calls, analysis.build_operator_tree(operators), operators, by
    )
    total_ns, roots, left_out_ns = build_flame_nodes(flame)
    missing = None
    if not len(calls.name):
        missing = trace_data.explain_missing(NO_MODULES, "modules", trace)
    elif by == "device" and not operators["device_self_ns"].any():
        missing, roots = trace_data.explain_no_device_work(trace), []
    return TraceModulesFlame(
        rank=trace.rank,
        trace=trace.name,
        total_ns=total_ns,
        outside_ns=flame.outside_ns,
        roots=roots,
        left_out_ns=left_out_ns,
        missing=missing,
        quality=trace_data.note_trace_quality(trace, "operators"),
    )
