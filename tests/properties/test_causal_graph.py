"""Causal graphs compared with dynamic programming over dictionaries, and with networkx."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from unittest import mock

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stepscope.analysis.causal_graph import graph
from stepscope.analysis.causal_graph.critical_path import find_critical_path
from stepscope.analysis.causal_graph.fixes import (
    CAUSAL_FIXES,
    REMOVED_NS,
    FixedEdges,
    find_fix,
    simulate_fixes,
)
from stepscope.analysis.causal_graph.graph import EdgeKind, PathCategory

MAX_POINTS = 200
UNBOUNDED = np.iinfo(np.int64).max
HOST, SYNC, RANK, WORK = EdgeKind.HOST, EdgeKind.SYNC, EdgeKind.RANK, EdgeKind.WORK
DISPATCH = {PathCategory.LAUNCH, PathCategory.PYTHON}


class Drawn:
    """Graph of random numbers: parallel edges, several roots, equal times, isolated points.

    Times obey no edge, as in traces whose delays are modelled.
    """

    def __init__(self, seed: int, point_count: int, edges_per_point: float) -> None:
        random = np.random.default_rng(seed)
        self.count = point_count
        edge_count = int(point_count * edges_per_point) if point_count > 1 else 0
        pairs = random.integers(0, point_count, (2, edge_count))
        pairs = pairs[:, pairs[0] != pairs[1]]
        # Edges follow a hidden order of the points, which is that of their times only for some.
        hidden = random.permutation(point_count)
        swapped = hidden[pairs[0]] > hidden[pairs[1]]
        self.source, self.target = np.where(swapped, pairs[::-1], pairs)
        largest = int(random.choice([1, 5, 1_000, 1 << 40]))
        self.time_ns = random.integers(-largest, largest + 1, point_count)
        edge_count = len(self.source)
        self.edges = graph.CausalEdges(
            source=self.source,
            target=self.target,
            weight_ns=random.integers(-(largest // 4) * (seed % 2), largest + 1, edge_count),
            kind=random.integers(0, len(EdgeKind), edge_count).astype(np.int8),
            category=random.integers(0, len(PathCategory), edge_count).astype(np.int8),
            activity=np.arange(edge_count),
        )
        self.in_optimizer = random.random(edge_count) < 0.2
        self.reads_host = random.random(edge_count) < 0.2
        self.end = int(random.integers(point_count))

    def build(self) -> tuple[graph.CausalGraph, FixedEdges]:
        causal = graph.build_graph(self.time_ns, self.edges)
        rows = causal.edges.activity  # the number of each edge
        return causal, FixedEdges(
            edges=causal.edges,
            in_optimizer=self.in_optimizer[rows],
            reads_host=self.reads_host[rows],
            name=rows % 2,
            names=("even", "odd"),
        )

    @cached_property
    def order(self) -> list[int]:
        """Points, each after those that its edges come from."""
        return list(nx.topological_sort(self.as_networkx()))

    @cached_property
    def into(self) -> dict[int, list[tuple[int, int]]]:
        """Edges into each point, with their sources."""
        edges: dict[int, list[tuple[int, int]]] = {point: [] for point in range(self.count)}
        rows = zip(self.source.tolist(), self.target.tolist(), strict=True)
        for edge, (source, target) in enumerate(rows):
            edges[target].append((edge, source))
        return edges

    def replay(self, weights: Mapping[int, int]) -> dict[int, int]:
        """Compute the time of each point, each after those before it."""
        times: dict[int, int] = {}
        roots = self.time_ns.tolist()
        for point in self.order:
            times[point] = max(
                (times[source] + weights[edge] for edge, source in self.into[point]),
                default=roots[point],
            )
        return times

    def as_networkx(self) -> nx.MultiDiGraph:
        drawn = nx.MultiDiGraph()
        drawn.add_nodes_from(range(self.count))
        columns = (self.source, self.target, self.edges.weight_ns)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for edge, (source, target, weight) in enumerate(rows):
            drawn.add_edge(source, target, key=edge, weight=weight)
        return drawn

    @cached_property
    def weights(self) -> dict[int, int]:
        return dict(enumerate(self.edges.weight_ns.tolist()))

    @cached_property
    def properties(self) -> list[tuple[int, int, bool, bool]]:
        """Kind, category, time of an optimizer and of copies from the host, of each edge."""
        columns = (self.edges.kind, self.edges.category, self.in_optimizer, self.reads_host)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def measure_longest_path(self) -> int:
        """Measure the longest path to the end from a point before the earliest root; networkx cuts
        paths where their weight is negative."""
        drawn = self.as_networkx()
        relevant = drawn.subgraph({self.end, *nx.ancestors(drawn, self.end)}).copy()
        for point in [point for point, degree in relevant.in_degree() if not degree]:
            weight = int(self.time_ns[point] - self.time_ns.min())
            relevant.add_edge("root", point, weight=weight)
        return int(nx.dag_longest_path_length(relevant))

    def measure_slack(self, times: Mapping[int, int]) -> dict[int, int]:
        """Measure the slack of each point by its longest path to the end."""
        length: dict[int, int] = {self.end: 0}
        for point in reversed(self.order):
            for edge, start in self.into[point] if point in length else ():
                further = length[point] + self.weights[edge]
                length[start] = max(length.get(start, further), further)
        return {
            point: times[self.end] - length[point] - times[point] if point in length else UNBOUNDED
            for point in range(self.count)
        }


DRAWN = st.builds(
    Drawn,
    st.integers(0, 2**32 - 1),
    st.one_of(st.integers(1, 12), st.integers(1, MAX_POINTS)),
    st.sampled_from([0.3, 1.0, 2.0, 5.0]),
)


@contextmanager
def only_python() -> Iterator[None]:
    with mock.patch.object(graph, "open_paths", return_value=None):
        yield


def check_replay(drawn: Drawn) -> None:
    """Order, times, binding edges, path and slack; those of the library are those of Python."""
    causal, _ = drawn.build()
    edges, number = causal.edges, causal.number
    assert (edges.source < edges.target).all()
    assert (np.diff(edges.target) >= 0).all()
    assert sorted(number.tolist()) == list(range(drawn.count))
    np.testing.assert_array_equal(causal.time_ns[number], drawn.time_ns)
    schedule = causal.replay()
    times = drawn.replay(drawn.weights)
    assert dict(enumerate(schedule.time_ns[number].tolist())) == times
    end = int(number[drawn.end])
    path = causal.trace_path(schedule, end)
    if len(path):
        np.testing.assert_array_equal(edges.target[path][:-1], edges.source[path][1:])
        assert edges.target[path[-1]] == end
        root = edges.source[path[0]]
        assert causal.time_ns[root] + edges.weight_ns[path].sum() == times[drawn.end]
    else:
        assert not (drawn.target == drawn.end).any()
    if not (drawn.edges.weight_ns < 0).any():
        assert drawn.measure_longest_path() == times[drawn.end] - drawn.time_ns.min()
    slack = causal.measure_slack(schedule, end)
    assert dict(enumerate(slack[number].tolist())) == drawn.measure_slack(times)
    assert not slack[edges.target[path]].any()
    with only_python():
        twin, _ = drawn.build()
        again = twin.replay()
        np.testing.assert_array_equal(twin.number, number)
        np.testing.assert_array_equal(again.time_ns, schedule.time_ns)
        np.testing.assert_array_equal(again.binding, schedule.binding)
        np.testing.assert_array_equal(twin.measure_slack(again, end), slack)


def check_pieces(drawn: Drawn) -> None:
    """The pieces of the critical path follow each other, and sum to the measured time."""
    causal, _ = drawn.build()
    schedule = causal.replay()
    start, end = int(causal.time_ns.argmin()), int(causal.number[drawn.end])
    extent_ns = int(causal.time_ns[start]), int(causal.time_ns[end])
    path = find_critical_path(causal, causal.trace_path(schedule, end), extent_ns)
    measured = max(0, extent_ns[1] - extent_ns[0])
    assert (path.duration_ns > 0).all()
    assert len(path.border_ns) == len(path.category) + 1 == len(path.edge) + 1
    assert path.border_ns[0] == causal.time_ns[start]
    assert path.duration_ns.sum() == measured
    categories = path.category.astype(np.int64)
    assert path.sum_by(categories, len(PathCategory)).sum() == path.duration_ns.sum()


def fix_weight(name: str, drawn: Drawn, edge: int, weight: int) -> int:
    """Return the weight of an edge with a fix, of which `docs/what-if.md` has the table."""
    kind, category, in_optimizer, reads_host = drawn.properties[edge]
    is_dispatch = kind in {HOST, EdgeKind.HANDOVER} and category in DISPATCH
    is_wait = category == PathCategory.HOST_SYNC and (
        kind == HOST or (kind == SYNC and not reads_host)
    )
    removes = {
        "no-launch-gaps": is_dispatch,
        "no-sync": is_wait,
        "async-copies": reads_host,
        "no-python": kind in {HOST, EdgeKind.HANDOVER} and category == PathCategory.PYTHON,
        "no-input": category in {PathCategory.INPUT, PathCategory.STARTUP},
        "no-handover": category == PathCategory.BATCH_HANDOVER,
        "persistent-workers": category == PathCategory.STARTUP,
        "async-checkpoint": category == PathCategory.CHECKPOINT,
        "overlap": category == PathCategory.COMMUNICATION,
        "fused-optimizer": is_dispatch and in_optimizer,
    }
    halves = {
        "faster-kernels": category == PathCategory.COMPUTE,
        "faster-loading": category == PathCategory.INPUT,
        "bandwidth": category == PathCategory.COMMUNICATION,
        "faster:odd": edge % 2 == 1,
    }
    if name in removes:
        if not removes[name]:
            return weight
        return REMOVED_NS if kind == SYNC else min(weight, 0)
    if name in halves:
        return round(weight / 2) if halves[name] and weight > 0 else weight
    if name == "workers":  # batches become ready beside the steps
        is_ready = kind in {EdgeKind.HANDOVER, WORK}
        return weight if category != PathCategory.INPUT else round(weight / 2) * is_ready
    if name == "no-straggler":
        return REMOVED_NS if kind == RANK else weight
    assert name == "batch"
    grows = (
        (kind in {WORK, HOST} or category == PathCategory.INPUT)
        and not is_dispatch
        and not in_optimizer
        and category not in {PathCategory.COMMUNICATION, PathCategory.STARTUP}
    )
    return weight * 2 if grows and weight > 0 else weight


def check_fixes(drawn: Drawn) -> None:
    """Every fix, and two at once: the weights, and the time that is left."""
    causal, fixed = drawn.build()
    start, end = 0, int(causal.number[drawn.end])
    first = int(np.flatnonzero(causal.number == start)[0])

    def span(weights: Mapping[int, int]) -> int:
        times = drawn.replay(weights)
        return times[drawn.end] - times[first]

    before, extents = span(drawn.weights), [(start, end)] * 2
    for name in (*CAUSAL_FIXES, "faster:odd"):
        fix = find_fix(name)
        assert fix is not None
        weights = {e: fix_weight(name, drawn, e, weight) for e, weight in drawn.weights.items()}
        factor = fix.factor or 1.0
        changed = fix.apply(fixed, causal.edges.weight_ns, factor)
        rows = causal.edges.activity.tolist()
        assert dict(zip(rows, changed.tolist(), strict=True)) == weights, name
        simulated = simulate_fixes(causal, fixed, [(fix, None)], extents, 1)
        after = max(0, span(weights)) / (factor if fix.grows_batch else 1)
        assert simulated.step_ns == after, name
        assert simulated.saving_ratio == pytest.approx(1 - after / before if before else 0)
        # With another one: their order does not matter where both remove.
    both = {
        edge: fix_weight("no-sync", drawn, edge, fix_weight("no-input", drawn, edge, weight))
        for edge, weight in drawn.weights.items()
    }
    pair = [(CAUSAL_FIXES[name], None) for name in ("no-input", "no-sync")]
    for fixes in (pair, pair[::-1]):
        assert simulate_fixes(causal, fixed, fixes, extents, 1).step_ns == max(0, span(both))


CHECKS = pytest.mark.parametrize("check", [check_replay, check_pieces, check_fixes])


@CHECKS
@pytest.mark.slow("graphs of up to 200 points")
def test_graphs_against_brute_force(check: Callable[[Drawn], None]) -> None:
    settings(max_examples=200)(given(DRAWN)(check))()


@CHECKS
@pytest.mark.slow("10,000 graphs")
@pytest.mark.extended("some graphs are in make test")
def test_many_graphs_against_brute_force(check: Callable[[Drawn], None]) -> None:
    settings(max_examples=10_000)(given(DRAWN)(check))()


@given(DRAWN.filter(lambda drawn: len(drawn.edges) > 0), st.integers(0, 2**32))
def test_a_cycle_is_refused(drawn: Drawn, number: int) -> None:
    """An edge back to a point from one that comes after it, or from itself."""
    source = int(drawn.source[number % len(drawn.edges)])
    later = [source, *sorted(nx.descendants(drawn.as_networkx(), source))]
    back = graph.make_edges(
        np.array([later[number % len(later)]]), np.array([source]), np.zeros(1, np.int64),
        HOST, PathCategory.PYTHON,
    )  # fmt: skip
    edges = graph.join_edges([drawn.edges, back])
    with pytest.raises(graph.CycleError):
        graph.build_graph(drawn.time_ns, edges)
    with only_python(), pytest.raises(graph.CycleError):
        graph.build_graph(drawn.time_ns, edges)
