"""Directed graph of points in time: replay, longest path, slack.

A point is the start or the end of something that was recorded. An edge says that its target came at
least `weight_ns` after its source. A replay is the earliest schedule that obeys all edges:

    time(p) = max over edges (s → p) of time(s) + weight
    slack(p) = latest time of p that delays no end point - time(p)

This is the critical path method (Kelley and Walker 1959, https://doi.org/10.1145/1460299.1460318)
as Daydream applies it to training (https://www.usenix.org/conference/atc20/presentation/zhu-hongyu).
"""

from __future__ import annotations

from enum import IntEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.causal_graph._paths import open_paths
from stepscope.native_library import address_of

Int = intervals.Int


class EdgeKind(IntEnum):
    """Reason why the target of an edge comes after its source."""

    HOST = 0
    """Order of a host thread; the weight is the thread's own time in between."""
    WORK = 1
    """Start to end of a kernel, copy or set, or of a fetch in a worker."""
    LAUNCH = 2
    """The call that launched some work, to its start."""
    STREAM = 3
    """Order of a stream."""
    EVENT = 4
    """A stream that waits for an event of another one."""
    SYNC = 5
    """A call that waits for work of a device."""
    HANDOVER = 6
    """Work that one host thread hands to another, and its return."""
    RANK = 7
    """A collective that starts on the last of its ranks."""


class PathCategory(IntEnum):
    """Kind of time of an edge."""

    COMPUTE = 0
    COMMUNICATION = 1
    LATE_RANK = 2
    LAUNCH = 3
    HOST_SYNC = 4
    COPY = 5
    INPUT = 6
    PYTHON = 7
    UNEXPLAINED = 8
    CHECKPOINT = 9
    EVALUATION = 10
    STARTUP = 11
    BATCH_HANDOVER = 12


NO_ACTIVITY = -1


PATH_NAMES = {
    PathCategory.COMPUTE: "computation",
    PathCategory.COMMUNICATION: "communication",
    PathCategory.LATE_RANK: "waiting for a late rank",
    PathCategory.LAUNCH: "launching work",
    PathCategory.HOST_SYNC: "waiting for the device",
    PathCategory.COPY: "copies",
    PathCategory.INPUT: "fetching batches",
    PathCategory.PYTHON: "Python",
    PathCategory.UNEXPLAINED: "not explained",
    PathCategory.CHECKPOINT: "checkpoints",
    PathCategory.EVALUATION: "evaluation",
    PathCategory.STARTUP: "starting workers",
    PathCategory.BATCH_HANDOVER: "handing over batches",
}
"""Names of the kinds of time."""


class CycleError(ValueError):
    """Events wait for each other in a circle, as where clocks of ranks contradict each other."""


class CausalEdges(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Edges of a graph; arrays have one entry per edge."""

    source: Int
    target: Int
    weight_ns: Int
    kind: NDArray[np.int8]
    """`EdgeKind`."""
    category: NDArray[np.int8]
    """`PathCategory`."""
    activity: Int
    """Number of what ran meanwhile, `NO_ACTIVITY` for none."""

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: Int | NDArray[np.bool_]) -> CausalEdges:
        """Select edges by an index array or a mask."""
        return CausalEdges(**{name: getattr(self, name)[rows] for name in self.__struct_fields__})


def make_edges(  # noqa: PLR0917 - one argument per column
    source: Int,
    target: Int,
    weight_ns: Int,
    kind: EdgeKind,
    category: int | NDArray[np.int8],
    activity: int | Int = NO_ACTIVITY,
) -> CausalEdges:
    """Make edges of one kind."""
    count = len(source)
    return CausalEdges(
        source=source,
        target=target,
        weight_ns=weight_ns,
        kind=np.full(count, kind, dtype=np.int8),
        category=np.broadcast_to(np.asarray(category, dtype=np.int8), (count,)),
        activity=np.broadcast_to(np.asarray(activity, dtype=np.int64), (count,)),
    )


def join_edges(parts: list[CausalEdges]) -> CausalEdges:
    """Concatenate edges."""
    return CausalEdges(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in CausalEdges.__struct_fields__
        }
    )


class CausalSchedule(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Times of a replay."""

    time_ns: Int
    """Time of each point."""
    binding: Int
    """Edge that determines the time of each point, -1 for none."""


class CausalGraph(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Points and edges, in topological order: the source of an edge has a smaller number than its
    target, and edges are sorted by target."""

    time_ns: Int
    """Measured time of each point."""
    edges: CausalEdges
    number: Int
    """Number in this graph of each point that it was built from."""

    def replay(self, weight_ns: Int | None = None) -> CausalSchedule:
        """Compute the earliest schedule. Points without an edge into them keep their time.

        Args:
            weight_ns: other weights of the edges.
        """
        weight = self.edges.weight_ns if weight_ns is None else weight_ns
        time = self.time_ns.copy()
        binding = np.full(len(time), -1, dtype=np.int64)
        _schedule(self.edges.source, self.edges.target, weight, time, binding)
        return CausalSchedule(time_ns=time, binding=binding)

    def measure_slack(
        self, schedule: CausalSchedule, end: int, weight_ns: Int | None = None
    ) -> Int:
        """Measure how much later each point could come without delaying a point.

        Args:
            schedule: a replay with these weights.
            end: the point that must not come later.
            weight_ns: weights of the replay.

        Returns:
            Nanoseconds; the largest integer where the point delays nothing.
        """
        weight = self.edges.weight_ns if weight_ns is None else weight_ns
        unbounded = np.iinfo(np.int64).max // 2
        latest = np.full(len(self.time_ns), unbounded, dtype=np.int64)
        latest[end] = schedule.time_ns[end]
        _bound(self.edges.source, self.edges.target, weight, latest)
        is_free = latest > unbounded // 2
        return np.where(is_free, np.iinfo(np.int64).max, latest - schedule.time_ns)

    def trace_path(self, schedule: CausalSchedule, end: int) -> Int:
        """Trace the edges of the longest path to a point, in the order of time.

        Args:
            schedule: a replay.
            end: the point.
        """
        path = np.empty(len(self.time_ns), dtype=np.int64)
        library = open_paths()
        if library is not None:
            arrays = (np.ascontiguousarray(self.edges.source), schedule.binding, path)
            count = library.stepscope_trace_path(end, *map(address_of, arrays))
            return path[:count][::-1].copy()
        edges = []
        edge = int(schedule.binding[end])
        while edge >= 0:
            edges.append(edge)
            edge = int(schedule.binding[self.edges.source[edge]])
        return np.array(edges[::-1], dtype=np.int64)


def build_graph(time_ns: Int, edges: CausalEdges) -> CausalGraph:
    """Sort points and edges topologically.

    Args:
        time_ns: measured time of each point.
        edges: edges between these points, in any order.

    Raises:
        CycleError: edges form a cycle.
    """
    count = len(time_ns)
    by_time = np.argsort(time_ns, kind="stable")
    rank = np.empty(count, dtype=np.int64)
    rank[by_time] = np.arange(count, dtype=np.int64)
    source, target = rank[edges.source], rank[edges.target]
    if (source >= target).any():
        order = _order_points(count, source, target)
        if len(order) < count:
            raise CycleError
        later = np.empty(count, dtype=np.int64)
        later[order] = np.arange(count, dtype=np.int64)
        rank = later[rank]
        source, target = later[source], later[target]
        by_time = by_time[order]
    rows = np.argsort(target, kind="stable")
    sorted_edges = edges.take(rows)
    return CausalGraph(
        time_ns=time_ns[by_time],
        edges=msgspec.structs.replace(sorted_edges, source=source[rows], target=target[rows]),
        number=rank,
    )


def _order_points(count: int, source: Int, target: Int) -> Int:
    """Order points after the sources of their edges; without those in and after a cycle."""
    rows = np.argsort(source, kind="stable")
    targets = np.ascontiguousarray(target[rows])
    first = np.searchsorted(source[rows], np.arange(count + 1))
    waiting = np.bincount(target, minlength=count).astype(np.int64)
    library = open_paths()
    if library is not None:
        order = np.empty(count, dtype=np.int64)
        ready = library.stepscope_order_points(
            count, *map(address_of, (first, targets, waiting, order))
        )
        return order[:ready]
    edges_after, remaining = first.tolist(), waiting.tolist()
    ordered = np.flatnonzero(waiting == 0).tolist()
    target_list = targets.tolist()
    for point in ordered:  # grows meanwhile
        for edge in range(edges_after[point], edges_after[point + 1]):
            remaining[target_list[edge]] -= 1
            if not remaining[target_list[edge]]:
                ordered.append(target_list[edge])
    return np.array(ordered, dtype=np.int64)


def _schedule(source: Int, target: Int, weight: Int, time: Int, binding: Int) -> None:
    """Write the earliest time and the binding edge of each point."""
    library = open_paths()
    if library is not None:
        arrays = [np.ascontiguousarray(part) for part in (source, target, weight)]
        library.stepscope_schedule(len(source), *map(address_of, (*arrays, time, binding)))
        return
    times, bindings = time.tolist(), binding.tolist()
    rows = zip(source.tolist(), target.tolist(), weight.tolist(), strict=True)
    for edge, (start, point, length) in enumerate(rows):
        end = times[start] + length
        if bindings[point] < 0 or end > times[point]:
            times[point], bindings[point] = end, edge
    time[:], binding[:] = times, bindings


def _bound(source: Int, target: Int, weight: Int, latest: Int) -> None:
    """Lower the latest time of each point to what its edges allow."""
    library = open_paths()
    if library is not None:
        arrays = [np.ascontiguousarray(part) for part in (source, target, weight)]
        library.stepscope_latest(len(source), *map(address_of, (*arrays, latest)))
        return
    times = latest.tolist()
    rows = zip(source.tolist(), target.tolist(), weight.tolist(), strict=True)
    for start, point, length in reversed(list(rows)):
        times[start] = min(times[start], times[point] - length)
    latest[:] = times
