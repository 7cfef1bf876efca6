"""The tree of operators of a recording, in terms of rows of its table.

A call whose only child operator has the same name is one call written down twice (a dispatcher
and what it dispatches to): the child is merged into it. The caller's duration and totals stand
for both, own times of both add up, and the child's children become the caller's. Own runtime
calls of the caller are kept, which the tool this definition comes from dropped.
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

TREE_COLUMNS = ("id", "name", "parent", "depth")
"""What `operator_tree` needs of the table `operators`."""
EXCLUDED_PREFIXES = (
    "ProfilerStep#",
    "Optimizer.",
    "enumerate(DataLoader)#",
    "enumerate(DataPipe)#",
)
EXCLUDED = frozenset({"DataParallel.forward", "DistributedDataParallel.forward"})


@dataclass(frozen=True, eq=False, kw_only=True)
class OperatorTree:
    """Rows of the table `operators` as a tree."""

    ids: Int
    name: NDArray[np.int32]
    names: Sequence[str]
    parent: Int
    """Row of the calling operator, -1 for none."""
    depth: Int
    merged: Int
    """Row of the call that this one counts with: itself, unless it was merged."""
    counted: NDArray[np.bool_]
    """Rows that are calls of an operator: not merged, no step, loader or optimizer."""

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, ids: Int) -> Int:
        """Row of each operator id, -1 where there is none."""
        return _look_up(self._places, ids)

    def own(self, values: NDArray[Any]) -> Int:
        """Values of a call itself: of the row, plus those of the rows merged into it.

        What it says of a row that was merged into another means nothing.
        """
        found = np.array(values, dtype=np.int64)
        rows = np.flatnonzero(self.merged != np.arange(len(self)))
        np.add.at(found, self.merged[rows], found[rows])
        return found

    def totals(self, values: NDArray[Any]) -> Int:
        """Values of each row with all rows below it."""
        found = np.array(values, dtype=np.int64)
        for rows in reversed(self.levels):
            filled = rows[found[rows] != 0]
            np.add.at(found, self.parent[filled], found[filled])
        return found

    def mask(self, accepts: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Rows whose name a function accepts; it is asked once per distinct name."""
        of_name = np.array([accepts(name) for name in self.names], dtype=np.bool_)
        return of_name[self.name] if len(of_name) else np.zeros(len(self), dtype=np.bool_)

    @cached_property
    def calls_by_name(self) -> Int:
        """How many calls are counted of each name."""
        return np.bincount(self.name[self.counted], minlength=len(self.names)).astype(np.int64)

    @cached_property
    def _places(self) -> NDArray[np.int32]:
        return _places(self.ids)

    @cached_property
    def levels(self) -> list[Int]:
        """Rows that have a parent, by depth, those of the outermost first."""
        by_depth = np.argsort(self.depth, kind="stable")
        by_depth = by_depth[self.parent[by_depth] >= 0]
        depth = self.depth[by_depth]
        cuts = np.flatnonzero(np.diff(depth)) + 1
        return np.split(by_depth, cuts)


def operator_tree(operators: Columns) -> OperatorTree:
    """The tree of a recording's operators.

    Args:
        operators: `TREE_COLUMNS` of the table, in any order of rows.
    """
    ids = operators["id"]
    name = operators["name"]
    parent = rows_of(ids, operators["parent"])
    merged = _merge(parent, name.codes)
    names = [value or "" for value in name.values]
    counted = merged == np.arange(len(ids))
    if names:
        counted &= ~np.array([is_excluded(each) for each in names])[name.codes]
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
    """Whether a range is no operator though it is recorded as one."""
    return name in EXCLUDED or name.startswith(EXCLUDED_PREFIXES)


def rows_of(ids: Int, wanted: Int) -> Int:
    """Place in `ids` of each wanted id, -1 where it is not there. Ids are places in a file."""
    return _look_up(_places(ids), wanted)


def _places(ids: Int) -> NDArray[np.int32]:
    """Row of every id from 0, -1 for those that no row has; the last of them is one of these."""
    place = np.full(int(ids.max(initial=-1)) + 2, -1, dtype=np.int32)
    place[ids] = np.arange(len(ids), dtype=np.int32)
    return place


def _look_up(places: NDArray[np.int32], wanted: Int) -> Int:
    known = (wanted >= 0) & (wanted < len(places))
    return places[np.where(known, wanted, -1)].astype(np.int64)


def add_at(rows: Int, values: NDArray[Any], count: int) -> Int:
    """Sums of integers by row; a row of -1 is left out."""
    kept = rows >= 0
    if not kept.all():
        rows, values = rows[kept], values[kept]
    return np.rint(np.bincount(rows, weights=values, minlength=count)).astype(np.int64)


def _merge(parent: Int, name: NDArray[np.int32]) -> Int:
    """Row that each row counts with, by the rule at the top of this file."""
    nested = parent >= 0
    children = np.bincount(parent[nested], minlength=len(parent))
    above = np.where(nested, parent, 0)
    same = nested & (children[above] == 1) & (name[above] == name) if len(parent) else nested
    merged = np.where(same, parent, np.arange(len(parent)))
    while True:
        further = merged[merged]
        if (further == merged).all():
            return merged
        merged = further
