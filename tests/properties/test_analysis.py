"""Interval algebra compared with brute force over nanoseconds, and invariants of steps."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stepscope.analysis.input_pipeline.batches import split_data_wait, weigh_samples
from stepscope.analysis.steps import phases
from stepscope.analysis.steps.steps import find_step_at, find_steps, is_outside_phases
from stepscope.analysis.trace_steps.host_time import profile_compute
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
"""Start and duration of intervals: overlapping, nested, empty."""


def intervals(pairs: list[tuple[int, int]]) -> Intervals:
    start = np.array([start for start, _ in pairs], dtype=np.int64)
    return Intervals(start, start + np.array([length for _, length in pairs], dtype=np.int64))


def ticks(intervals_: Intervals) -> set[int]:
    """Return every nanosecond that some interval covers."""
    return {
        t
        for a, b in zip(intervals_.start.tolist(), intervals_.end.tolist(), strict=True)
        for t in range(a, b)
    }


@st.composite
def nested(draw: st.DrawFn) -> Intervals:
    """Properly nested intervals of positive duration, in nesting order."""
    now, open_at, pairs = 0, [], []
    for opens, passes in draw(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=24)):
        now += passes
        if opens:
            open_at.append(now)
        elif open_at:
            start = open_at.pop()
            pairs.append((start, max(1, now - start)))
            now = max(now, start + 1)
    while open_at:
        start = open_at.pop()
        now = max(now, start + 1)
        pairs.append((start, now - start))
    random.Random(0).shuffle(pairs)
    shuffled = intervals(pairs)
    order = nesting_order(shuffled.start, shuffled.end)
    return Intervals(shuffled.start[order], shuffled.end[order])


def brute_parent(forest: Intervals, child: int) -> int:
    candidates = [
        candidate
        for candidate in range(child)
        if forest.start[candidate] <= forest.start[child]
        and forest.end[candidate] >= forest.end[child]
    ]
    return max(candidates, default=-1)


ordered = PAIRS.map(lambda pairs: intervals([pair for pair in pairs if pair[1]])).map(
    lambda drawn: Intervals(*(part[nesting_order(*drawn)] for part in drawn))
)
"""Intervals in nesting order, some of which end after their enclosing ones."""


@given(forest=nested() | ordered)
def test_parents(forest: Intervals) -> None:
    parent = parents(forest.start, forest.end)
    assert parent.tolist() == [brute_parent(forest, child) for child in range(len(forest.start))]


@given(forest=nested())
def test_innermost_and_segments_equal_brute_force(forest: Intervals) -> None:
    parent = parents(forest.start, forest.end)
    times = np.arange(-1, 80)
    inside = (forest.start[:, None] <= times) & (forest.end[:, None] > times)
    expected = [max(np.flatnonzero(inside[:, t]), default=-1) for t in range(len(times))]
    assert innermost_at(times, forest.start, forest.end, parent).tolist() == expected
    owner = dict.fromkeys(range(-1, 80), -1)
    pieces = segments(forest.start, forest.end, parent)
    for start, end, piece_owner in zip(*(part.tolist() for part in pieces), strict=True):
        owner.update(dict.fromkeys(range(start, end), piece_owner))
    assert list(owner.values())[: len(times)] == expected


@given(pairs=PAIRS)
def test_union_is_sorted_disjoint_and_covers_the_same(pairs: list[tuple[int, int]]) -> None:
    merged = union(intervals(pairs))
    assert ticks(merged) == ticks(intervals(pairs))
    assert (merged.start[1:] > merged.end[:-1]).all()


@given(pairs=PAIRS, queries=PAIRS)
def test_overlap_contains_and_covered_until(
    pairs: list[tuple[int, int]], queries: list[tuple[int, int]]
) -> None:
    merged, covered = union(intervals(pairs)), ticks(intervals(pairs))
    query_intervals = intervals(queries)
    times = np.arange(-2, 60)
    assert contains(merged, times).tolist() == [t in covered for t in times.tolist()]
    before = [sum(c < t for c in covered) for t in times.tolist()]
    assert covered_until(times, merged).tolist() == before
    expected = [len(covered & ticks(intervals([pair]))) for pair in queries]
    assert overlap(query_intervals, merged).tolist() == expected


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
def test_invariants_of_steps(job: list[str]) -> None:
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
    with pytest.MonkeyPatch.context() as patch:  # two steps at once are as good as all
        patch.setattr(phases, "CHUNK_STEPS", 2)
        parts = find_steps(drawing.table())
    assert parts is not None
    assert all((parts.phase_ns[name] == times).all() for name, times in steps.phase_ns.items())
    assert (steps.start[1:] == steps.end[:-1]).all()
    assert (steps.end > steps.start).all()
    extent = Intervals(steps.start, steps.end)
    assert (overlap(extent, steps.evaluation) + steps.wall_ns).tolist() == (
        steps.end - steps.start
    ).tolist()
    # `other` is time outside all phases, checked at each half millisecond.
    times = np.arange(0, drawing.now, 500_000)
    step, idle = find_step_at(times, steps), is_outside_phases(times, spans, steps)
    other_ns = np.bincount(step[idle], minlength=len(steps)) * 500_000
    assert other_ns.tolist() == steps.phase_ns["other"].tolist()
    assert split_data_wait(spans, steps, np.ones(len(steps), dtype=np.bool_)).total_ns >= 0


@given(gaps=st.lists(st.integers(1, 30), min_size=1, max_size=20), period=st.integers(1, 10))
def test_weights_sum_to_the_time_since_the_first_sample(gaps: list[int], period: int) -> None:
    times = np.cumsum(gaps)
    weights = weigh_samples(times, period)
    assert weights[0] == period
    expected = [gap if gap <= 50 * period else period for gap in gaps[1:]]
    assert weights[1:].tolist() == expected


@given(forest=nested())
def test_self_times_of_operators(forest: Intervals) -> None:
    count = len(forest.start)
    if not count:
        return
    scale = 10_000  # self times on both sides of the 20 us threshold of work
    start, end = forest.start * scale, forest.end * scale
    self_ns = [
        (end[i] - start[i])
        - sum(end[j] - start[j] for j in range(count) if brute_parent(forest, j) == i)
        for i in range(count)
    ]
    operators = {
        "name": DictColumn.encode(f"op{i}" for i in range(count)),
        "start_ns": start,
        "duration_ns": end - start,
        "host_self_ns": np.array(self_ns),
        "parent": np.array([brute_parent(forest, i) for i in range(count)]),
    }
    phase = Intervals(start[:1], np.array([end.max()]))
    result = profile_compute(operators, EMPTY, {"forward": phase}, step_count=2)
    outer = [i for i in range(count) if brute_parent(forest, i) < 0]
    compute_ns = int(end.max() - start[0])
    assert result.compute_ns == compute_ns
    work_ns = sum(time for time in self_ns if time >= 20_000)
    assert result.overhead_ratio == pytest.approx(1 - work_ns / compute_ns)
    assert result.operator_count_per_step == len(outer) / 2
    small = sum(end[i] - start[i] < 20_000 for i in outer)
    assert result.small_ratio == pytest.approx(small / len(outer))
    assert sum(result.largest.values()) == pytest.approx(sum(sorted(self_ns)[-5:]) / compute_ns)
