"""Modules and their operators as one tree of calls, for a flame graph.

The parent of a call is

    of an operator          the operator that called it or the module call around it, whichever is
                            closer
    of a module call        likewise: checkpointing calls modules from an operator
    of a backward operator  the module call whose gradients it computes, by the rule of `modules`,
                            regardless of when it ran

A node is a path of modules and operators. Each instant belongs to one node: host self time is the
duration of a call without the calls that ran inside it, device self time is that of the operator's
own kernels, and every total is the sum of the self times below it. So the total of a module that
no operator called is its host total plus its backward host time in the table `modules`, or its
device total. Operators outside every module are not in the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.call_paths import CallPaths, find_paths
from stepscope.analysis.columns import Columns
from stepscope.analysis.modules import ModuleCalls, find_backward_module_calls, find_outermost_rows
from stepscope.analysis.operator_tree import OperatorTree, sum_by_row
from stepscope.analysis.timeline_nesting import CallTree
from stepscope.intervals import Int, innermost_at, nesting_order, parents

Measure = Literal["host", "device"]


@dataclass(slots=True, eq=False, kw_only=True)
class ModuleFlame(CallTree):
    """Modules and operators by path of names."""

    outside_ns: int
    """Self time of operators outside every module."""


def build_module_flame(
    calls: ModuleCalls, tree: OperatorTree, operators: Columns, measure: Measure
) -> ModuleFlame:
    """Build the tree of modules and operators.

    Args:
        calls: calls of modules.
        tree: operators of the trace.
        operators: `MODULE_OPERATOR_COLUMNS` of the same rows.
        measure: time to attribute to nodes.
    """
    combined = _CombinedCalls(calls, tree, operators)
    row_self_ns = combined.host_self_ns() if measure == "host" else combined.device_self_ns()
    parent, in_module = combined.find_parents()
    is_node, merged = _merge_calls(combined, parent, tree)
    row_self_ns = sum_by_row(merged, row_self_ns, len(row_self_ns))
    rows = np.flatnonzero(is_node & in_module)
    index = np.full(len(parent) + 1, -1, dtype=np.int64)  # the last entry is for row -1
    index[rows] = np.arange(len(rows))
    node_parent = np.append(merged, -1)[parent[rows]]
    paths = find_paths(index[node_parent], combined.key[rows], combined.instance[rows])
    self_ns = sum_by_row(paths.of_call, row_self_ns[rows], len(paths))
    counts = np.bincount(paths.of_call, minlength=len(paths))
    return ModuleFlame(
        parent=paths.parent.tolist(),
        name=_name_paths(combined, paths, rows, calls, tree),
        count=counts.tolist(),
        total_ns=paths.totals(self_ns).tolist(),
        self_ns=self_ns.tolist(),
        outside_ns=int(row_self_ns[~in_module].sum()),
    )


class _CombinedCalls:
    """Calls of modules followed by calls of operators; rows number both."""

    def __init__(self, calls: ModuleCalls, tree: OperatorTree, operators: Columns) -> None:
        self.module_count = len(calls.name)
        self._device = operators["device_self_ns"]
        self.start = np.concatenate([calls.start_ns, operators["start_ns"]])
        self._duration = np.concatenate([calls.duration_ns, operators["duration_ns"]])
        self.key = np.concatenate([calls.name, tree.name + len(calls.names)]).astype(np.int64)
        self.instance = np.concatenate([calls.instance, np.full(len(tree), -1, dtype=np.int64)])
        enclosing = _find_enclosing_operators(calls, operators) + self.module_count
        module_parent = np.where(
            (enclosing >= self.module_count) & ~self._is_closer(calls.parent, enclosing),
            enclosing,
            calls.parent,
        )
        caller = np.where(tree.parent >= 0, tree.parent + self.module_count, -1)
        operator_parent = np.where(
            (caller >= 0) & ~self._is_closer(calls.of_operator, caller), caller, calls.of_operator
        )
        self.caller = self._drop_later(np.concatenate([module_parent, operator_parent]))
        """Row of the call around each call at the time it ran."""
        outermost = find_outermost_rows(tree)
        backward = find_backward_module_calls(calls, tree, operators["forward"], outermost)
        roots = np.flatnonzero((backward >= 0) & (outermost == np.arange(len(tree))))
        # A parent starts before its child: so no call is inside itself, in any recorded data.
        roots = roots[calls.start_ns[backward[roots]] < operators["start_ns"][roots]]
        self._parent = self.caller.copy()
        self._parent[roots + self.module_count] = backward[roots]

    def _is_closer(self, rows: Int, alternatives: Int) -> NDArray[np.bool_]:
        """Mask the rows that are calls and started after the alternatives, and so are closer."""
        return (rows >= 0) & (self.start[rows] > self.start[alternatives])

    def _drop_later(self, caller: Int) -> Int:
        return np.where((caller >= 0) & (self.start[caller] <= self.start), caller, -1)

    def host_self_ns(self) -> Int:
        """Duration of each call without the calls inside it."""
        inside_ns = sum_by_row(self.caller, self._duration, len(self.caller))
        return np.maximum(0, self._duration - inside_ns)

    def device_self_ns(self) -> Int:
        """Device time of each operator's own kernels; 0 for modules."""
        return np.concatenate([np.zeros(self.module_count, dtype=np.int64), self._device])

    def find_parents(self) -> tuple[Int, NDArray[np.bool_]]:
        """Find the parent of each call, and mask the calls inside a module.

        The parent of an outermost module is -1.
        """
        is_module = np.arange(len(self.start)) < self.module_count
        jump = np.append(self._parent, -1)  # the last entry is for row -1
        in_module = np.append(is_module, False)
        while (jump >= 0).any():
            in_module |= in_module[jump]
            jump = jump[jump]
        parent = np.where(in_module[self._parent], self._parent, -1)
        return parent, in_module[:-1]


def _find_enclosing_operators(calls: ModuleCalls, operators: Columns) -> Int:
    """Find the innermost operator that starts before each module call and ends no earlier."""
    enclosing = np.full(len(calls.name), -1, dtype=np.int64)
    start, end = operators["start_ns"], operators["start_ns"] + operators["duration_ns"]
    for track in np.unique(calls.track).tolist():
        rows = np.flatnonzero(operators["track"] == track)
        rows = rows[nesting_order(start[rows], end[rows])]
        parent = parents(start[rows], end[rows])
        track_calls = np.flatnonzero(calls.track == track)
        call_start = calls.start_ns[track_calls]
        call_end = call_start + calls.duration_ns[track_calls]
        operator = innermost_at(call_start - 1, start[rows], end[rows], parent)
        operator_end, parent = np.append(end[rows], 0), np.append(parent, -1)
        while (too_short := (operator >= 0) & (operator_end[operator] < call_end)).any():
            operator[too_short] = parent[operator[too_short]]
        enclosing[track_calls] = np.append(rows, -1)[operator]
    return enclosing


def _merge_calls(
    combined: _CombinedCalls, parent: Int, tree: OperatorTree
) -> tuple[NDArray[np.bool_], Int]:
    """Merge chains of operators as in `operator_tree`.

    Returns:
        Mask of the rows that are not merged, and the row that each row is merged into.
    """
    first = combined.module_count
    chained = np.flatnonzero(tree.merged != np.arange(len(tree)))
    chained = chained[parent[chained + first] == tree.parent[chained] + first] + first
    merged = np.arange(len(parent))
    merged[chained] = parent[chained]
    while ((further := merged[merged]) != merged).any():
        merged = further
    return merged == np.arange(len(parent)), merged


def _name_paths(
    combined: _CombinedCalls, paths: CallPaths, rows: Int, calls: ModuleCalls, tree: OperatorTree
) -> list[str]:
    first = len(calls.names)
    keys = combined.key[rows[paths.first]].tolist()
    return [calls.names[key] if key < first else tree.names[key - first] for key in keys]
