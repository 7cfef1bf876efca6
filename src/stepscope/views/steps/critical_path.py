"""`critical-path` and `what-if`: what determines the time of a step, and what fixes would save."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from stepscope import analysis, errors, schema
from stepscope.quantities import percent
from stepscope.run import (
    MAX_REPLAY_ERROR_RATIO,
    PathRow,
    Run,
    RunGraph,
    Trace,
    build_run_graphs,
    build_span_graph,
    explain_no_graph,
    explain_no_span_graph,
    get_run_graphs,
    get_span_graph,
    list_path_rows,
    name_traces,
    number_ranks,
)
from stepscope.views import trace_data
from stepscope.views.options import DEFAULTS, ViewOptions

ON_PATH_RATIO = 0.01
"""A fix that saves less than this is not on the critical path."""
SHARE_OF = "step time, from the start of the first step to the end of the work of the last one"
FIX_SEPARATOR = "+"
"""Between the names of fixes that are simulated together."""
SIMULATED_FIXES = (*analysis.CAUSAL_FIXES, f"{analysis.NAMED_FIX}NAME")
"""Names of the fixes."""


NEEDS_TRACE = "it needs operators, which only traces have"
"""Reason for which a fix cannot be simulated on spans."""


class PathShare(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one kind on the critical path."""

    category: str
    step_ns: Annotated[float, schema.field_label("time per step")]
    share_ratio: float | None


class PathActivity(msgspec.Struct, frozen=True, kw_only=True):
    """Operator, call or kernel on the critical path, by name."""

    name: str
    kind: str
    """operator, call, range, Python, kernel, copy, phase, fetch or delay."""
    category: str
    rank: int | None
    count_per_step: Annotated[float, schema.field_label("count per step", unit="count")]
    step_ns: Annotated[float, schema.field_label("time per step")]
    share_ratio: float | None


class PathRank(msgspec.Struct, frozen=True, kw_only=True):
    """Time of the critical path in one rank."""

    rank: int | None
    share_ratio: float | None


class ReplayedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one rank, or of ranks that were recorded together, and their replay."""

    traces: list[str]
    """Names of the traces; without traces, of the ranks."""
    step_count: int
    step_ns: Annotated[float, schema.field_label("mean step")]
    replay_error_ratio: Annotated[float | None, schema.field_label("replay error")]
    """Replayed step time compared with the measured one."""


class CriticalPathOf(ReplayedSteps, frozen=True, kw_only=True):
    """Critical path of steps."""

    tied_count: Annotated[int, schema.field_label("collectives that tie ranks")]
    shares: list[PathShare]
    """Times by kind; they sum to the time of the steps."""
    ranks: list[PathRank]
    activities: list[PathActivity]
    notes: list[str]


class CriticalPathView(schema.Payload, frozen=True, kw_only=True):
    """Payload of `critical-path`."""

    share_of: str
    paths: list[CriticalPathOf]
    missing: str | None
    quality: list[trace_data.QualityNote]


class SimulatedFixRow(msgspec.Struct, frozen=True, kw_only=True):
    """Steps with one fix, or with several at once."""

    fix: str
    """Name for `stepscope what-if RUN --fix NAME`."""
    title: str
    condition: str
    """Assumption."""
    step_ns: Annotated[float | None, schema.field_label("predicted step")]
    saving_ratio: Annotated[float | None, schema.field_label("saving of step time")]
    """Null where the replay is not accurate enough."""
    error_ratio: Annotated[float | None, schema.field_label("error of the saving")]
    """Replay error: the saving is that uncertain."""
    rest_category: Annotated[str | None, schema.field_label("then mostly")]
    """Largest kind of time on the critical path that is left."""
    rest_ratio: Annotated[float | None, schema.field_label("its share")]
    reason: str | None
    """Explanation where the fix saves nothing, or its saving cannot be stated."""


class WhatIfOf(ReplayedSteps, frozen=True, kw_only=True):
    """Fixes for steps, largest saving first."""

    fixes: list[SimulatedFixRow]
    notes: list[str]


class WhatIfView(schema.Payload, frozen=True, kw_only=True):
    """Payload of `what-if`."""

    share_of: str
    recordings: list[WhatIfOf]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_critical_path(run: Run, options: ViewOptions = DEFAULTS) -> CriticalPathView:
    """Show what the time of steps consists of along the critical path."""
    traces = trace_data.select_traces(run, options)
    graphs, missing = _build_graphs(run, traces, options.rank)
    return CriticalPathView(
        share_of=SHARE_OF,
        paths=[_show_path(graph, options.top) for graph in graphs],
        missing=missing,
        quality=trace_data.note_run_quality(run, traces),
    )


def show_what_if(run: Run, options: ViewOptions = DEFAULTS) -> WhatIfView:
    """Show how long steps would take with fixes: each alone, or those of `name` together.

    Raises:
        UsageError: there is no such fix, or its factor is no number above zero.
    """
    fixes = None if options.name is None else parse_fixes(options.name)
    traces = trace_data.select_traces(run, options)
    graphs, missing = _build_graphs(run, traces, options.rank)
    return WhatIfView(
        share_of=SHARE_OF,
        recordings=[_simulate(graph, fixes) for graph in graphs],
        missing=missing,
        quality=trace_data.note_run_quality(run, traces),
    )


def parse_fixes(text: str) -> list[tuple[str, float | None]]:
    """Parse fixes that are simulated together.

    >>> parse_fixes("no-sync+workers=4+faster:aten::mm=1.5")
    [('no-sync', None), ('workers', 4.0), ('faster:aten::mm', 1.5)]

    Raises:
        UsageError: there is no such fix, or its factor is no number above zero.
    """
    fixes: list[tuple[str, float | None]] = []
    for part in text.split(FIX_SEPARATOR):
        name, has_factor, number = part.strip().partition("=")
        fix = analysis.find_fix(name)
        if fix is None:
            raise errors.UsageError(
                f"There is no fix {name}; available: {', '.join(SIMULATED_FIXES)}."
            )
        if has_factor and fix.factor is None:
            raise errors.UsageError(f"The fix {name} takes no factor; write {name} alone.")
        if name in dict(fixes):
            raise errors.UsageError(f"The fix {name} is named twice.")
        fixes.append((name, _parse_factor(name, number) if has_factor else None))
    return fixes


def _parse_factor(name: str, text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise errors.UsageError(
            f"The factor of {name} is {text}; it must be a number above 0, such as {name}=2."
        )
    return factor


def explain_no_path(run: Run) -> str | None:
    """Explain why a run has no critical path, without building a graph; None where it has one."""
    if has_traces(run):
        return explain_no_graph(run.traces) if run.traces else trace_data.NO_TRACE_IN_RANGE
    return explain_no_span_graph(run.ranks) if run.ranks else trace_data.explain_no_traces(run, [])


def has_traces(run: Run) -> bool:
    """Return True if a run has traces, in the range or not."""
    return bool(run.traces or run.left_out)


def _build_graphs(
    run: Run, traces: Sequence[Trace], rank: int | None
) -> tuple[list[RunGraph], str | None]:
    """Build the graphs of traces; of a watched run without any, that of its spans."""
    if run.ranks and not has_traces(run):
        graph = _build_span_graph(run, rank)
        return ([], graph) if isinstance(graph, str) else ([graph], None)
    missing = trace_data.explain_no_traces(run, list(traces))
    if missing is not None:
        return [], missing
    missing = explain_no_graph(traces)
    if missing is not None:
        return [], missing
    graphs = (
        get_run_graphs(run) if len(traces) == len(run.traces) else build_run_graphs(run, traces)
    )
    return graphs, None if graphs else "the traces contain no time"


def _build_span_graph(run: Run, rank: int | None) -> RunGraph | str:
    if rank is None:
        return get_span_graph(run)
    numbers = number_ranks(run).by_process
    return build_span_graph([one for one in run.ranks if numbers.get(one.process.process) == rank])


def _show_path(graph: RunGraph, top: int) -> CriticalPathOf:
    path, step_count = graph.path, max(1, graph.step_count)
    total_ns = max(1, int(path.duration_ns.sum()))
    sums = graph.sum_categories()
    rows = list_path_rows(graph)
    return CriticalPathOf(
        traces=[part.label for part in graph.parts],
        step_count=graph.step_count,
        step_ns=graph.measured_ns / step_count,
        replay_error_ratio=graph.error_ratio,
        tied_count=graph.joined.matched_count,
        shares=[
            PathShare(
                category=analysis.PATH_NAMES[category],
                step_ns=ns / step_count,
                share_ratio=ns / total_ns,
            )
            for category, ns in sums
            if ns
        ],
        ranks=_list_ranks(graph, total_ns),
        activities=[_show_row(row, step_count, total_ns) for row in rows[: top or None]],
        notes=_note(graph),
    )


def _show_row(row: PathRow, step_count: int, total_ns: int) -> PathActivity:
    return PathActivity(
        name=row.name,
        kind=row.kind,
        category=analysis.PATH_NAMES[row.category],
        rank=row.rank,
        count_per_step=row.count / step_count,
        step_ns=row.total_ns / step_count,
        share_ratio=row.total_ns / total_ns,
    )


def _list_ranks(graph: RunGraph, total_ns: int) -> list[PathRank]:
    if len(graph.parts) == 1:
        return []
    sums = zip(graph.parts, graph.sum_ranks(), strict=True)
    return [
        PathRank(rank=part.rank, share_ratio=ns / total_ns)
        for part, ns in sorted(sums, key=lambda pair: -pair[1])
        if ns
    ]


def _note(graph: RunGraph) -> list[str]:
    notes, divided = list(graph.notes), graph.divided
    if divided and all(one.source == "whole" for one in divided):
        notes.append(
            "the traces mark no steps: one path covers all of the recorded time, start-up included"
        )
    if not all(one.has_host for one in divided):
        lacking = name_traces([one.trace for one in divided if not one.has_host])
        notes.append(
            f"{lacking} without operators: what the host did between its calls is not known"
        )
    if len(graph.parts) > 1 and not graph.joined.matched_count:
        notes.append("no collective ties the ranks together, so the path is that of one of them")
    return notes


def _simulate(graph: RunGraph, fixes: Sequence[tuple[str, float | None]] | None) -> WhatIfOf:
    if fixes is None:
        rows = [_simulate_together(graph, [(name, None)]) for name in analysis.CAUSAL_FIXES]
        rows.sort(key=lambda row: -(row.saving_ratio or 0.0))
    else:
        rows = [_simulate_together(graph, fixes)]
    return WhatIfOf(
        traces=[part.label for part in graph.parts],
        step_count=graph.step_count,
        step_ns=graph.measured_ns / max(1, graph.step_count),
        replay_error_ratio=graph.error_ratio,
        fixes=rows,
        notes=_note(graph),
    )


def _simulate_together(
    graph: RunGraph, fixes: Sequence[tuple[str, float | None]]
) -> SimulatedFixRow:
    selected = [
        (fix, factor) for name, factor in fixes if (fix := analysis.find_fix(name)) is not None
    ]
    names = [
        name if fix.factor is None else f"{name}={factor or fix.factor:g}"
        for (name, factor), (fix, _) in zip(fixes, selected, strict=True)
    ]
    simulated = graph.simulate(*selected)
    reason = _explain_no_saving(graph, [fix for fix, _ in selected], simulated)
    is_accurate = abs(graph.error_ratio) <= MAX_REPLAY_ERROR_RATIO and reason != NEEDS_TRACE
    rest = next(iter(simulated.categories.items()), None) if reason is None else None
    return SimulatedFixRow(
        fix=FIX_SEPARATOR.join(names),
        title="; ".join(fix.title for fix, _ in selected),
        condition="; ".join(fix.condition for fix, _ in selected),
        step_ns=_scale(graph, simulated) if is_accurate else None,
        saving_ratio=simulated.saving_ratio if is_accurate else None,
        error_ratio=abs(graph.error_ratio) if is_accurate else None,
        rest_category=None if rest is None else analysis.PATH_NAMES[rest[0]],
        rest_ratio=None if rest is None else rest[1],
        reason=reason,
    )


def _explain_no_saving(
    graph: RunGraph, fixes: Sequence[analysis.CausalFix], simulated: analysis.SimulatedFix
) -> str | None:
    """Explain why there is no saving, or none can be stated; None where there is one."""
    error = abs(graph.error_ratio)
    if error > MAX_REPLAY_ERROR_RATIO:
        return (
            f"the replay differs from the measured steps by {percent(error)}, so a saving would be "
            "a guess"
        )
    if not graph.divided and any(fix.needs_operators for fix in fixes):
        return NEEDS_TRACE
    if not any(fix.affects(graph.fixed_edges).any() for fix in fixes):
        return "nothing of this kind was recorded"
    if abs(simulated.saving_ratio) < ON_PATH_RATIO:
        return "what it makes faster is not on the critical path"
    return None


def _scale(graph: RunGraph, simulated: analysis.SimulatedFix) -> float:
    """Scale the replayed step to the measured one."""
    return graph.measured_ns / max(1, graph.step_count) * (1 - simulated.saving_ratio)
