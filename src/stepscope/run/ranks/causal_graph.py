"""Causal graph of the steps of one rank or of several that were recorded together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals
from stepscope.run.model.run import Run
from stepscope.run.model.traces import Trace, reading_ahead, release_columns
from stepscope.run.ranks.trace_parts import (
    CALL_COLUMNS,
    TraceCalls,
    TracePart,
    combine_calls,
    read_calls,
    split_traces,
)
from stepscope.run.traces.causal_graph import PieceNames, TraceGraph, build_trace_graph
from stepscope.run.traces.step_activity import DividedTrace, divide_trace
from stepscope.run.traces.steps import marked_steps
from stepscope.run.traces.unlike import group_by_time

MAX_REPLAY_ERROR_RATIO = 0.1
"""Error of a replay above which it says nothing about fixes."""
CONTRADICTION = (
    "collectives of the ranks come in orders that contradict each other, as where the calls of "
    "different groups are not told apart"
)
UNNAMED_PIECES = (("delay before work starts", "delay"), ("other host code", "Python"))
"""Names and kinds of time in which nothing ran that has a name: on the way to it, and of a host
thread."""


class PathRow(msgspec.Struct, frozen=True, kw_only=True):
    """Pieces of a critical path with one name."""

    name: str
    kind: str
    """operator, call, range, Python, kernel, copy, phase, fetch or delay."""
    category: analysis.PathCategory
    rank: int | None
    count: int
    total_ns: int


class GraphPart(Protocol):
    """Part of a causal graph that is of one rank."""

    @property
    def points(self) -> analysis.RankGraph:
        """Points and edges."""

    @property
    def rank(self) -> int | None:
        """Number of the rank, None if unknown."""

    @property
    def label(self) -> str:
        """Name of what the graph was built of."""

    @property
    def in_optimizer(self) -> NDArray[np.bool_]:
        """True for activities inside an optimizer step."""

    @property
    def reads_host(self) -> NDArray[np.bool_]:
        """True for copies from the host to a device, and the calls that start or await them."""

    def read_names(self) -> tuple[list[str], intervals.Int]:
        """Read the names of the activities: distinct ones, and the index of that of each activity,
        -1 for none."""

    def name_pieces(self, activity: intervals.Int, time_ns: intervals.Int) -> PieceNames:
        """Name pieces of a path by their activities, or by what runs at a time."""


class RunGraph(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Causal graph of ranks, with its replay and its critical path."""

    parts: Sequence[GraphPart]
    joined: analysis.JoinedRanks
    schedule: analysis.CausalSchedule
    rank: int
    """Index of the rank in which the path begins."""
    path: analysis.CriticalPath
    notes: list[str] = []

    @property
    def divided(self) -> list[DividedTrace]:
        """Traces that the graph was built of; none for one of spans."""
        return [part.divided for part in self.parts if isinstance(part, TraceGraph)]

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
        for part in self.parts:
            of_part, number = part.read_names()
            codes = [names.setdefault(name, len(names)) for name in of_part]
            numbers.append(np.append(np.array(codes, dtype=np.int64), -1)[number])
        number = np.concatenate([*numbers, [-1]])
        return {"name": number[self.joined.causal.edges.activity], "names": list(names)}

    def sum_weights(self, edges: NDArray[np.bool_]) -> int:
        """Sum the time of a mask of edges from the first step on."""
        causal = self.joined.causal
        inside = edges & (causal.time_ns[causal.edges.target] > self.start_ns)
        return int(causal.edges.weight_ns[inside].sum())

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
        sums: list[int] = self.path.sum_by(rank, len(self.parts)).tolist()
        return sums


class _BuiltTrace(NamedTuple):
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
        one._replace(
            graph=msgspec.structs.replace(
                one.graph, divided=replace(one.graph.divided, trace=trace)
            )
        )
        for trace, one in zip(
            [trace for part in parts for trace in part.traces],
            [one for part in mapped for one in part],
            strict=True,
        )
        if one is not None
    ]
    groups: dict[tuple[int, int | None], list[_BuiltTrace]] = {}
    numbers = group_by_time(run, [one.graph.divided.trace for one in built])
    for one, number in zip(built, numbers, strict=True):
        groups.setdefault((number, one.graph.divided.trace.window), []).append(one)
    graphs = []
    for group in groups.values():
        ranks = {one.graph.rank for one in group}
        if len(group) > 1 and (None in ranks or len(ranks) < len(group)):
            graphs += [_join([one]) for one in group]
            continue
        try:
            graphs.append(_join(group))
        except analysis.CycleError:
            graphs += [
                msgspec.structs.replace(
                    _join([one]), notes=[f"{CONTRADICTION}: each rank is shown alone"]
                )
                for one in group
            ]
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
    return _BuiltTrace(graph, calls)


def _join(built: Sequence[_BuiltTrace]) -> RunGraph:
    """Join the graphs of ranks by their collectives."""
    calls = combine_calls([one.calls for one in built]).calls
    matched = analysis.match_calls(calls)
    parts = []
    for index, one in enumerate(built):
        rows = np.flatnonzero(calls.rank == index)
        matches = msgspec.structs.replace(
            one.graph.points.calls,
            collective=matched.collective[rows],
            transfer_ns=matched.transfer_ns[rows],
        )
        points = msgspec.structs.replace(one.graph.points, calls=matches)
        parts.append(msgspec.structs.replace(one.graph, points=points))
    return join_parts(parts)


def join_parts(parts: Sequence[GraphPart], notes: Sequence[str] = ()) -> RunGraph:
    """Join the graphs of ranks whose collectives are matched, and find the critical path.

    Args:
        parts: one per rank.
        notes: remarks for those who read the graph.

    Raises:
        CycleError: what waits for what contradicts itself.
    """
    release_columns()  # graphs are larger
    joined = analysis.join_ranks([part.points for part in parts])
    schedule = joined.causal.replay()
    edges = joined.causal.trace_path(schedule, joined.end)
    root = int(joined.causal.edges.source[edges[0]]) if len(edges) else joined.end
    rank_index = max(int(joined.rank[root]), 0)
    return RunGraph(
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
        notes=list(notes),
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
    """Names with their kinds: operator, call, range, Python, kernel, copy, phase, fetch or
    delay."""


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
    for index, part in enumerate(graph.parts):
        rows = np.flatnonzero(rank == index)
        times = np.where(is_python[rows], middle[rows] + graph.joined.offset_ns[index], -1)
        numbers = np.where(activity[rows] >= 0, activity[rows] - first[index], -1)
        names = part.name_pieces(numbers, times)
        event[rows] = names.event
        label[rows] = np.where(names.label >= 0, names.label + len(labels), label[rows])
        labels += names.labels
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
                rank=graph.parts[rank].rank if rank >= 0 else None,
                count=count,
                total_ns=total_ns,
            )
        )
    return sorted(listed, key=lambda row: -row.total_ns)
