"""Clocks of nodes from matched collectives, against clocks with a known offset and drift."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from msgspec.structs import fields, replace
from numpy.typing import NDArray

from stepscope.analysis import CollectiveTimes, NodeClock, align_clocks
from tests.support.node_clocks import EPOCH_NS, TimedNodes, draw_nodes

MS = 1_000_000
YEAR_NS = 365 * 86_400 * 1_000_000_000
Float = NDArray[np.float64]


def measure_errors(nodes: TimedNodes, clocks: dict[int, NodeClock | None]) -> tuple[Float, Float]:
    """Return the error of each call's start on the reference clock, and its residual."""
    errors, residuals = [], []
    for node, clock in clocks.items():
        assert clock is not None
        is_here = nodes.calls.node == node
        times = nodes.calls.start_ns[is_here]
        truth = nodes.read(0, nodes.start[is_here])
        errors.append(np.abs(clock.to_reference(times) - EPOCH_NS - truth))
        residuals.append(clock.residual_at(times))
    return np.concatenate(errors), np.concatenate(residuals)


@pytest.mark.parametrize("seed", range(3))
def test_sixty_four_clocks_are_recovered_to_a_millisecond(seed: int) -> None:
    nodes = draw_nodes(seed)
    clocks = align_clocks(nodes.calls)
    errors, residuals = measure_errors(nodes, clocks)
    assert len(clocks) == 64
    assert errors.max() < MS
    assert (errors <= residuals + 1).all()
    middle = np.array([150e9])
    for node, clock in clocks.items():
        offset = float((nodes.read(node, middle) - nodes.read(0, middle))[0])
        assert clock.offset_ns == pytest.approx(offset, abs=MS)
        assert abs(clock.offset_ns - offset) <= clock.residual_ns + 100 * MS * 1e-3
        drift = (1 + nodes.drift[node]) / (1 + nodes.drift[0]) - 1
        assert clock.drift_ratio == pytest.approx(drift, abs=5e-6)


@pytest.mark.parametrize("seed", range(20))
def test_every_true_offset_is_within_its_residual(seed: int) -> None:
    random = np.random.default_rng(seed)
    nodes = draw_nodes(
        seed,
        int(random.integers(2, 9)),
        collectives=int(random.integers(5, 200)),
        seconds=float(random.uniform(1, 4000)),
        late_ms=float(random.uniform(0, 50)),
        transfer_ms=float(random.uniform(0, 20)),
        unequal_ends=bool(random.integers(2)),
    )
    errors, residuals = measure_errors(nodes, align_clocks(nodes.calls))
    assert (errors <= residuals + 1).all()


def test_the_possible_lines_of_two_nodes_are_those_that_keep_every_bound() -> None:
    nodes = draw_nodes(1, 2, collectives=40, seconds=100)
    calls = nodes.calls
    clock = align_clocks(calls)[1]
    one, two = calls.node == 0, calls.node == 1
    shift = clock.reference_ns - clock.first_ns
    share_start = (calls.start_ns[two] - clock.first_ns) / (clock.last_ns - clock.first_ns)
    share_end = (calls.end_ns[two] - clock.first_ns) / (clock.last_ns - clock.first_ns)
    start = (calls.start_ns[one] - calls.start_ns[two] - shift).astype(float)
    lowest = (calls.start_ns[one] - calls.end_ns[two] - shift).astype(float)
    highest = (calls.end_ns[one] - calls.start_ns[two] - shift).astype(float)
    assert len(start) == 40

    def margin(first: float, last: float) -> float:
        """Return by how much a line keeps all bounds; negative where it breaks one."""
        return float(
            min(
                ((1 - share_end) * first + share_end * last - lowest).min(),
                (highest - (1 - share_start) * first - share_start * last).min(),
            )
        )

    random = np.random.default_rng(2)
    center, width = clock.corners.mean(axis=0), np.ptp(clock.corners, axis=0)
    edge = np.roll(clock.corners, -1, axis=0) - clock.corners
    for first, last in center + (random.random((2000, 2)) - 0.5) * 2 * width:
        offset = np.array([first, last]) - clock.corners
        distance = (edge[:, 0] * offset[:, 1] - edge[:, 1] * offset[:, 0]) / np.hypot(*edge.T)
        if margin(first, last) >= 0:
            assert distance.min() >= -1  # nothing possible is cut off
        if distance.min() >= 0:
            assert margin(first, last) >= -50_000  # and little else is left


def check_errors(nodes: TimedNodes, *, limit_ns: float = MS) -> None:
    errors, residuals = measure_errors(nodes, align_clocks(nodes.calls))
    assert errors.max() < limit_ns
    assert (errors <= residuals + 1).all()


def take(calls: CollectiveTimes, rows: NDArray[np.int64]) -> CollectiveTimes:
    return CollectiveTimes(**{f.name: getattr(calls, f.name)[rows] for f in fields(calls)})


def test_nodes_without_a_common_collective_are_aligned_through_others() -> None:
    groups = [(n, n + 1, n + 2) for n in range(0, 20, 2)]
    check_errors(draw_nodes(4, 22, groups=groups, collectives=2000, transfer_ms=0.3))


def test_clocks_a_year_apart() -> None:
    nodes = draw_nodes(6, 3)
    year, calls = (nodes.calls.node == 2) * YEAR_NS, nodes.calls
    calls = replace(calls, start_ns=calls.start_ns + year, end_ns=calls.end_ns + year)
    assert round(align_clocks(calls)[2].offset_ns / YEAR_NS) == 1
    check_errors(dataclasses.replace(nodes, calls=calls))


def test_the_reference_has_no_error_and_without_calls_there_are_no_clocks() -> None:
    calls = draw_nodes(11, 2).calls
    clock = align_clocks(calls)[0]
    assert (clock.offset_ns, clock.drift_ratio, clock.residual_ns) == (0, 0, 0)
    assert align_clocks(take(calls, np.arange(0))) == {}


def test_the_order_of_calls_does_not_matter() -> None:
    calls = draw_nodes(12, 5).calls
    shuffled = take(calls, np.random.default_rng(1).permutation(len(calls)))
    one, two = align_clocks(calls), align_clocks(shuffled)
    for node in range(5):
        assert one[node].offset_ns == pytest.approx(two[node].offset_ns, abs=10)


def test_a_node_of_another_group_has_no_clock() -> None:
    nodes = draw_nodes(5, 4, groups=[(0, 1), (2, 3)])
    clocks = align_clocks(nodes.calls)
    assert [clocks[node] is None for node in range(4)] == [False, False, True, True]


def test_a_clock_that_was_set_has_no_estimate() -> None:
    nodes = draw_nodes(7, 4)
    late = (nodes.calls.node == 3) & (nodes.start > 150e9)
    calls = replace(
        nodes.calls,
        start_ns=nodes.calls.start_ns + late * 100 * MS,
        end_ns=nodes.calls.end_ns + late * 100 * MS,
    )
    clocks = align_clocks(calls)
    assert [clocks[node] is None for node in range(4)] == [False, False, False, True]


def test_without_ends_no_clock_is_known() -> None:
    nodes = draw_nodes(8, 3)
    unknown = np.full(len(nodes.calls), -1)
    clocks = align_clocks(replace(nodes.calls, end_ns=unknown))
    assert [clocks[node] is None for node in range(3)] == [False, True, True]


def test_late_ends_bound_the_clock_without_moving_it_beyond_its_residual() -> None:
    nodes = draw_nodes(9, 4)
    later = np.random.default_rng(1).integers(0, 50 * MS, len(nodes.calls))
    calls = replace(
        nodes.calls,
        end_ns=nodes.calls.end_ns + later * (1 + nodes.calls.node),
        is_exact=np.zeros(len(later), dtype=np.bool_),
    )
    errors, residuals = measure_errors(nodes, align_clocks(calls))
    assert (errors <= residuals + 1).all()
    exact = measure_errors(nodes, align_clocks(nodes.calls))[1]
    assert residuals.max() > exact.max()


def test_another_reference_gives_the_opposite_offset() -> None:
    nodes = draw_nodes(10, 2)
    forward, back = align_clocks(nodes.calls)[1], align_clocks(nodes.calls, reference=1)[0]
    assert forward.offset_ns == pytest.approx(-back.offset_ns, abs=MS)
    assert forward.drift_ratio == pytest.approx(-back.drift_ratio, abs=2e-6)
