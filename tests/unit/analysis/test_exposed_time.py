"""Each instant of a step has one owner."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis.exposed_time import (
    CategoryRanges,
    attribute_exposed_time,
    find_self_intervals,
    partition_steps,
)
from stepscope.analysis.trace_steps import break_down_steps
from stepscope.intervals import Intervals, parents, union

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
