"""Algebra of intervals: nesting, self time, unions, overlaps.

Intervals are two int64 arrays of equal length, half-open, in nanoseconds.

    sets       unions, gaps, overlaps
    nesting    which interval contains which; in compiled code (`_nesting`) where it was built
    rows       rows of a picture
"""

from __future__ import annotations

from stepscope.intervals.nesting import (
    OVERHANG_NS,
    depths,
    first_ancestors,
    innermost_at,
    nest,
    nesting_order,
    parents,
    segments,
    sort_order,
    subtree_sums,
)
from stepscope.intervals.rows import nesting_rows, order_by_row, separate_overlaps
from stepscope.intervals.sets import (
    EMPTY,
    Int,
    Intervals,
    Mask,
    contains,
    covered_until,
    find_gaps,
    overlap,
    subtract,
    take_outermost,
    union,
    unite,
)

__all__ = [
    "EMPTY",
    "OVERHANG_NS",
    "Int",
    "Intervals",
    "Mask",
    "contains",
    "covered_until",
    "depths",
    "find_gaps",
    "first_ancestors",
    "innermost_at",
    "nest",
    "nesting_order",
    "nesting_rows",
    "order_by_row",
    "overlap",
    "parents",
    "segments",
    "separate_overlaps",
    "sort_order",
    "subtract",
    "subtree_sums",
    "take_outermost",
    "union",
    "unite",
]
