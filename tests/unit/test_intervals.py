"""Edges of the algebra; its laws are in tests/properties."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.intervals import (
    EMPTY,
    OVERHANG_NS,
    Intervals,
    contains,
    covered_until,
    innermost_at,
    nesting_order,
    nesting_rows,
    overlap,
    parents,
    segments,
    sort_order,
    union,
    without_overlaps,
)


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


NONE = array()


def test_nothing_has_no_time() -> None:
    assert parents(NONE, NONE).tolist() == []
    assert innermost_at(array(3, 4), NONE, NONE, NONE).tolist() == [-1, -1]
    assert [len(part) for part in segments(NONE, NONE, NONE)] == [0, 0, 0]
    assert union(EMPTY).total_ns == 0
    assert covered_until(array(3), EMPTY).tolist() == [0]
    assert overlap(Intervals(array(0), array(9)), EMPTY).tolist() == [0]
    assert contains(EMPTY, array(3)).tolist() == [False]


def test_the_longer_of_two_that_begin_together_is_outside() -> None:
    order = nesting_order(array(0, 0, 5), array(3, 9, 6))
    assert order.tolist() == [1, 0, 2]


def test_a_tree_and_what_its_nodes_keep_for_themselves() -> None:
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


def test_deep_nesting_before_a_sibling() -> None:
    depth = 500
    start = np.concatenate([np.arange(depth), [5 * depth]]).astype(np.int64)
    end = np.concatenate([10 * depth - np.arange(depth), [6 * depth]]).astype(np.int64)
    end[1:-1] -= 6 * depth  # all but the outermost end before the last begins
    assert parents(start, end).tolist() == [*range(-1, depth - 1), 0]


def test_intervals_that_touch_become_one() -> None:
    merged = union(Intervals(array(0, 5, 20), array(5, 9, 21)))
    assert merged.start.tolist() == [0, 20]
    assert merged.end.tolist() == [9, 21]
    assert contains(merged, array(4, 5, 8, 9)).tolist() == [True, True, True, False]


def test_rows_are_depths_where_ranges_lie_in_each_other() -> None:
    line = array(0, 0, 0, 1, 0)
    start = array(0, 10, 12, 12, 60)
    end = array(50, 40, 20, 20, 70)
    row = nesting_rows(line, start, end)
    assert row.tolist() == [0, 1, 2, 0, 0]
    assert without_overlaps(line, row, start, end).tolist() == row.tolist()
    assert nesting_rows(NONE, NONE, NONE).tolist() == []


def test_what_ends_a_little_late_still_lies_in_the_range_around_it() -> None:
    start, end = array(0, 10), array(50, 50 + OVERHANG_NS)
    assert nesting_rows(array(0, 0), start, end).tolist() == [0, 1]
    assert nesting_rows(array(0, 0), start, end + 1).tolist() == [0, 1]
    assert nesting_rows(array(0, 0), start, array(50, 51 + OVERHANG_NS)).tolist() == [0, 0]


def test_the_later_of_two_that_overlap_gives_way() -> None:
    start, end = array(0, 5, 6, 10), array(10, 15, 7, 20)
    zero = np.zeros(4, dtype=np.int64)
    assert without_overlaps(zero, zero, start, end).tolist() == [0, 1, 2, 0]


@given(
    ranges=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 40)), max_size=40
    ),
    nested=st.booleans(),
)
def test_no_row_holds_two_ranges_at_once(ranges: list[tuple[int, int, int]], nested: bool) -> None:
    line = array(*(each[0] for each in ranges))
    start = array(*(each[1] for each in ranges))
    end = start + array(*(each[2] for each in ranges))
    before = nesting_rows(line, start, end) if nested else np.zeros(len(line), dtype=np.int64)
    row = without_overlaps(line, before, start, end)
    assert (row >= before).all()
    for one, other in itertools.combinations(range(len(line)), 2):
        if line[one] == line[other] and row[one] == row[other]:
            assert min(end[one], end[other]) <= max(start[one], start[other])
    moved = np.flatnonzero(row != before)
    for index in moved.tolist():  # only what another one is in the way of
        assert any(
            line[other] == line[index]
            and row[other] == before[index]
            and start[other] <= end[index]
            and end[other] >= start[index]
            for other in range(len(line))
            if other != index
        )


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-2, 2), st.integers(0, 1)), max_size=40),
)
def test_sort_order_is_that_of_tuples(rows: list[tuple[int, int, int]]) -> None:
    keys = [array(*column) for column in zip(*rows, strict=True)] if rows else [array()]
    expected = sorted(range(len(rows)), key=lambda place: rows[place])  # equal ones stay in order
    assert sort_order(*keys).tolist() == expected


def test_rows_of_more_lines_than_one_number_holds() -> None:
    """Three events on each of many lines: two in a row, one in the second."""
    lines = np.repeat(np.arange(0, 200_000, 40_000), 3)
    start = np.tile(array(0, 2 * 10**15, 2 * 10**15 + 5), 5)
    end = np.tile(array(10, 3 * 10**15, 2 * 10**15 + 9), 5)
    assert int(lines.max()) * 3 * 10**15 > 2**63
    assert nesting_rows(lines, start, end).tolist() == [0, 0, 1] * 5
