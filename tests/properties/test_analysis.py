"""The algebra against brute force over single nanoseconds, and the laws that every step obeys."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stepscope.analysis.input_pipeline import split_data_wait, weigh_samples
from stepscope.analysis.operators import profile_compute
from stepscope.analysis.statistics import summarize
from stepscope.analysis.steps import find_step_at, find_steps, is_outside_phases
from stepscope.intervals import (
    EMPTY,
    Intervals,
    contains,
    covered_until,
    innermost_at,
    nesting_order,
    overlap,
    parents,
    segments,
    union,
)
from stepscope.store import DictColumn
from stepscope.testing import Drawing

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=12)
"""Start and duration of anything: overlapping, nested, empty."""


def intervals(pairs: list[tuple[int, int]]) -> Intervals:
    start = np.array([start for start, _ in pairs], dtype=np.int64)
    return Intervals(start, start + np.array([length for _, length in pairs], dtype=np.int64))


def ticks(one: Intervals) -> set[int]:
    """Every nanosecond that some interval covers."""
    return {
        t for a, b in zip(one.start.tolist(), one.end.tolist(), strict=True) for t in range(a, b)
    }


@st.composite
def nested(draw: st.DrawFn) -> Intervals:
    """Properly nested intervals of positive duration, in nesting order."""
    now, open_at, found = 0, [], []
    for opens, passes in draw(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=24)):
        now += passes
        if opens:
            open_at.append(now)
        elif open_at:
            begin = open_at.pop()
            found.append((begin, max(1, now - begin)))
            now = max(now, begin + 1)
    while open_at:
        begin = open_at.pop()
        now = max(now, begin + 1)
        found.append((begin, now - begin))
    random.Random(0).shuffle(found)
    shuffled = intervals(found)
    order = nesting_order(shuffled.start, shuffled.end)
    return Intervals(shuffled.start[order], shuffled.end[order])


def brute_parent(one: Intervals, child: int) -> int:
    around = [
        other
        for other in range(child)
        if one.start[other] <= one.start[child] and one.end[other] >= one.end[child]
    ]
    return max(around, default=-1)


@given(one=nested())
def test_parents(one: Intervals) -> None:
    found = parents(one.start, one.end)
    assert found.tolist() == [brute_parent(one, child) for child in range(len(one.start))]


@given(pairs=PAIRS)
def test_who_begins_inside_and_ends_after_is_no_child(pairs: list[tuple[int, int]]) -> None:
    one = intervals([pair for pair in pairs if pair[1]])
    order = nesting_order(one.start, one.end)
    one = Intervals(one.start[order], one.end[order])
    found = parents(one.start, one.end)
    assert found.tolist() == [brute_parent(one, child) for child in range(len(one.start))]


@given(one=nested())
def test_innermost_and_segments_agree_with_every_single_nanosecond(one: Intervals) -> None:
    parent = parents(one.start, one.end)
    times = np.arange(-1, 80)
    inside = (one.start[:, None] <= times) & (one.end[:, None] > times)
    expected = [max(np.flatnonzero(inside[:, t]), default=-1) for t in range(len(times))]
    assert innermost_at(times, one.start, one.end, parent).tolist() == expected
    owner = dict.fromkeys(range(-1, 80), -1)
    pieces = segments(one.start, one.end, parent)
    for start, end, who in zip(*(part.tolist() for part in pieces), strict=True):
        owner.update(dict.fromkeys(range(start, end), who))
    assert list(owner.values())[: len(times)] == expected


@given(one=nested())
def test_time_is_conserved(one: Intervals) -> None:
    parent = parents(one.start, one.end)
    duration = one.end - one.start
    own = duration - np.array([duration[parent == row].sum() for row in range(len(parent))])
    pieces = segments(one.start, one.end, parent)
    owned = np.zeros(len(one.start), dtype=np.int64)
    mine = pieces.owner >= 0
    np.add.at(owned, pieces.owner[mine], (pieces.end - pieces.start)[mine])
    assert own.tolist() == owned.tolist()
    assert own.sum() == union(one).total_ns


@given(pairs=PAIRS)
def test_a_union_is_sorted_apart_and_covers_the_same(pairs: list[tuple[int, int]]) -> None:
    merged = union(intervals(pairs))
    assert ticks(merged) == ticks(intervals(pairs))
    assert (merged.start[1:] > merged.end[:-1]).all()


@given(pairs=PAIRS, others=PAIRS)
def test_overlap_contains_and_covered_until(
    pairs: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    merged, covered = union(intervals(pairs)), ticks(intervals(pairs))
    asked = intervals(others)
    times = np.arange(-2, 60)
    assert contains(merged, times).tolist() == [t in covered for t in times.tolist()]
    before = [sum(c < t for c in covered) for t in times.tolist()]
    assert covered_until(times, merged).tolist() == before
    expected = [len(covered & ticks(intervals([pair]))) for pair in others]
    assert overlap(asked, merged).tolist() == expected


@given(values=st.lists(st.integers(-1000, 1000), min_size=1, max_size=50))
def test_a_distribution_by_the_textbook(values: list[int]) -> None:
    found = summarize(values)
    assert found is not None
    mean = sum(values) / len(values)
    assert found.count == len(values)
    assert found.mean == pytest.approx(mean)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    assert found.standard_deviation == pytest.approx(variance**0.5)
    assert (found.minimum, found.maximum) == (min(values), max(values))
    for quantile, value in ((0.05, found.p5), (0.5, found.p50), (0.95, found.p95)):
        assert value == pytest.approx(interpolated(values, quantile))
    low, high = interpolated(values, 0.25), interpolated(values, 0.75)
    assert found.outlier_threshold == pytest.approx(high + 3 * (high - low))
    assert found.outlier_count == sum(value > found.outlier_threshold for value in values)


def interpolated(values: list[int], quantile: float) -> float:
    """Linear between the two order statistics around (n - 1) q."""
    ordered = sorted(values)
    place = (len(values) - 1) * quantile
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


PIECES = (
    "wait 3",
    "start 2",
    "exhausted 1",
    "h2d 1",
    "forward 4",
    "predict 2",
    "predict 2 | h2d 1 | predict 2",
    "forward 2 | predict 1 | h2d 1 | do 1",
    "backward 5",
    "optimizer:A 2",
    "optimizer:B 2",
    "optimizer:A ( optimizer:A 2 )",
    "optimizer:L ( forward 1 | do 1 | backward 2 )",
    "forward 3 | do 1 | backward 2 | optimizer:A 1",
    "communication 1",
    "save 6",
    "do 2",
    "do 1 | mark",
    "mode:EVAL ( wait 1 | predict 2 | optimizer:A 1 | mark )",
    "mode:PREDICT 3",
    "window ( forward 1 | optimizer:B 1 )",
)
JOBS = st.lists(st.sampled_from(PIECES), max_size=40)


@given(job=JOBS)
@settings(max_examples=300)
def test_what_every_step_obeys(job: list[str]) -> None:
    drawing = Drawing()
    for piece in job:
        drawing.draw(piece)
    spans = drawing.table()
    steps = find_steps(spans)
    if steps is None:
        return
    assert (steps.wall_ns >= 0).all()
    assert all((times >= 0).all() for times in steps.phase_ns.values())
    assert sum(steps.phase_ns.values()).tolist() == steps.wall_ns.tolist()
    assert (steps.start[1:] == steps.end[:-1]).all()
    assert (steps.end > steps.start).all()
    extent = Intervals(steps.start, steps.end)
    assert (overlap(extent, steps.evaluation) + steps.wall_ns).tolist() == (
        steps.end - steps.start
    ).tolist()
    # `other` is what no phase claims, asked moment by moment.
    times = np.arange(0, drawing.now, 500_000)
    step, idle = find_step_at(times, steps), is_outside_phases(times, spans, steps)
    other = np.bincount(step[idle], minlength=len(steps)) * 500_000
    assert other.tolist() == steps.phase_ns["other"].tolist()
    assert split_data_wait(spans, steps, np.ones(len(steps), dtype=np.bool_)).total_ns >= 0


@given(
    gaps=st.lists(st.integers(1, 30), min_size=1, max_size=20),
    period=st.integers(1, 10),
)
def test_samples_stand_for_all_the_time_since_the_first(gaps: list[int], period: int) -> None:
    times = np.cumsum(gaps)
    weights = weigh_samples(times, period)
    assert weights[0] == period
    expected = [gap if gap <= 50 * period else period for gap in gaps[1:]]
    assert weights[1:].tolist() == expected


@given(one=nested())
def test_own_times_of_operators(one: Intervals) -> None:
    count = len(one.start)
    if not count:
        return
    scale = 10_000  # own times on both sides of the 20 us that make work
    start, end = one.start * scale, one.end * scale
    own = [
        (end[i] - start[i])
        - sum(end[j] - start[j] for j in range(count) if brute_parent(one, j) == i)
        for i in range(count)
    ]
    operators = {
        "name": DictColumn.encode(f"op{i}" for i in range(count)),
        "start_ns": start,
        "duration_ns": end - start,
        "host_self_ns": np.array(own),
        "parent": np.array([brute_parent(one, i) for i in range(count)]),
    }
    whole = Intervals(start[:1], np.array([end.max()]))
    found = profile_compute(operators, EMPTY, {"forward": whole}, step_count=2)
    assert found is not None
    outer = [i for i in range(count) if brute_parent(one, i) < 0]
    compute = int(end.max() - start[0])
    assert found.compute_ns == compute
    worked = sum(time for time in own if time >= 20_000)
    assert found.overhead_ratio == pytest.approx(1 - worked / compute)
    assert found.operator_count_per_step == len(outer) / 2
    small = sum(end[i] - start[i] < 20_000 for i in outer)
    assert found.small_ratio == pytest.approx(small / len(outer))
    assert sum(found.largest.values()) == pytest.approx(sum(sorted(own)[-5:]) / compute)
