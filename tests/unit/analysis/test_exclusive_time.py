"""Every moment of a step has one owner."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis.exclusive_time import Claim, divide, own_pieces, owned
from stepscope.analysis.trace_steps import break_down_steps
from stepscope.intervals import Intervals, parents, union

ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=8)
Ranges = list[tuple[int, int]]


def intervals(*pairs: tuple[int, int]) -> Intervals:
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Intervals(both[:, 0], both[:, 1])


def lasting(given_ranges: Ranges) -> Intervals:
    return intervals(*((start, start + length) for start, length in given_ranges))


def claim(category: str, extent: Intervals) -> Claim:
    return Claim(category=category, extent=extent, owner=np.arange(len(extent.start)))


STEPS = intervals((0, 30), (35, 50))


@given(ranges, ranges, ranges)
def test_each_moment_is_somebodys_once(kernels: Ranges, copies: Ranges, host: Ranges) -> None:
    """As taking the moments one by one does it."""
    claims = [
        claim("kernel", lasting(kernels)),
        claim("memcpy", lasting(copies)),
        claim("cpu_exec", lasting(host)),
    ]
    found = owned(claims, divide(STEPS, [], "other"), 8, by_category=True)
    expected = {c.category: np.zeros(8) for c in claims}
    idle = 0
    for moment in [*range(30), *range(35, 50)]:
        for each in claims:
            start, end = each.extent
            on = np.flatnonzero((start <= moment) & (end > moment))
            if len(on):
                first = on[np.lexsort((-end[on], start[on]))[0]]
                expected[each.category][first] += 1
                break
        else:
            idle += 1
    for category, times in expected.items():
        assert found.exposed[category].tolist() == times.tolist()
    assert found.idle == {"other": idle}
    merged = break_down_steps(STEPS, {each.category: union(each.extent) for each in claims})
    for each in claims:
        assert found.exposed[each.category].sum() == merged[each.category].sum()


@given(ranges, ranges, ranges)
def test_parts_of_a_division_sum_to_the_steps(first: Ranges, second: Ranges, work: Ranges) -> None:
    phases = [("forward", lasting(first)), ("backward", lasting(second))]
    division = divide(STEPS, phases, "other")
    assert sum(division.lasts().values()) == 45
    found = owned([claim("kernel", lasting(work))], division, 8, by_category=False)
    for part, lasts in division.lasts().items():
        assert found.exposed[part].sum() + found.idle[part] == pytest.approx(lasts)


def test_what_was_hidden_is_busy_but_not_exposed() -> None:
    """A collective of 20 behind a kernel of 15: 5 of it are exposed."""
    claims = [claim("kernel", intervals((0, 15))), claim("communication", intervals((0, 20)))]
    found = owned(claims, divide(STEPS, [], "other"), 1, by_category=True)
    assert found.exposed["communication"].tolist() == [5]
    assert found.busy["communication"].tolist() == [20]


def test_nobodys_time_is_kept() -> None:
    unknown = Claim(category="runtime", extent=intervals((0, 4)), owner=np.array([-1]))
    found = owned([unknown], divide(STEPS, [], "other"), 0, by_category=True)
    assert found.nobodys["runtime"] == 4
    assert found.idle["other"] == 41


@given(ranges)
def test_own_pieces_are_what_no_inner_range_covers(given_ranges: Ranges) -> None:
    extent = lasting(sorted(given_ranges, key=lambda each: (each[0], -each[1])))
    parent = parents(*extent)
    pieces, owner = own_pieces(extent, parent)
    for place in range(len(parent)):
        own = pieces.end[owner == place] - pieces.start[owner == place]
        inside = {
            moment
            for child in np.flatnonzero(parent == place)
            for moment in range(extent.start[child], extent.end[child])
        }
        mine = set(range(extent.start[place], extent.end[place])) - inside
        assert own.sum() == len(mine)
