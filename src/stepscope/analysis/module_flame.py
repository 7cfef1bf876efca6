"""Modules and the operators in them as one tree of calls, for a flame graph.

What a call is inside is

    of an operator         the operator that called it or the module call around it, whichever is
                           closer
    of a module's call     likewise: checkpointing calls modules from an operator
    of a backward operator the module call whose gradients it computes, by the rule of `modules`,
                           wherever and whenever it ran

A node is a path of modules and operators. Time is shared out without rest: host self time is a
call's duration without what ran inside it at that time, device self time is that of the operator's
own kernels, and every total is the sum of the self times below it. So a module that no operator
called takes here its host total and its backward host time of the table `modules` together, or its
device total. Operators outside every module are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.call_paths import CallPaths, find_paths
from stepscope.analysis.columns import Columns
from stepscope.analysis.modules import ModuleCalls, backward_calls, outermost_rows
from stepscope.analysis.operator_tree import OperatorTree, add_at
from stepscope.intervals import Int, innermost_at, nesting_order, parents

Measure = Literal["host", "device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFlame:
    """Nodes; node `i` is inside `parent[i]`, -1 for none, and has `name[i]`."""

    parent: Sequence[int]
    name: Sequence[str]
    count: Sequence[int]
    total_ns: Sequence[int]
    self_ns: Sequence[int]
    outside_ns: int
    """Self time of operators outside every module."""


def module_flame(
    calls: ModuleCalls, tree: OperatorTree, operators: Columns, measure: Measure
) -> ModuleFlame:
    """The tree of modules and operators.

    Args:
        calls: of modules.
        tree: the operators of the recording.
        operators: `MODULE_OPERATOR_COLUMNS` of the same rows.
        measure: the time that nodes have.
    """
    inside = _Calls(calls, tree, operators)
    own = inside.host_self_ns() if measure == "host" else inside.device_self_ns()
    parent, under = inside.in_modules()
    kept, row_of = _merged(inside, parent, tree)
    own = add_at(row_of, own, len(own))
    kept &= under
    rows = np.flatnonzero(kept)
    place = np.full(len(parent) + 1, -1, dtype=np.int64)  # the last serves row -1
    place[rows] = np.arange(len(rows))
    above = np.append(row_of, -1)[parent[rows]]
    paths = find_paths(place[above], inside.key[rows], inside.instance[rows])
    self_ns = add_at(paths.of_call, own[rows], len(paths))
    counts = np.bincount(paths.of_call, minlength=len(paths))
    return ModuleFlame(
        parent=paths.parent.tolist(),
        name=_names(inside, paths, rows, calls, tree),
        count=counts.tolist(),
        total_ns=paths.totals(self_ns).tolist(),
        self_ns=self_ns.tolist(),
        outside_ns=int(own[~under].sum()),
    )


class _Calls:
    """Calls of modules and, after them, of operators; rows are those of both together."""

    def __init__(self, calls: ModuleCalls, tree: OperatorTree, operators: Columns) -> None:
        self.module_count = len(calls.name)
        self._device = operators["device_self_ns"]
        self.start = np.concatenate([calls.start_ns, operators["start_ns"]])
        self._duration = np.concatenate([calls.duration_ns, operators["duration_ns"]])
        self.key = np.concatenate([calls.name, tree.name + len(calls.names)]).astype(np.int64)
        self.instance = np.concatenate([calls.instance, np.full(len(tree), -1, dtype=np.int64)])
        around = _operators_around(calls, operators) + self.module_count
        of_module = np.where(
            (around >= self.module_count) & ~self._later(calls.parent, around), around, calls.parent
        )
        caller = np.where(tree.parent >= 0, tree.parent + self.module_count, -1)
        of_operator = np.where(
            (caller >= 0) & ~self._later(calls.of_operator, caller), caller, calls.of_operator
        )
        self.around = self._earlier(np.concatenate([of_module, of_operator]))
        """Row of the call around each, as it ran."""
        outermost = outermost_rows(tree)
        backward = backward_calls(calls, tree, operators["forward"], outermost)
        roots = np.flatnonzero((backward >= 0) & (outermost == np.arange(len(tree))))
        # Nothing is inside what began later: so no call is inside itself, whatever was recorded.
        roots = roots[calls.start_ns[backward[roots]] < operators["start_ns"][roots]]
        self._belongs = self.around.copy()
        self._belongs[roots + self.module_count] = backward[roots]

    def _later(self, rows: Int, others: Int) -> NDArray[np.bool_]:
        """Whether the first is a call that began after the other did, and so is closer."""
        return (rows >= 0) & (self.start[rows] > self.start[others])

    def _earlier(self, around: Int) -> Int:
        return np.where((around >= 0) & (self.start[around] <= self.start), around, -1)

    def host_self_ns(self) -> Int:
        """Durations without those of the calls inside."""
        inside = add_at(self.around, self._duration, len(self.around))
        return np.maximum(0, self._duration - inside)

    def device_self_ns(self) -> Int:
        """Of the operators' own kernels; modules have none."""
        return np.concatenate([np.zeros(self.module_count, dtype=np.int64), self._device])

    def in_modules(self) -> tuple[Int, NDArray[np.bool_]]:
        """What each call belongs to, none for the outermost modules; and whether it is of one."""
        under = np.arange(len(self.start)) < self.module_count
        jump = np.append(self._belongs, -1)  # the last serves row -1
        found = np.append(under, False)
        while (jump >= 0).any():
            found |= found[jump]
            jump = jump[jump]
        parent = np.where(found[self._belongs], self._belongs, -1)
        return parent, found[:-1]


def _operators_around(calls: ModuleCalls, operators: Columns) -> Int:
    """Row of the innermost operator that began before each module call and ends no earlier."""
    around = np.full(len(calls.name), -1, dtype=np.int64)
    start, end = operators["start_ns"], operators["start_ns"] + operators["duration_ns"]
    for track in np.unique(calls.track).tolist():
        rows = np.flatnonzero(operators["track"] == track)
        rows = rows[nesting_order(start[rows], end[rows])]
        above = parents(start[rows], end[rows])
        mine = np.flatnonzero(calls.track == track)
        until = calls.start_ns[mine] + calls.duration_ns[mine]
        found = innermost_at(calls.start_ns[mine] - 1, start[rows], end[rows], above)
        ends, above = np.append(end[rows], 0), np.append(above, -1)
        while (short := (found >= 0) & (ends[found] < until)).any():
            found[short] = above[found[short]]
        around[mine] = np.append(rows, -1)[found]
    return around


def _merged(inside: _Calls, parent: Int, tree: OperatorTree) -> tuple[NDArray[np.bool_], Int]:
    """Rows that stand for themselves, and which row each stands for; see `operator_tree`."""
    first = inside.module_count
    merged = np.flatnonzero(tree.merged != np.arange(len(tree)))
    merged = merged[parent[merged + first] == tree.parent[merged] + first] + first
    stands_for = np.arange(len(parent))
    stands_for[merged] = parent[merged]
    while ((further := stands_for[stands_for]) != stands_for).any():
        stands_for = further
    return stands_for == np.arange(len(parent)), stands_for


def _names(
    inside: _Calls, paths: CallPaths, rows: Int, calls: ModuleCalls, tree: OperatorTree
) -> list[str]:
    first = len(calls.names)
    keys = inside.key[rows[paths.first]].tolist()
    return [calls.names[key] if key < first else tree.names[key - first] for key in keys]
