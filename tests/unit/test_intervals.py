"""Edge cases of the interval algebra; its laws are in tests/properties."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from stepscope.intervals import (
    EMPTY,
    OVERHANG_NS,
    Intervals,
    contains,
    covered_until,
    find_gaps,
    first_ancestors,
    innermost_at,
    nest,
    nesting,
    nesting_order,
    nesting_rows,
    overlap,
    parents,
    segments,
    separate_overlaps,
    sort_order,
    subtract,
    subtree_sums,
    union,
)
from stepscope.intervals._nesting import open_nesting


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


NO_INTERVALS = array()


def test_empty_arrays() -> None:
    assert parents(NO_INTERVALS, NO_INTERVALS).tolist() == []
    assert innermost_at(array(3, 4), NO_INTERVALS, NO_INTERVALS, NO_INTERVALS).tolist() == [-1, -1]
    assert [len(part) for part in segments(NO_INTERVALS, NO_INTERVALS, NO_INTERVALS)] == [0, 0, 0]
    assert union(EMPTY).total_ns == 0
    assert covered_until(array(3), EMPTY).tolist() == [0]
    assert overlap(Intervals(array(0), array(9)), EMPTY).tolist() == [0]
    assert contains(EMPTY, array(3)).tolist() == [False]


def test_the_longer_of_two_with_the_same_start_encloses() -> None:
    order = nesting_order(array(0, 0, 5), array(3, 9, 6))
    assert order.tolist() == [1, 0, 2]


def test_a_tree_and_its_segments() -> None:
    # 0 [0                100) holds 1 [10, 60) holds 2 [20, 30) and 3 [30, 60); 4 follows it
    start, end = array(0, 10, 20, 30, 100), array(100, 60, 30, 60, 120)
    parent = parents(start, end)
    assert parent.tolist() == [-1, 0, 1, 1, -1]
    pieces = segments(start, end, parent)
    assert list(zip(*(part.tolist() for part in pieces), strict=True)) == [
        (0, 10, 0),
        (10, 20, 1),
        (20, 30, 2),
        (30, 60, 3),
        (60, 100, 0),
        (100, 120, 4),
    ]


def test_empty_intervals_contain_nothing() -> None:
    start, end = array(5, 5, 5, 6, 6), array(6, 5, 5, 6, 6)
    assert parents(start, end).tolist() == [-1, 0, 0, 0, 0]
    assert nesting_rows(array(0, 0, 0), array(7, 7, 7), array(7, 7, 7)).tolist() == [0, 0, 0]


@pytest.fixture(params=["compiled", "NumPy"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the library in C, and as where it was not built."""
    if request.param == "NumPy":
        monkeypatch.setattr(nesting, "open_nesting", lambda: None)
    elif open_nesting() is None:
        pytest.skip("there is no C compiler")


EXTENTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=40)


@given(extents=EXTENTS, tolerance=st.integers(0, 2))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nesting_is_that_of_climbing_one_by_one(
    implementation: None, extents: list[tuple[int, int]], tolerance: int
) -> None:
    start = array(*(start for start, _ in extents))
    end = array(*(start + duration for start, duration in extents))
    order = nesting_order(start, end)
    result = nest(start[order], end[order], tolerance)
    ranges = list(zip(start[order].tolist(), end[order].tolist(), strict=True))
    assert list(zip(*(part.tolist() for part in result), strict=True)) == climb(ranges, tolerance)


def climb(ranges: list[tuple[int, int]], tolerance: int) -> list[tuple[int, int, int]]:
    """Return parent, depth and excess of each range, as `nest` defines them."""
    result: list[tuple[int, int, int]] = []
    for index, (start, end) in enumerate(ranges):
        parent, excess = index - 1, 0
        while parent >= 0:
            first, last = ranges[parent]
            starts_inside = start < last and first < last
            excess = excess or (end - last if starts_inside and end > last else 0)
            if first < last and (end <= last or (starts_inside and end <= last + tolerance)):
                break
            parent = result[parent][0]
        result.append((parent, result[parent][1] + 1 if parent >= 0 else 0, excess))
    return result


@given(extents=EXTENTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sums_of_subtrees_are_those_of_all_descendants(
    implementation: None, extents: list[tuple[int, int]]
) -> None:
    start = array(*(start for start, _ in extents))
    end = array(*(start + duration for start, duration in extents))
    order = nesting_order(start, end)
    tree = nest(start[order], end[order])
    values = array(*(2**index for index in range(len(extents))))
    expected = values.tolist()
    for index, value in enumerate(values.tolist()):
        ancestor = int(tree.parent[index])
        while ancestor >= 0:
            expected[ancestor] += value
            ancestor = int(tree.parent[ancestor])
    assert subtree_sums(values, tree.parent, tree.depth).tolist() == expected


def test_deep_nesting_before_a_sibling() -> None:
    depth = 500
    start = np.concatenate([np.arange(depth), [5 * depth]]).astype(np.int64)
    end = np.concatenate([10 * depth - np.arange(depth), [6 * depth]]).astype(np.int64)
    end[1:-1] -= 6 * depth  # all but the outermost end before the last one starts
    assert parents(start, end).tolist() == [*range(-1, depth - 1), 0]


def test_adjacent_intervals_merge() -> None:
    merged = union(Intervals(array(0, 5, 20), array(5, 9, 21)))
    assert merged.start.tolist() == [0, 20]
    assert merged.end.tolist() == [9, 21]
    assert contains(merged, array(4, 5, 8, 9)).tolist() == [True, True, True, False]


def test_rows_of_nested_ranges_are_depths() -> None:
    line = array(0, 0, 0, 1, 0)
    start = array(0, 10, 12, 12, 60)
    end = array(50, 40, 20, 20, 70)
    row = nesting_rows(line, start, end)
    assert row.tolist() == [0, 1, 2, 0, 0]
    assert separate_overlaps(line, row, start, end).tolist() == row.tolist()
    assert nesting_rows(NO_INTERVALS, NO_INTERVALS, NO_INTERVALS).tolist() == []


def test_a_small_overhang_counts_as_nested() -> None:
    start, end = array(0, 10), array(50, 50 + OVERHANG_NS)
    assert nesting_rows(array(0, 0), start, end).tolist() == [0, 1]
    assert nesting_rows(array(0, 0), start, end + 1).tolist() == [0, 1]
    assert nesting_rows(array(0, 0), start, array(50, 51 + OVERHANG_NS)).tolist() == [0, 0]


def test_the_later_of_two_overlapping_ranges_moves() -> None:
    start, end = array(0, 5, 6, 10), array(10, 15, 7, 20)
    zero = np.zeros(4, dtype=np.int64)
    assert separate_overlaps(zero, zero, start, end).tolist() == [0, 1, 2, 0]


@given(
    ranges=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 40)), max_size=40
    ),
    nested=st.booleans(),
)
def test_ranges_of_a_row_never_overlap(ranges: list[tuple[int, int, int]], nested: bool) -> None:
    line = array(*(line for line, _, _ in ranges))
    start = array(*(start for _, start, _ in ranges))
    end = start + array(*(duration for _, _, duration in ranges))
    before = nesting_rows(line, start, end) if nested else np.zeros(len(line), dtype=np.int64)
    row = separate_overlaps(line, before, start, end)
    assert (row >= before).all()
    for i, j in itertools.combinations(range(len(line)), 2):
        if line[i] == line[j] and row[i] == row[j]:
            assert min(end[i], end[j]) <= max(start[i], start[j])
    moved = np.flatnonzero(row != before)
    for i in moved.tolist():  # only ranges that overlap another one move
        assert any(
            line[j] == line[i] and row[j] == before[i] and start[j] <= end[i] and end[j] >= start[i]
            for j in range(len(line))
            if j != i
        )


@given(
    ranges=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(1, 40)), max_size=40
    ),
    nested=st.booleans(),
)
def test_an_overlapping_range_moves_to_the_first_free_row_below(
    ranges: list[tuple[int, int, int]], nested: bool
) -> None:
    line = array(*(line for line, _, _ in ranges))
    start = array(*(start for _, start, _ in ranges))
    end = start + array(*(duration for _, _, duration in ranges))
    before = nesting_rows(line, start, end) if nested else np.zeros(len(line), dtype=np.int64)
    assert separate_overlaps(line, before, start, end).tolist() == separate_one_by_one(
        line.tolist(), before.tolist(), start.tolist(), end.tolist()
    )


def separate_one_by_one(
    line: list[int], row: list[int], start: list[int], end: list[int]
) -> list[int]:
    """Separate ranges that overlap by looking at every pair of them."""

    def overlap(i: int, j: int) -> bool:
        return line[i] == line[j] and row[i] == row[j] and start[i] < end[j] and start[j] < end[i]

    outer_first = sorted(range(len(line)), key=lambda i: (start[i], -end[i]))
    moving = [i for at, i in enumerate(outer_first) if any(overlap(i, j) for j in outer_first[:at])]
    fixed = [i for i in outer_first if i not in moving]
    row = list(row)
    for i in sorted(moving, key=lambda i: start[i]):  # earlier starts first, stable by nesting
        while any(overlap(i, j) for j in fixed):
            row[i] += 1
        fixed.append(i)
    return row


@given(parents_and_goals=st.lists(st.tuples(st.integers(-1, 60), st.booleans()), max_size=60))
def test_first_ancestors_are_those_found_by_climbing(
    parents_and_goals: list[tuple[int, bool]],
) -> None:
    parent = array(*(min(p, row - 1) for row, (p, _) in enumerate(parents_and_goals)))
    is_goal = np.array([goal for _, goal in parents_and_goals], dtype=np.bool_)
    expected = []
    for row in range(len(parent)):
        reached = row
        while reached >= 0 and not is_goal[reached]:
            reached = int(parent[reached])
        expected.append(reached)
    assert first_ancestors(parent, is_goal).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-2, 2), st.integers(0, 1)), max_size=40))
def test_sort_order_equals_that_of_tuples(rows: list[tuple[int, int, int]]) -> None:
    keys = [array(*column) for column in zip(*rows, strict=True)] if rows else [array()]
    expected = sorted(range(len(rows)), key=lambda index: rows[index])  # stable
    assert sort_order(*keys).tolist() == expected


def test_rows_when_keys_would_overflow() -> None:
    """Three events on each of many lines: two in the first row, one in the second."""
    lines = np.repeat(np.arange(0, 200_000, 40_000), 3)
    start = np.tile(array(0, 2 * 10**15, 2 * 10**15 + 5), 5)
    end = np.tile(array(10, 3 * 10**15, 2 * 10**15 + 9), 5)
    assert int(lines.max()) * 3 * 10**15 > 2**63
    assert nesting_rows(lines, start, end).tolist() == [0, 0, 1] * 5


SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=6)


def make_union(spans: list[tuple[int, int]]) -> Intervals:
    return union(
        Intervals(*(array(*times) for times in ([s for s, _ in spans], [s + d for s, d in spans])))
    )


def list_nanoseconds(intervals: Intervals) -> set[int]:
    pairs = zip(intervals.start.tolist(), intervals.end.tolist(), strict=True)
    return {time for start, end in pairs for time in range(start, end)}


@given(SPANS, SPANS)
def test_subtraction_is_that_of_sets_of_nanoseconds(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    merged, removed = make_union(first), make_union(second)
    rest = subtract(merged, removed)
    assert list_nanoseconds(rest) == list_nanoseconds(merged) - list_nanoseconds(removed)
    assert (rest.start < rest.end).all()
    assert (rest.start[1:] > rest.end[:-1]).all()
    gaps = find_gaps(removed, (3, 17))
    assert list_nanoseconds(gaps) == set(range(3, 17)) - list_nanoseconds(removed)
