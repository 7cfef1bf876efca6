"""Causal graphs of several ranks, tied together by their collectives.

A collective starts on the last of its ranks and then takes the transfer time: that of the rank that
arrived last, which did not wait. So for each matched collective

    meeting      the time when the last rank has arrived
    edges        start on each rank → meeting → end on each rank, the second with the transfer time

instead of the duration on each rank, in which ranks wait. Clocks of ranks are aligned by the ends
of collectives, which all ranks see at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.causal_graph import graph

Int = intervals.Int


class CollectivePoints(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Calls of collectives of one rank in its graph; one entry per call."""

    collective: Int
    """Number of the collective, the same on all ranks; -1 where it is not matched."""
    transfer_ns: Int
    start: Int
    end: Int
    """Points at the start and the end of the call; -1 where it is not in the graph."""
    first_edge: Int
    edge_count: Int
    """Edges that hold the duration of the call."""


class RankGraph(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Points and edges of one rank, unsorted."""

    time_ns: Int
    edges: graph.CausalEdges
    step_count: int
    last_points: Int
    """Points at the end of what steps include: of the host, and of the work that it launched in
    them."""
    last_steps: Int
    """Number of the step of each, from 1; 0 for what ends before the first step starts."""
    activity_count: int
    calls: CollectivePoints


class JoinedRanks(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Causal graph of one rank or several."""

    causal: graph.CausalGraph
    step_ends: list[Int]
    """Points at the start of the first step, and at the end of all that each step includes; by
    rank."""
    rank: NDArray[np.int32]
    """Index of the rank of each point; -1 for meetings and the end."""
    first_activity: Int
    """Number of the first activity of each rank."""
    end: int
    """Point at the end of the steps of all ranks."""
    matched_count: int
    """Collectives that tie ranks together."""
    offset_ns: list[int]
    """By rank: time of its clock at 0 in the graph."""


def join_ranks(parts: Sequence[RankGraph]) -> JoinedRanks:
    """Join the graphs of ranks that were recorded together.

    Args:
        parts: graph of each rank; times of all on nearly the same clock.

    Raises:
        CycleError: collectives are in different orders on different ranks.
    """
    counts = np.array([len(part.time_ns) for part in parts], dtype=np.int64)
    first_point = np.cumsum(counts) - counts
    activity_counts = np.array([part.activity_count for part in parts], dtype=np.int64)
    first_activity = np.cumsum(activity_counts) - activity_counts
    offsets = _align(parts)
    origin = int(parts[0].time_ns.min(initial=np.iinfo(np.int64).max))
    times = [part.time_ns - offset - origin for part, offset in zip(parts, offsets, strict=True)]
    edges, point_count = [], int(counts.sum())
    tied = _tie(parts, times, first_point, point_count)
    for index, part in enumerate(parts):
        edges.append(
            replace(
                part.edges,
                source=part.edges.source + first_point[index],
                target=part.edges.target + first_point[index],
                weight_ns=tied.weights[index],
                activity=np.where(
                    part.edges.activity >= 0, part.edges.activity + first_activity[index], -1
                ),
            )
        )
    edges.append(tied.edges)
    times.append(tied.time_ns)
    next_point = point_count + len(tied.time_ns)
    step_ends = []
    for index, part in enumerate(parts):
        points = next_point + np.arange(part.step_count + 1, dtype=np.int64)
        step_ends.append(points)
        next_point += len(points)
        edges.append(_gather(part.last_points + first_point[index], points[part.last_steps]))
        edges.append(_gather(points[:-1], points[1:]))
        ends = np.full(len(points), np.iinfo(np.int64).min, dtype=np.int64)
        np.maximum.at(ends, part.last_steps, times[index][part.last_points])
        times.append(np.maximum.accumulate(ends))
    last = np.array([points[-1] for points in step_ends], dtype=np.int64)
    edges.append(_gather(last, np.full(len(last), next_point, dtype=np.int64)))
    times.append(np.array([max(part[-1] for part in times[-len(parts) :])], dtype=np.int64))
    causal = graph.build_graph(np.concatenate(times), graph.join_edges(edges))
    rank = np.full(len(causal.time_ns), -1, dtype=np.int32)
    for index, first in enumerate(first_point.tolist()):
        rank[causal.number[first : first + counts[index]]] = index
    return JoinedRanks(
        causal=causal,
        step_ends=[causal.number[points] for points in step_ends],
        rank=rank,
        first_activity=first_activity,
        end=int(causal.number[next_point]),
        matched_count=len(tied.time_ns),
        offset_ns=[offset + origin for offset in offsets],
    )


def _gather(sources: Int, targets: Int) -> graph.CausalEdges:
    """Make edges without weight between points."""
    return graph.make_edges(
        sources,
        targets,
        np.zeros(len(sources), dtype=np.int64),
        graph.EdgeKind.HOST,
        graph.PathCategory.PYTHON,
    )


def _align(parts: Sequence[RankGraph]) -> list[int]:
    """Estimate how far the clock of each rank is ahead of that of the first one: the median over
    the ends of the collectives of both, 0 without any."""
    offsets = [0]
    reference = _ends_by_collective(parts[0])
    for part in parts[1:]:
        ends = _ends_by_collective(part)
        shared = ends.keys() & reference.keys()
        differences = [ends[number] - reference[number] for number in shared]
        offsets.append(int(np.median(differences)) if differences else 0)
    return offsets


def _ends_by_collective(part: RankGraph) -> dict[int, int]:
    rows = _usable(part.calls)
    ends = part.time_ns[part.calls.end[rows]]
    return dict(zip(part.calls.collective[rows].tolist(), ends.tolist(), strict=True))


def _usable(calls: CollectivePoints) -> Int:
    return np.flatnonzero((calls.collective >= 0) & (calls.start >= 0) & (calls.end >= 0))


class _Ties(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    time_ns: Int
    edges: graph.CausalEdges
    weights: list[Int]


def _tie(
    parts: Sequence[RankGraph], times: Sequence[Int], first_point: Int, first_meeting: int
) -> _Ties:
    """Make the meetings of the collectives that are in the graphs of several ranks."""
    rows = [_usable(part.calls) for part in parts]
    numbers = [part.calls.collective[row] for part, row in zip(parts, rows, strict=True)]
    _, inverse, counts = np.unique(np.concatenate(numbers), return_inverse=True, return_counts=True)
    is_shared = counts > 1
    meeting_of = np.where(is_shared, np.cumsum(is_shared) - 1, -1)
    meeting_count = int(is_shared.sum())
    meeting_time = np.full(meeting_count, np.iinfo(np.int64).min, dtype=np.int64)
    edges, weights, at = [], [], 0
    for index, (part, usable) in enumerate(zip(parts, rows, strict=True)):
        meeting = meeting_of[inverse[at : at + len(usable)]]
        at += len(usable)
        row, meeting = usable[meeting >= 0], meeting[meeting >= 0]
        calls, weight = part.calls, part.edges.weight_ns.copy()
        np.maximum.at(meeting_time, meeting, times[index][calls.start[row]])
        arrive = graph.make_edges(
            calls.start[row] + first_point[index],
            meeting + first_meeting,
            np.zeros(len(row), dtype=np.int64),
            graph.EdgeKind.RANK,
            graph.PathCategory.LATE_RANK,
        )
        leave = graph.make_edges(
            meeting + first_meeting,
            calls.end[row] + first_point[index],
            calls.transfer_ns[row],
            graph.EdgeKind.RANK,
            graph.PathCategory.COMMUNICATION,
            part.edges.activity[calls.first_edge[row]],
        )
        edges += [arrive, leave]
        for first, count, transfer in zip(
            calls.first_edge[row].tolist(),
            calls.edge_count[row].tolist(),
            calls.transfer_ns[row].tolist(),
            strict=True,
        ):
            weight[first : first + count] = 0
            weight[first] = transfer
        weights.append(weight)
    return _Ties(time_ns=meeting_time, edges=graph.join_edges(edges), weights=weights)
