"""`modules-flame`: time of modules, nested modules and their operators, as a tree."""

from __future__ import annotations

import msgspec

from stepscope.analysis import Measure, build_module_flame, build_operator_tree
from stepscope.run import Run, Trace
from stepscope.views.flame_nodes import FlameNode, build_flame_nodes
from stepscope.views.missing_data import explain_missing, explain_no_device_work
from stepscope.views.modules import NO_MODULES, read_module_calls
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import show_traces

_TIMES: dict[Measure, str] = {
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
    quality: list[QualityNote]


class ModulesFlameView(Ranged, frozen=True, kw_only=True):
    """Payload of `modules-flame`."""

    by: Measure
    time_of: str
    """Definition of the time of the nodes."""
    traces: list[TraceModulesFlame]
    missing: str | None
    quality: list[QualityNote]


def show_modules_flame(run: Run, options: ViewOptions = DEFAULTS) -> ModulesFlameView:
    """Show the time of modules, nested modules and their operators as a tree."""
    by: Measure = "device" if options.by == "device" else "host"
    return ModulesFlameView(
        by=by,
        time_of=_TIMES[by],
        **show_traces(run, options, lambda trace: _show_trace(trace, by)),
    )


def _show_trace(trace: Trace, by: Measure) -> TraceModulesFlame:
    calls, operators = read_module_calls(trace)
    flame = build_module_flame(calls, build_operator_tree(operators), operators, by)
    total_ns, roots, left_out_ns = build_flame_nodes(flame)
    missing = None
    if not len(calls.name):
        missing = explain_missing(NO_MODULES, "modules", trace)
    elif by == "device" and not operators["device_self_ns"].any():
        missing, roots = explain_no_device_work(trace), []
    return TraceModulesFlame(
        rank=trace.rank,
        trace=trace.name,
        total_ns=total_ns,
        outside_ns=flame.outside_ns,
        roots=roots,
        left_out_ns=left_out_ns,
        missing=missing,
        quality=note_trace_quality(trace, "operators"),
    )
