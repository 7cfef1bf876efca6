"""`modules`: what the calls of the model's modules took."""

from __future__ import annotations

from dataclasses import asdict

import msgspec

from stepscope.analysis import (
    FUNCTION_COLUMNS,
    MODULE_ANNOTATION_COLUMNS,
    MODULE_OPERATOR_COLUMNS,
    TREE_COLUMNS,
    Columns,
    ModuleCalls,
    build_module_table,
    build_operator_tree,
    find_lightning_module_calls,
    find_python_module_calls,
)
from stepscope.run import Run, Trace
from stepscope.views.lacking import how_to_get
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across, quality_notes
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import chosen_traces, missing_recordings

NO_MODULES = "no module of the model is in this recording"
_NO_GRADIENTS = (
    "backward operators could not be assigned to modules: the recording holds no arrows from "
    "forward to backward operators"
)


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """One module at its place in the model."""

    name: str
    """Indented by two blanks per level."""
    instance: int | None
    """The recorder's number of the instance."""
    depth: int
    occurrences: int
    operator_count: int
    """Outermost operators inside it, but in no module inside it."""
    host_total_ns: int
    host_self_ns: int
    device_total_ns: int | None
    """Forward and backward; null without a device, as are the other device times."""
    device_self_ns: int | None
    device_ratio: float | None
    """Share of `device_total_ns`."""
    backward_host_ns: int | None
    """Of the operators that compute its gradients, modules inside included."""
    backward_device_ns: int | None


class TraceModules(msgspec.Struct, frozen=True, kw_only=True):
    """Modules of one recording, each before those inside it."""

    rank: int | None
    trace: str
    source: str | None
    """`torch.nn`, or `lightning` where its annotations name the modules."""
    module_count: int
    operator_device_ns: int | None
    """Device time of all operators."""
    outside_device_ns: int | None
    """Of this, outside every module: the loss, the optimizer, and backward operators that could
    not be assigned."""
    modules: list[Module]
    missing: str | None
    notes: list[str]
    quality: list[QualityNote]


class ModulesView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    share_of: str
    traces: list[TraceModules]
    missing: str | None
    quality: list[QualityNote]


def modules(run: Run, options: ViewOptions = DEFAULTS) -> ModulesView:
    """What the calls of the model's modules took."""
    traces = chosen_traces(run, options)
    return ModulesView(
        share_of="the device time of all operators of the recording",
        traces=[_trace(trace, options.top) for trace in traces],
        missing=missing_recordings(run, traces),
        quality=notes_across(run, traces),
    )


def module_calls(trace: Trace) -> tuple[ModuleCalls, Columns]:
    """Calls of modules in a recording, and its operators."""
    operators = trace.columns(
        "operators", tuple(dict.fromkeys(TREE_COLUMNS + MODULE_OPERATOR_COLUMNS))
    )
    functions = trace.columns("python_functions", FUNCTION_COLUMNS)
    calls = find_python_module_calls(functions, operators["python"])
    if not len(calls.name):
        ranges = trace.columns("annotations", MODULE_ANNOTATION_COLUMNS, condition="on_device = 0")
        calls = find_lightning_module_calls(ranges, operators)
    return calls, operators


def _trace(trace: Trace, top: int) -> TraceModules:
    calls, operators = module_calls(trace)
    found = build_module_table(
        calls,
        build_operator_tree(operators),
        operators,
        on_device=bool(operators["device_self_ns"].any()),
        top=top,
    )
    linked = bool((operators["forward"] >= 0).any())
    return TraceModules(
        rank=trace.rank,
        trace=trace.name,
        source=found.source if found.rows else None,
        module_count=found.module_count,
        operator_device_ns=found.operator_device_ns,
        outside_device_ns=found.outside_device_ns,
        modules=[
            Module(**(asdict(row) | {"name": "  " * row.depth + row.name})) for row in found.rows
        ],
        missing=None if found.rows else f"{NO_MODULES}: {how_to_get('modules', trace)}",
        notes=[_NO_GRADIENTS] if found.rows and not linked else [],
        quality=quality_notes(trace, "operators"),
    )
