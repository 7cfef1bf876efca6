"""Exposed time of steps and of the gradient exchange."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis.ranks.exchange import (
    RecordedCalls,
    compute_exposed_exchange_ratio,
    count_exchanges_per_step,
    estimate_backward_compute,
    measure_exchange,
)
from stepscope.analysis.trace_steps.exposed_time import (
    CategoryRanges,
    attribute_exposed_time,
    find_self_intervals,
    partition_steps,
)
from stepscope.analysis.trace_steps.trace_steps import break_down_steps
from stepscope.intervals import EMPTY, Intervals, parents, union
from stepscope.schema import DdpFact

ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=8)
Ranges = list[tuple[int, int]]


def intervals(*pairs: tuple[int, int]) -> Intervals:
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Intervals(both[:, 0], both[:, 1])


def with_durations(starts_and_durations: Ranges) -> Intervals:
    return intervals(*((start, start + duration) for start, duration in starts_and_durations))


def category(name: str, extent: Intervals) -> CategoryRanges:
    return CategoryRanges(category=name, extent=extent, owner=np.arange(len(extent.start)))


STEPS = intervals((0, 30), (35, 50))


@given(ranges, ranges, ranges)
def test_each_instant_belongs_to_one_owner(kernels: Ranges, copies: Ranges, host: Ranges) -> None:
    """Compare with an attribution instant by instant."""
    categories = [
        category("kernel", with_durations(kernels)),
        category("memcpy", with_durations(copies)),
        category("cpu_exec", with_durations(host)),
    ]
    partition = partition_steps(STEPS, [], "other")
    result = attribute_exposed_time(categories, partition, 8, by_category=True)
    expected = {c.category: np.zeros(8) for c in categories}
    idle = 0
    for instant in [*range(30), *range(35, 50)]:
        for c in categories:
            start, end = c.extent
            active = np.flatnonzero((start <= instant) & (end > instant))
            if len(active):
                first = active[np.lexsort((-end[active], start[active]))[0]]
                expected[c.category][first] += 1
                break
        else:
            idle += 1
    for name, times in expected.items():
        assert result.exposed[name].tolist() == times.tolist()
    assert result.idle == {"other": idle}
    merged = break_down_steps(STEPS, {c.category: union(c.extent) for c in categories})
    for c in categories:
        assert result.exposed[c.category].sum() == merged[c.category].sum()


@given(ranges, ranges, ranges)
def test_parts_of_a_partition_sum_to_the_steps(first: Ranges, second: Ranges, work: Ranges) -> None:
    phases = [("forward", with_durations(first)), ("backward", with_durations(second))]
    partition = partition_steps(STEPS, phases, "other")
    assert sum(partition.measure_parts().values()) == 45
    kernels = category("kernel", with_durations(work))
    result = attribute_exposed_time([kernels], partition, 8, by_category=False)
    for part, part_ns in partition.measure_parts().items():
        assert result.exposed[part].sum() + result.idle[part] == pytest.approx(part_ns)


def test_hidden_time_is_busy_but_not_exposed() -> None:
    """A collective of 20 behind a kernel of 15: 5 of it are exposed."""
    categories = [
        category("kernel", intervals((0, 15))),
        category("communication", intervals((0, 20))),
    ]
    partition = partition_steps(STEPS, [], "other")
    result = attribute_exposed_time(categories, partition, 1, by_category=True)
    assert result.exposed["communication"].tolist() == [5]
    assert result.busy["communication"].tolist() == [20]


def test_time_without_owner_is_reported() -> None:
    runtime = CategoryRanges(category="runtime", extent=intervals((0, 4)), owner=np.array([-1]))
    partition = partition_steps(STEPS, [], "other")
    result = attribute_exposed_time([runtime], partition, 0, by_category=True)
    assert result.unowned["runtime"] == 4
    assert result.idle["other"] == 41


@given(ranges)
def test_self_intervals_exclude_inner_ranges(starts_and_durations: Ranges) -> None:
    extent = with_durations(sorted(starts_and_durations, key=lambda r: (r[0], -r[1])))
    parent = parents(*extent)
    pieces, owner = find_self_intervals(extent, parent)
    for index in range(len(parent)):
        self_ns = pieces.end[owner == index] - pieces.start[owner == index]
        inside = {
            instant
            for child in np.flatnonzero(parent == index)
            for instant in range(extent.start[child], extent.end[child])
        }
        expected = set(range(extent.start[index], extent.end[index])) - inside
        assert self_ns.sum() == len(expected)


def account(exchange: int, hidden: int, compute: int, **counts: int) -> DdpFact:
    return DdpFact(
        backward_comm_ns=exchange, backward_overlap_ns=hidden, backward_compute_ns=compute, **counts
    )


def test_one_exchange_in_every_backward_pass() -> None:
    # 30 of compute, then 20 of 45 exposed: 50 in total.
    assert compute_exposed_exchange_ratio(account(45, 25, 30)) == pytest.approx(20 / 50)
    assert compute_exposed_exchange_ratio(account(45, 45, 30)) == 0
    assert compute_exposed_exchange_ratio(account(0, 0, 0)) == 0
    assert count_exchanges_per_step(account(1, 0, 1)) == 1  # the counts are missing


def test_passes_under_no_sync_exchange_nothing() -> None:
    fact = account(45, 25, 30, pass_count=40, exchange_count=10, step_count=10)
    assert compute_exposed_exchange_ratio(fact) == pytest.approx(20 / (4 * 30 + 20))
    assert count_exchanges_per_step(fact) == 1
    all_passes = account(45, 25, 30, pass_count=40, exchange_count=40, step_count=10)
    assert compute_exposed_exchange_ratio(all_passes) == pytest.approx(20 / 50)
    assert count_exchanges_per_step(all_passes) == 4


def test_backward_compute_of_two_ranks() -> None:
    """The first rank waits 30 for the second; DDP has timed half of a pass as exchange."""
    backward = np.array([[50.0, 70.0], [20.0, 40.0]])
    compute = estimate_backward_compute(backward, [0.5, 0.5])
    assert compute.tolist() == [[20, 40], [5, 25]]
    assert estimate_backward_compute(backward, [None, None]).tolist() == backward.tolist()
    # Timed before the second rank became slow: no pass computes longer than the shortest.
    assert estimate_backward_compute(backward, [0.0, 0.0]).tolist() == [[20, 40], [20, 40]]


def calls(*t_ns: int, seq: list[int] | None = None) -> RecordedCalls:
    return RecordedCalls(
        t_ns=np.array(t_ns), seq=np.arange(len(t_ns)) if seq is None else np.array(seq)
    )


THREE_STEPS = intervals((0, 100), (100, 200), (200, 300))
PASSES = intervals((20, 60), (120, 180), (230, 290))


TWO_STEPS, THREE_PASSES = intervals((0, 100), (100, 200)), intervals((10, 20), (30, 50), (60, 90))
REENTRANT = intervals((10, 90), (20, 40), (30, 35), (50, 80))
NESTED = intervals((140, 170), (145, 150))


@pytest.mark.parametrize(
    ("steps", "passes", "t_ns", "explicit", "expected"),
    [
        # Exposed from the last call of a pass to its end.
        (THREE_STEPS, PASSES, (25, 50, 130, 140, 280, 350), EMPTY, [60 - 50, 180 - 140, 290 - 280]),
        # Passes of one step add up, and one without a call exchanges nothing.
        (TWO_STEPS, THREE_PASSES, (15, 70, 250), EMPTY, [(20 - 15) + (90 - 70), 0]),
        # Each reentrant checkpoint runs a backward pass inside that of the script.
        (intervals((0, 100)), REENTRANT, (32, 60, 85, 150), EMPTY, [90 - 85]),
        # Collectives of the script in a pass, and calls inside them, are communication anyway.
        (THREE_STEPS, PASSES, (30, 150, 280, 350), intervals((145, 160)), [60 - 30, 0, 290 - 280]),
        (THREE_STEPS, PASSES, (30, 160, 280, 350), NESTED, [60 - 30, 0, 290 - 280]),
    ],
)
def test_exposed_exchange_of_steps(
    steps: Intervals, passes: Intervals, t_ns: tuple[int, ...], explicit: Intervals,
    expected: list[int],
) -> None:  # fmt: skip
    assert measure_exchange(steps, passes, calls(*t_ns), explicit).tolist() == expected


def test_the_exchange_of_a_step_without_all_calls_is_unknown() -> None:
    lost = measure_exchange(THREE_STEPS, PASSES, calls(50, 140, 280, 350, seq=[0, 1, 3, 4]), EMPTY)
    assert np.isnan(lost).tolist() == [False, True, True]  # the lost call is of either of the two
    early = measure_exchange(THREE_STEPS, PASSES, calls(50, 140, 280), EMPTY)
    assert np.isnan(early).tolist() == [False, False, True]
    assert np.isnan(measure_exchange(THREE_STEPS, PASSES, calls(), EMPTY)).all()
