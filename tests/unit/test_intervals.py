"""Edges of the algebra; its laws are in tests/properties."""

from __future__ import annotations

import numpy as np

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
