"""Causal graph of the steps of one rank or of several that were recorded together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals
from stepscope.run.model.run import Run
from stepscope.run.model.traces import Trace, reading_ahead
from stepscope.run.ranks.trace_parts import (
    CALL_COLUMNS,
    TraceCalls,
    TracePart,
    combine_calls,
    read_calls,
    split_traces,
)
from stepscope.run.traces.causal_graph import TraceGraph, build_trace_graph
from stepscope.run.traces.step_activity import DividedTrace, divide_trace
from stepscope.run.traces.steps import marked_steps
from stepscope.run.traces.unlike import group_by_time

MAX_REPLAY_ERROR_RATIO = 0.1
"""Error of a replay above which it says nothing about fixes."""
CONTRADICTION = (
    "collectives of the ranks come in orders that contradict each other, as where the calls of "
    "different groups are not told apart: each rank is shown alone"
)
UNNAMED_PIECES = (("delay before work starts", "delay"), ("other host code", "Python"))
"""Names and kinds of time in which nothing ran that has a name: on the way to it, and of a host
thread."""


class PathRow(msgspec.Struct, frozen=True, kw_only=True):
    """Pieces of a critical path with one name."""

    name: str
    kind: str
    """operator, call, range, Python, kernel, copy or delay."""
    category: analysis.PathCategory
    rank: int | None
    count: int
    total_ns: int


class RunGraph(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Causal graph of some traces, with its replay and its critical path."""

    divided: list[DividedTrace]
    parts: list[TraceGraph]
    joined: analysis.JoinedRanks
    schedule: analysis.CausalSchedule
    rank: int
    """Index of the rank in which the path begins."""
    path: analysis.CriticalPath
    note: str = ""

    @property
    def start_ns(self) -> int:
        """Start of the first step of the rank in which the path begins."""
        return int(self.joined.causal.time_ns[self.joined.step_ends[self.rank][0]])

    @property
    def step_count(self) -> int:
        """Number of steps of the path."""
        return len(self.joined.step_ends[self.rank]) - 1

    @property
    def measured_ns(self) -> int:
        """Measured time from the first step to the end of the last one."""
        return int(self.joined.causal.time_ns[self.joined.end]) - self.start_ns

    @property
    def replayed_ns(self) -> int:
        """The same time in the replay."""
        start, end = self.extents[0]
        return int(self.schedule.time_ns[end] - self.schedule.time_ns[start])

    @property
    def extents(self) -> list[tuple[int, int]]:
        """Points at the start of the first step and at the end of the last one: of all ranks
        together, then of each."""
        points = self.joined.step_ends
        return [
            (int(points[self.rank][0]), self.joined.end),
            *((int(rank[0]), int(rank[-1])) for rank in points),
        ]

    @property
    def error_ratio(self) -> float:
        """Difference of the replayed time of the steps to the measured one, negative if too short;
        relative to the measured one."""
        measured = self.measured_ns
        return (self.replayed_ns - measured) / measured if measured else 0.0

    @cached_property
    def fixed_edges(self) -> analysis.FixedEdges:
        """Edges, with what fixes have to know of them."""
        edges = self.joined.causal.edges
        in_optimizer, reads_host = (
            np.concatenate([*(getattr(part, name) for part in self.parts), [False]])
            for name in ("in_optimizer", "reads_host")
        )
        return analysis.FixedEdges(
            edges=edges,
            in_optimizer=in_optimizer[edges.activity],
            reads_host=reads_host[edges.activity],
            **self._read_names(),
        )

    def _read_names(self) -> dict[str, Any]:
        """Read the names of the activities of the edges."""
        names: dict[str, int] = {}
        numbers = []
        for one, part in zip(self.divided, self.parts, strict=True):
            for rows in part.activities:
                column = _read_activity_names(one.trace.whole, rows.table)
                codes = [names.setdefault(str(name), len(names)) for name in column.values]
                numbers.append(np.append(np.array(codes, dtype=np.int64), -1)[column.codes])
        number = np.concatenate([*numbers, [-1]])
        return {"name": number[self.joined.causal.edges.activity], "names": list(names)}

    def simulate(self, *fixes: tuple[analysis.CausalFix, float | None]) -> analysis.SimulatedFix:
        """Replay with several fixes at once.

        Args:
            fixes: fixes with their factors; None for the default.
        """
        return analysis.simulate_fixes(
            self.joined.causal, self.fixed_edges, fixes, self.extents, self.step_count
        )

    def measure_step_errors(self) -> NDArray[np.float64]:
        """Measure the relative error of the replay of each step, from the end of the one before."""
        ends = self.joined.step_ends[self.rank]
        measured, replayed = (
            np.diff(times[ends]).astype(np.float64)
            for times in (self.joined.causal.time_ns, self.schedule.time_ns)
        )
        errors: NDArray[np.float64] = np.abs(replayed - measured) / np.maximum(measured, 1)
        return errors

    def sum_categories(self) -> list[tuple[analysis.PathCategory, int]]:
        """Sum the time of the path by category, in nanoseconds, largest first."""
        sums = self.path.sum_by(
            self.path.category.astype(np.int64), len(analysis.PathCategory)
        ).tolist()
        return sorted(
            zip(analysis.PathCategory, sums, strict=True), key=lambda category: -category[1]
        )

    def sum_ranks(self) -> list[int]:
        """Sum the time of the path in each rank, in nanoseconds."""
        edges = self.joined.causal.edges
        source, target = (
            self.joined.rank[np.append(points, 0)[self.path.edge]].astype(np.int64)
            for points in (edges.source, edges.target)
        )
        # The transfer of a collective comes from no rank.
        rank = np.where(source >= 0, source, target)
        sums: list[int] = self.path.sum_by(rank, len(self.divided)).tolist()
        return sums


class _BuiltTrace(NamedTuple):
    divided: DividedTrace
    graph: TraceGraph
    calls: TraceCalls
    """Calls of collectives, in the order of the points of the graph."""


def build_run_graph(divided: Sequence[DividedTrace]) -> RunGraph:
    """Build the causal graph of the steps of traces that were recorded together.

    Args:
        divided: traces with their steps, one per rank.

    Raises:
        CycleError: what waits for what contradicts itself.
    """
    return _join([_build_trace(one) for one in divided])


def build_run_graphs(run: Run, traces: Sequence[Trace]) -> list[RunGraph]:
    """Build a causal graph for each group of ranks that were recorded together, or for each rank
    where collectives contradict each other; by the engine of the run.

    Args:
        run: the run.
        traces: traces of it; those without steps are left out.

    Raises:
        StepscopeError: the engine has failed.
    """
    parts = split_traces(run, traces, part_events=PART_EVENTS)
    mapped = run.engine.map(run.whole_run, _build_part, parts, tables=TABLES)
    built = [
        one._replace(divided=replace(one.divided, trace=trace))
        for trace, one in zip(
            [trace for part in parts for trace in part.traces],
            [one for part in mapped for one in part],
            strict=True,
        )
        if one is not None
    ]
    groups: dict[tuple[int, int | None], list[_BuiltTrace]] = {}
    numbers = group_by_time(run, [one.divided.trace for one in built])
    for one, number in zip(built, numbers, strict=True):
        groups.setdefault((number, one.divided.trace.window), []).append(one)
    graphs = []
    for group in groups.values():
        ranks = {one.divided.trace.rank for one in group}
        if len(group) > 1 and (None in ranks or len(ranks) < len(group)):
            graphs += [_join([one]) for one in group]
            continue
        try:
            graphs.append(_join(group))
        except analysis.CycleError:
            graphs += [msgspec.structs.replace(_join([one]), note=CONTRADICTION) for one in group]
    return graphs


def get_run_graphs(run: Run) -> list[RunGraph]:
    """Return the causal graphs of all traces of a run, built once per run; none where
    `explain_no_graph` has a reason."""
    return run.derive(_build_all_graphs)


def _build_all_graphs(run: Run) -> list[RunGraph]:
    if not run.traces or explain_no_graph(run.traces) is not None:
        return []
    return build_run_graphs(run, reading_ahead(run.traces))


def explain_no_graph(traces: Sequence[Trace]) -> str | None:
    """Explain why traces have no causal graph; None where nothing speaks against it."""
    for trace in traces:
        reason = trace.unknown_devices or trace.unrecorded_devices
        if reason:
            return f"what waits for what is not known: {reason}"
    return None


PART_EVENTS = 400_000
"""Events of traces whose graphs one task builds."""
TABLES = (
    *("kernels", "copies", "operators", "annotations", "runtime_calls", "collectives"),
    *("synchronisations", "tracks", "spans"),
)


def _build_part(run: Run, part: TracePart) -> list[_BuiltTrace | None]:
    selected, traces = part.attach(run)
    return [
        _build_trace(divided) if divided.steps.wall_ns.sum() > 0 else None
        for divided in (
            divide_trace(trace, marked_steps(selected, trace)) for trace in reading_ahead(traces)
        )
    ]


def _build_trace(divided: DividedTrace) -> _BuiltTrace:
    trace = divided.trace.whole
    calls = read_calls(trace, trace.columns("kernels", CALL_COLUMNS))
    graph = build_trace_graph(divided, intervals.Intervals(calls.start, calls.end))
    return _BuiltTrace(divided, graph, calls)


def _join(built: Sequence[_BuiltTrace]) -> RunGraph:
    """Join the graphs of ranks by their collectives, and find the critical path."""
    calls = combine_calls([one.calls for one in built]).calls
    matched = analysis.match_calls(calls)
    parts = []
    for index, one in enumerate(built):
        rows = np.flatnonzero(calls.rank == index)
        points = msgspec.structs.replace(
            one.graph.rank.calls,
            collective=matched.collective[rows],
            transfer_ns=matched.transfer_ns[rows],
        )
        rank = msgspec.structs.replace(one.graph.rank, calls=points)
        parts.append(msgspec.structs.replace(one.graph, rank=rank))
    joined = analysis.join_ranks([part.rank for part in parts])
    schedule = joined.causal.replay()
    edges = joined.causal.trace_path(schedule, joined.end)
    root = int(joined.causal.edges.source[edges[0]]) if len(edges) else joined.end
    rank_index = max(int(joined.rank[root]), 0)
    return RunGraph(
        divided=[one.divided for one in built],
        parts=parts,
        joined=joined,
        schedule=schedule,
        rank=rank_index,
        path=analysis.find_critical_path(
            joined.causal,
            edges,
            (
                int(joined.causal.time_ns[joined.step_ends[rank_index][0]]),
                int(joined.causal.time_ns[joined.end]),
            ),
        ),
    )


class PathPieces(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Names and events of the pieces of a critical path; arrays have one entry per piece."""

    rank: intervals.Int
    """Index of the rank, -1 for none."""
    event: intervals.Int
    """Id of the event in the trace of the rank, -1 for none."""
    label: intervals.Int
    """Index into `labels`."""
    labels: list[tuple[str, str]]
    """Names with their kinds: operator, call, range, Python, kernel, copy or delay."""


def name_path_pieces(graph: RunGraph) -> PathPieces:
    """Name the pieces of a critical path by what ran."""
    path, edges = graph.path, graph.joined.causal.edges
    first = graph.joined.first_activity
    activity = np.append(edges.activity, -1)[path.edge]
    rank = np.searchsorted(first, activity, side="right") - 1
    point = np.append(edges.target, 0)[path.edge]
    rank = np.where(activity >= 0, rank, graph.joined.rank[point])
    middle = path.border_ns[:-1] + path.duration_ns // 2
    is_python = path.category == analysis.PathCategory.PYTHON
    label, event = is_python.astype(np.int64), np.full(len(rank), -1, dtype=np.int64)
    labels = list(UNNAMED_PIECES)
    for index, (one, part) in enumerate(zip(graph.divided, graph.parts, strict=True)):
        rows = np.flatnonzero(rank == index)
        times = np.where(is_python[rows], middle[rows] + graph.joined.offset_ns[index], -1)
        numbers = np.where(activity[rows] >= 0, activity[rows] - first[index], -1)
        codes, event[rows], names = _name_pieces(one.trace.whole, part, numbers, times)
        label[rows] = np.where(codes >= 0, codes + len(labels), label[rows])
        labels += names
    return PathPieces(rank=rank, event=event, label=label, labels=labels)


def list_path_rows(graph: RunGraph) -> list[PathRow]:
    """Sum up the critical path by what ran, longest first."""
    path, pieces = graph.path, name_path_pieces(graph)
    groups = analysis.group_rows(pieces.rank, pieces.label, path.category.astype(np.int64))
    counts, sums = groups.counts().tolist(), groups.sums(path.duration_ns).tolist()
    listed = []
    for row, count, total_ns in zip(groups.first.tolist(), counts, sums, strict=True):
        name, kind = pieces.labels[pieces.label[row]]
        rank = int(pieces.rank[row])
        listed.append(
            PathRow(
                name=name,
                kind=kind,
                category=analysis.PathCategory(path.category[row]),
                rank=graph.divided[rank].trace.rank if rank >= 0 else None,
                count=count,
                total_ns=total_ns,
            )
        )
    return sorted(listed, key=lambda row: -row.total_ns)


_KINDS = {
    "annotations": "range",
    "operators": "operator",
    "runtime_calls": "call",
    "kernels": "kernel",
    "copies": "copy",
}


def _name_pieces(
    trace: Trace, part: TraceGraph, numbers: intervals.Int, times: intervals.Int
) -> tuple[intervals.Int, intervals.Int, list[tuple[str, str]]]:
    """Name pieces of a path by their activities, or by Python functions around them.

    Args:
        trace: the trace.
        part: its graph.
        numbers: activity of each piece, -1 for none.
        times: time of each piece at which the Python function counts, -1 where it does not.

    Returns:
        The index of the name of each piece and the id of its event, -1 for none, and names with
        their kinds.
    """
    codes, events = (np.full(len(numbers), -1, dtype=np.int64) for _ in range(2))
    labels: list[tuple[str, str]] = []
    for table in part.activities:
        rows = np.flatnonzero((numbers >= table.first) & (numbers < table.first + len(table.ids)))
        names = _read_activity_names(trace, table.table)
        codes[rows] = names.codes[numbers[rows] - table.first] + len(labels)
        events[rows] = table.ids[numbers[rows] - table.first]
        labels += [(str(name), _KINDS[table.table]) for name in names.values]
    if trace.has_stacks:
        rows = np.flatnonzero(times >= 0)
        functions, ids, values = _find_functions(trace, part.main_track, times[rows])
        codes[rows] = np.where(functions >= 0, functions + len(labels), codes[rows])
        events[rows] = np.where(functions >= 0, ids, events[rows])
        labels += [(name, "Python") for name in values]
    return codes, events, labels


def _read_activity_names(trace: Trace, table: str) -> analysis.Strings:
    """Read the names of the activities of a table, in the order of their numbers."""
    condition = "on_device = 0" if table == "annotations" else ""
    names: analysis.Strings = trace.columns(table, ("name",), condition=condition)["name"]
    return names


def _find_functions(
    trace: Trace, track: int, times: intervals.Int
) -> tuple[intervals.Int, intervals.Int, list[str]]:
    """Find the innermost Python function of a thread at each time: the indices of their names and
    their ids, -1 for none, and the names."""
    rows = trace.columns(
        "python_functions", ("id", "name", *analysis.TIME_COLUMNS), condition=f"track = {track}"
    )
    extent = analysis.make_intervals(rows)
    order = intervals.nesting_order(*extent)
    start, end = (edge[order] for edge in extent)
    parent = intervals.parents(start, end, intervals.OVERHANG_NS)
    row = intervals.innermost_at(times, start, end, parent)
    codes, ids = (
        np.append(values[order], -1)[row].astype(np.int64)
        for values in (rows["name"].codes, rows["id"])
    )
    return codes, ids, [str(name) for name in rows["name"].values]
