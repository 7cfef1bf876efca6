"""`modules-flame`: the time of modules, the modules inside them and their operators, as a tree."""

from __future__ import annotations

import msgspec

from stepscope.analysis import Measure, build_module_flame, build_operator_tree
from stepscope.run import Run, Trace
from stepscope.views.flame_nodes import FlameNode, flame_nodes
from stepscope.views.lacking import how_to_get, no_device_work
from stepscope.views.modules import NO_MODULES, module_calls
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across, quality_notes
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import chosen_traces, missing_recordings

_TIMES: dict[Measure, str] = {
    "host": "host time: of modules and operators as they ran, and of the backward operators that "
    "compute the gradients of a module",
    "device": "device time of operators, forward and backward",
}


class TraceModulesFlame(msgspec.Struct, frozen=True, kw_only=True):
    """One recording."""

    rank: int | None
    trace: str
    total_ns: int
    """Of the outermost modules."""
    outside_ns: int
    """Of operators outside every module, such as the loss and the optimizer; not in the total."""
    roots: list[FlameNode]
    """The outermost modules, largest first."""
    left_out_ns: int
    """Self time of paths too small to be listed."""
    missing: str | None
    quality: list[QualityNote]


class ModulesFlameView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    by: Measure
    time_of: str
    """Which time the nodes have."""
    traces: list[TraceModulesFlame]
    missing: str | None
    quality: list[QualityNote]


def modules_flame(run: Run, options: ViewOptions = DEFAULTS) -> ModulesFlameView:
    """The time of modules, the modules inside them and their operators, as a tree."""
    traces = chosen_traces(run, options)
    by: Measure = "device" if options.by == "device" else "host"
    return ModulesFlameView(
        by=by,
        time_of=_TIMES[by],
        traces=[_trace(trace, by) for trace in traces],
        missing=missing_recordings(run, traces),
        quality=notes_across(run, traces),
    )


def _trace(trace: Trace, by: Measure) -> TraceModulesFlame:
    calls, operators = module_calls(trace)
    found = build_module_flame(calls, build_operator_tree(operators), operators, by)
    total_ns, roots, left_out_ns = flame_nodes(found)
    missing = None
    if not len(calls.name):
        missing = f"{NO_MODULES}: {how_to_get('modules', trace)}"
    elif by == "device" and not operators["device_self_ns"].any():
        missing, roots = no_device_work(trace), []
    return TraceModulesFlame(
        rank=trace.rank,
        trace=trace.name,
        total_ns=total_ns,
        outside_ns=found.outside_ns,
        roots=roots,
        left_out_ns=left_out_ns,
        missing=missing,
        quality=quality_notes(trace, "operators"),
    )
