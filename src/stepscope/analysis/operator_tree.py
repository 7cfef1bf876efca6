"""Tree of the operators of a trace, over the rows of its table.

A call whose only child operator has the same name is one call recorded twice (a dispatcher and
the operator it dispatches to): the child is merged into it. The caller's duration and totals
represent both, the self times of both add up, and the child's children become the caller's. The
caller's own runtime calls are kept, unlike in the tool that this definition comes from.

In a trace with microseconds, a call of length zero at the start or end of another may as well be
the one before or after it (`aten::as_strided`, thousands of times in a row). It is merged only if
longer calls of that name show that the operator dispatches to its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns
from stepscope.intervals import Int

TREE_COLUMNS = ("id", "name", "parent", "depth", "start_ns", "duration_ns")
"""Columns of `operators` that `build_operator_tree` reads."""
EXCLUDED_PREFIXES = (
    "ProfilerStep#",
    "Optimizer.",
    "enumerate(DataLoader)#",
    "enumerate(DataPipe)#",
)
EXCLUDED_NAMES = frozenset({"DataParallel.forward", "DistributedDataParallel.forward"})


@dataclass(frozen=True, eq=False, kw_only=True)
class OperatorTree:
    """Rows of the table `operators` as a tree."""

    ids: Int
    name: NDArray[np.int32]
    """Index into `names`."""
    names: Sequence[str]
    parent: Int
    """Row of the calling operator, -1 for none."""
    depth: Int
    merged: Int
    """Row that each row is merged into; the row itself if it is not merged."""
    counted: NDArray[np.bool_]
    """True for calls of operators: not merged, not a step, loader or optimizer."""

    def __len__(self) -> int:
        return len(self.ids)

    def find_rows(self, ids: Int) -> Int:
        """Find the row of each operator id, -1 for an unknown id."""
        return _look_up(self._row_of_id, ids)

    def sum_merged(self, values: NDArray[Any]) -> Int:
        """Sum the values of each row and of the rows merged into it.

        The result is meaningless for a row that was merged into another.
        """
        sums = np.array(values, dtype=np.int64)
        rows = np.flatnonzero(self.merged != np.arange(len(self)))
        np.add.at(sums, self.merged[rows], sums[rows])
        return sums

    def totals(self, values: NDArray[Any]) -> Int:
        """Sum of values over each row and all rows below it."""
        totals = np.array(values, dtype=np.int64)
        for rows in reversed(self.levels):
            nonzero = rows[totals[rows] != 0]
            np.add.at(totals, self.parent[nonzero], totals[nonzero])
        return totals

    def mask(self, predicate: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Mask the rows whose name satisfies a predicate, called once per distinct name."""
        by_name = np.array([predicate(name) for name in self.names], dtype=np.bool_)
        return by_name[self.name] if len(by_name) else np.zeros(len(self), dtype=np.bool_)

    @cached_property
    def calls_by_name(self) -> Int:
        """Number of counted calls of each name."""
        return np.bincount(self.name[self.counted], minlength=len(self.names)).astype(np.int64)

    @cached_property
    def _row_of_id(self) -> NDArray[np.int32]:
        return _index_ids(self.ids)

    @cached_property
    def levels(self) -> list[Int]:
        """Rows that have a parent, by depth, outermost first."""
        by_depth = np.argsort(self.depth, kind="stable")
        by_depth = by_depth[self.parent[by_depth] >= 0]
        depth = self.depth[by_depth]
        cuts = np.flatnonzero(np.diff(depth)) + 1
        return np.split(by_depth, cuts)


def build_operator_tree(operators: Columns) -> OperatorTree:
    """Build the tree of the operators of a trace.

    Args:
        operators: `TREE_COLUMNS` of the table, in any order of rows.
    """
    ids = operators["id"]
    name = operators["name"]
    parent = find_rows(ids, operators["parent"])
    start = operators["start_ns"]
    merged = _merge_chains(parent, name.codes, start, start + operators["duration_ns"])
    names = [value or "" for value in name.values]
    counted = merged == np.arange(len(ids))
    if names:
        counted &= ~np.array([is_excluded(text) for text in names])[name.codes]
    return OperatorTree(
        ids=ids,
        name=name.codes,
        names=names,
        parent=parent,
        depth=operators["depth"],
        merged=merged,
        counted=counted,
    )


def is_excluded(name: str) -> bool:
    """Return True if a range that is recorded as operator is not one."""
    return name in EXCLUDED_NAMES or name.startswith(EXCLUDED_PREFIXES)


def find_rows(ids: Int, lookup: Int) -> Int:
    """Find the index in `ids` of each id to look up, -1 for an unknown id.

    Ids are small: they are positions in a file.
    """
    return _look_up(_index_ids(ids), lookup)


def find_outermost(operators: Columns, is_range: NDArray[np.bool_], ids: Int) -> Int:
    """Find the row of the outermost operator around each operator, -1 for none.

    Args:
        operators: columns `id` and `parent` of the table.
        is_range: mask of the operators that are ranges around others.
        ids: ids of operators, -1 for none.
    """
    if not len(is_range):
        return np.full(len(ids), -1, dtype=np.int64)
    parent = find_rows(operators["id"], operators["parent"])
    is_inner = (parent >= 0) & ~is_range[parent]
    outermost = np.where(is_inner, parent, np.arange(len(parent)))
    # Each pass doubles the number of callers that are climbed.
    while (outermost != outermost[outermost]).any():
        outermost = outermost[outermost]
    rows = find_rows(operators["id"], ids)
    return np.where((rows >= 0) & ~is_range[rows], outermost[rows], -1)


def _index_ids(ids: Int) -> NDArray[np.int32]:
    """Index rows by id from 0; -1 for an id without a row, and in the last entry."""
    row_of_id = np.full(int(ids.max(initial=-1)) + 2, -1, dtype=np.int32)
    row_of_id[ids] = np.arange(len(ids), dtype=np.int32)
    return row_of_id


def _look_up(row_of_id: NDArray[np.int32], lookup: Int) -> Int:
    in_range = (lookup >= 0) & (lookup < len(row_of_id))
    return row_of_id[np.where(in_range, lookup, -1)].astype(np.int64)


def sum_by_row(rows: Int, values: NDArray[Any], count: int) -> Int:
    """Sum integers by row; values with row -1 are ignored."""
    has_row = rows >= 0
    if not has_row.all():
        rows, values = rows[has_row], values[has_row]
    return np.rint(np.bincount(rows, weights=values, minlength=count)).astype(np.int64)


def _merge_chains(parent: Int, name: NDArray[np.int32], start: Int, end: Int) -> Int:
    """Find the row that each row is merged into, by the rule at the top of this file."""
    nested = parent >= 0
    children = np.bincount(parent[nested], minlength=len(parent))
    caller = np.where(nested, parent, 0)
    same = nested & (children[caller] == 1) & (name[caller] == name) if len(parent) else nested
    is_at_border = (start == end) & ((start == start[caller]) | (end == end[caller]))
    dispatching = np.unique(name[same & ~is_at_border])
    same &= ~is_at_border | np.isin(name, dispatching)
    merged = np.where(same, parent, np.arange(len(parent)))
    while True:
        further = merged[merged]
        if (further == merged).all():
            return merged
        merged = further
