"""Modules of the model: call counts, host and device times, and their tree for a flame graph.

A module is one instance called along one path: calls of an instance below the same module form
one row. For its calls:

    host total       sum of durations
    host self        host total - durations of the module calls directly inside
    operators        operators inside the module, not in a module inside it, called by no operator
    device self      device time of every operator inside the module, not in a module inside it
    device total     device self plus that of the modules below
    backward host    durations of the outermost backward operators that compute the gradients of
                     its operators, including those of the modules below
    backward device  device time of these; included in device self and device total

A backward operator belongs to the module of the forward operator that it names, together with
everything inside the outermost operator around it. Operators outside every module, such as the
loss or the optimizer, are in no row.

Modules and their operators as one tree of calls, for a flame graph. The parent of a call is

    of an operator          the operator that called it or the module call around it, whichever is
                            closer
    of a module call        likewise: checkpointing calls modules from an operator
    of a backward operator  the module call whose gradients it computes, by the rule above,
                            regardless of when it ran

A node is a path of modules and operators. Each instant belongs to one node: host self time is the
duration of a call without the calls that ran inside it, device self time is that of the operator's
own kernels, and every total is the sum of the self times below it. So the total of a module that
no operator called is its host total plus its backward host time in the table `modules`, or its
device total. Operators outside every module are not in the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.arrays.columns import Columns, Strings, none_if_negative
from stepscope.analysis.kernel_classes import match_rows
from stepscope.analysis.operators import operator_tree
from stepscope.analysis.operators.module_classes import ModuleClass, find_slowest_class
from stepscope.analysis.timeline import CallTree

FUNCTION_COLUMNS = (
    *("id", "name", "parent", "module", "module_id"),
    *("track", "start_ns", "duration_ns"),
)
"""Columns of `python_functions` that `find_python_module_calls` reads."""
MODULE_OPERATOR_COLUMNS = (
    "python",
    "forward",
    "track",
    "start_ns",
    "duration_ns",
    "device_self_ns",
)
"""Columns of `operators` that are read here, in addition to those of its tree."""
MODULE_ANNOTATION_COLUMNS = ("name", "track", "start_ns", "duration_ns")
"""Columns of the host annotations that `find_lightning_module_calls` reads."""
_PYTHON_PREFIX = "nn.Module: "
_LIGHTNING_PREFIX = "[pl][module]"
MODULE_PREFIXES = (_PYTHON_PREFIX, _LIGHTNING_PREFIX)
"""Beginnings of the names of events that are calls of modules."""

Source = Literal["torch.nn", "lightning"]


class ModuleCalls(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Calls of modules; arrays have one entry per call, except `of_operator`."""

    source: Source
    name: NDArray[np.int32]
    """Index into `names`."""
    names: Sequence[str]
    instance: intervals.Int
    """The profiler's number of the instance, -1 for none."""
    parent: intervals.Int
    """Row of the enclosing module call, -1 for none."""
    track: intervals.Int
    start_ns: intervals.Int
    duration_ns: intervals.Int
    of_operator: intervals.Int
    """Innermost module call around each row of the table `operators`, -1 for none."""


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """One module on one path in the model."""

    name: Annotated[str, schema.field_label("module")]
    """Indented by two spaces per level."""
    instance: Annotated[int | None, schema.field_label(display="identifier")]
    """Number of the instance in the trace."""
    depth: Annotated[int, schema.field_label("level", unit="count")]
    occurrences: Annotated[int, schema.field_label("calls", unit="count")]
    operator_count: int
    """Outermost operators inside the module but outside the modules inside it."""
    host_total_ns: int
    host_self_ns: int
    device_total_ns: int | None
    """Forward and backward time; null without a device."""
    device_self_ns: int | None
    device_ratio: Annotated[float | None, schema.field_label("share", display="bar")]
    """Share of the device time of operators and of work without one."""
    backward_host_ns: int | None
    """Time of the operators that compute its gradients, including the modules inside."""
    backward_device_ns: int | None


class ModuleTable(msgspec.Struct, frozen=True, kw_only=True):
    """Modules in preorder (each before those inside it), by time of their first calls."""

    source: Source
    rows: list[Module]
    module_count: int
    operator_device_ns: int | None
    """Device time of all operators."""
    outside_device_ns: int | None
    """Portion of `operator_device_ns` outside every module."""
    slowest: ModuleClass | None
    """Class whose modules have the longest self time, on the device where there is one."""


def find_python_module_calls(functions: Columns, operator_python: intervals.Int) -> ModuleCalls:
    """Find the calls of torch.nn modules, recorded with stacks.

    Args:
        functions: `FUNCTION_COLUMNS` of the table `python_functions`.
        operator_python: column `python` of the table `operators`.
    """
    names: Strings = functions["name"]
    calls = np.flatnonzero(functions["module_id"] >= 0)
    call_of = np.append(operator_tree.find_rows(functions["id"][calls], functions["module"]), -1)
    caller = operator_tree.find_rows(functions["id"], functions["parent"][calls])
    return ModuleCalls(
        source="torch.nn",
        name=names.codes[calls],
        names=[(name or "").removeprefix(_PYTHON_PREFIX) for name in names.values],
        instance=functions["module_id"][calls],
        parent=call_of[caller],  # row -1 is the appended one
        track=functions["track"][calls],
        start_ns=functions["start_ns"][calls],
        duration_ns=functions["duration_ns"][calls],
        of_operator=call_of[operator_tree.find_rows(functions["id"], operator_python)],
    )


def find_lightning_module_calls(annotations: Columns, operators: Columns) -> ModuleCalls:
    """Find the calls of modules in annotations of Lightning's profiler.

    Their names are `[pl][module]Class: path`.

    Args:
        annotations: `MODULE_ANNOTATION_COLUMNS` of the host annotations.
        operators: columns `track` and `start_ns` of the table.
    """
    names: Strings = annotations["name"]
    calls = np.flatnonzero(match_rows(names, lambda name: name.startswith(_LIGHTNING_PREFIX)))
    call_track, start = annotations["track"][calls], annotations["start_ns"][calls]
    end = start + annotations["duration_ns"][calls]
    parent = np.full(len(calls), -1, dtype=np.int64)
    of_operator = np.full(len(operators["track"]), -1, dtype=np.int64)
    for track in np.unique(call_track).tolist():
        rows = np.flatnonzero(call_track == track)
        rows = rows[intervals.nesting_order(start[rows], end[rows])]
        row_parent = intervals.parents(start[rows], end[rows])
        parent[rows] = np.where(row_parent >= 0, rows[row_parent], -1)
        track_operators = np.flatnonzero(operators["track"] == track)
        operator_start = operators["start_ns"][track_operators]
        call = intervals.innermost_at(operator_start, start[rows], end[rows], row_parent)
        of_operator[track_operators] = np.where(call >= 0, rows[call], -1)
    return ModuleCalls(
        source="lightning",
        name=names.codes[calls],
        names=[(name or "").removeprefix(_LIGHTNING_PREFIX) for name in names.values],
        instance=np.full(len(calls), -1, dtype=np.int64),
        parent=parent,
        track=call_track,
        start_ns=start,
        duration_ns=end - start,
        of_operator=of_operator,
    )


def build_module_table(
    calls: ModuleCalls,
    tree: operator_tree.OperatorTree,
    operators: Columns,
    *,
    on_device: bool,
    no_operator_device_ns: int = 0,
    top: int = 0,
) -> ModuleTable:
    """Build the table of modules.

    Args:
        calls: calls of modules.
        tree: operators of the trace.
        operators: `MODULE_OPERATOR_COLUMNS` of the same rows.
        on_device: true if the trace has device work.
        no_operator_device_ns: time of device work that no operator launched; counts in the
            denominator of the shares.
        top: limit of modules, those with most time; their ancestors are added. 0 for all.
    """
    paths = operator_tree.find_paths(calls.parent, calls.name, calls.instance)
    sums = _sum_by_path(calls, paths, tree, operators)
    device = sums["device"] + sums["backward_device"]
    totals = {name: paths.totals(values) for name, values in sums.items()}
    device_total = totals["device"] + totals["backward_device"]
    occurrences = np.bincount(paths.of_call, minlength=len(paths))
    first = calls.start_ns[paths.first].copy()
    np.minimum.at(first, paths.of_call, calls.start_ns)
    all_device_ns = int(operators["device_self_ns"].sum())
    denominator_ns = all_device_ns + no_operator_device_ns
    linked = bool((operators["forward"] >= 0).any())
    weight = device_total if on_device else sums["host"]
    self_ns = device if on_device else sums["host"] - sums["host_inside"]
    rows = [
        Module(
            name=calls.names[calls.name[paths.first[p]]],
            instance=none_if_negative(calls.instance[paths.first[p]]),
            depth=int(paths.depth[p]),
            occurrences=int(occurrences[p]),
            operator_count=int(sums["operators"][p]),
            host_total_ns=int(sums["host"][p]),
            host_self_ns=int(sums["host"][p] - sums["host_inside"][p]),
            device_total_ns=int(device_total[p]) if on_device else None,
            device_self_ns=int(device[p]) if on_device else None,
            device_ratio=(
                int(device_total[p]) / denominator_ns if on_device and denominator_ns else None
            ),
            backward_host_ns=int(totals["backward_host"][p]) if linked else None,
            backward_device_ns=(
                int(totals["backward_device"][p]) if linked and on_device else None
            ),
        )
        for p in _sort_preorder(paths, first, _select_heaviest(paths, weight, top))
    ]
    return ModuleTable(
        source=calls.source,
        rows=rows,
        module_count=len(paths),
        operator_device_ns=all_device_ns if on_device else None,
        outside_device_ns=all_device_ns - int(device.sum()) if on_device else None,
        slowest=find_slowest_class(
            [calls.names[code] for code in calls.name[paths.first].tolist()],
            occurrences,
            self_ns,
            denominator_ns if on_device else int(self_ns.sum()),
        ),
    )


def _sum_by_path(
    calls: ModuleCalls,
    paths: operator_tree.CallPaths,
    tree: operator_tree.OperatorTree,
    operators: Columns,
) -> dict[str, intervals.Int]:
    """Sum figures over the calls of each path, without the paths below."""
    path_of_call = np.append(paths.of_call, -1)  # row -1 is the appended one
    count = len(paths)
    outermost = find_outermost_rows(tree)
    backward = find_backward_module_calls(calls, tree, operators["forward"], outermost)
    forward = np.where(backward >= 0, -1, calls.of_operator)
    caller_module = np.append(forward, -1)[tree.parent]
    top_level = np.where((caller_module != forward) | (tree.parent < 0), forward, -1)
    counted = np.where(tree.counted, top_level, -1)
    is_outermost = outermost == np.arange(len(tree))
    device_ns = operators["device_self_ns"]

    def sum_calls(rows: intervals.Int, values: NDArray[Any]) -> intervals.Int:
        return operator_tree.sum_by_row(path_of_call[rows], values, count)

    return {
        "host": operator_tree.sum_by_row(paths.of_call, calls.duration_ns, count),
        "host_inside": sum_calls(calls.parent, calls.duration_ns),
        "operators": sum_calls(counted, np.ones(len(tree), dtype=np.int64)),
        "device": sum_calls(forward, device_ns),
        "backward_device": sum_calls(backward, device_ns),
        "backward_host": sum_calls(np.where(is_outermost, backward, -1), operators["duration_ns"]),
    }


def find_outermost_rows(tree: operator_tree.OperatorTree) -> intervals.Int:
    """Find the outermost operator around each row; steps, loaders and optimizers do not count."""
    is_operator = np.append(tree.counted[tree.merged], False)
    outermost = np.arange(len(tree), dtype=np.int64)
    for rows in tree.levels:
        parent = tree.parent[rows]
        outermost[rows] = np.where(is_operator[parent], outermost[parent], rows)
    return outermost


def find_backward_module_calls(
    calls: ModuleCalls,
    tree: operator_tree.OperatorTree,
    forward: intervals.Int,
    outermost: intervals.Int,
) -> intervals.Int:
    """Find the module call whose gradients each operator computes, -1 for none."""
    linked = np.flatnonzero(forward >= 0)[::-1]
    module_call = np.append(calls.of_operator, -1)[tree.find_rows(forward[linked])]
    call_of_outermost = np.full(len(tree), -1, dtype=np.int64)
    call_of_outermost[outermost[linked]] = module_call  # in reverse: the first link is kept
    return call_of_outermost[outermost]


def _select_heaviest(
    paths: operator_tree.CallPaths, weight: intervals.Int, top: int
) -> NDArray[np.bool_]:
    """Mask the `top` heaviest paths and their ancestors."""
    mask = np.zeros(len(paths), dtype=np.bool_)
    rows = np.argsort(-weight, kind="stable")[: top or None]
    while len(rows):
        mask[rows] = True
        rows = paths.parent[rows]
        rows = rows[rows >= 0]
    return mask


def _sort_preorder(
    paths: operator_tree.CallPaths, first: intervals.Int, mask: NDArray[np.bool_]
) -> list[int]:
    """Sort the masked paths in preorder, siblings by time of their first calls."""
    children: dict[int, list[int]] = {}
    for path in np.flatnonzero(mask)[np.argsort(first[mask], kind="stable")].tolist():
        children.setdefault(int(paths.parent[path]), []).append(path)
    preorder, stack = [], children.get(-1, [])[::-1]
    while stack:
        path = stack.pop()
        preorder.append(path)
        stack.extend(children.get(path, [])[::-1])
    return preorder


Measure = Literal["host", "device"]


class ModuleFlame(CallTree, kw_only=True, eq=False):
    """Modules and operators by path of names."""

    outside_ns: int
    """Self time of operators outside every module."""


def build_module_flame(
    calls: ModuleCalls, tree: operator_tree.OperatorTree, operators: Columns, measure: Measure
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
    row_self_ns = operator_tree.sum_by_row(merged, row_self_ns, len(row_self_ns))
    rows = np.flatnonzero(is_node & in_module)
    index = np.full(len(parent) + 1, -1, dtype=np.int64)  # the last entry is for row -1
    index[rows] = np.arange(len(rows))
    node_parent = np.append(merged, -1)[parent[rows]]
    paths = operator_tree.find_paths(
        index[node_parent], combined.key[rows], combined.instance[rows]
    )
    self_ns = operator_tree.sum_by_row(paths.of_call, row_self_ns[rows], len(paths))
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

    def __init__(
        self, calls: ModuleCalls, tree: operator_tree.OperatorTree, operators: Columns
    ) -> None:
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

    def _is_closer(self, rows: intervals.Int, alternatives: intervals.Int) -> NDArray[np.bool_]:
        """Mask the rows that are calls and started after the alternatives, and so are closer."""
        return (rows >= 0) & (self.start[rows] > self.start[alternatives])

    def _drop_later(self, caller: intervals.Int) -> intervals.Int:
        return np.where((caller >= 0) & (self.start[caller] <= self.start), caller, -1)

    def host_self_ns(self) -> intervals.Int:
        """Duration of each call without the calls inside it."""
        inside_ns = operator_tree.sum_by_row(self.caller, self._duration, len(self.caller))
        return np.maximum(0, self._duration - inside_ns)

    def device_self_ns(self) -> intervals.Int:
        """Device time of each operator's own kernels; 0 for modules."""
        return np.concatenate([np.zeros(self.module_count, dtype=np.int64), self._device])

    def find_parents(self) -> tuple[intervals.Int, NDArray[np.bool_]]:
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


def _find_enclosing_operators(calls: ModuleCalls, operators: Columns) -> intervals.Int:
    """Find the innermost operator that starts before each module call and ends no earlier."""
    enclosing = np.full(len(calls.name), -1, dtype=np.int64)
    start, end = operators["start_ns"], operators["start_ns"] + operators["duration_ns"]
    for track in np.unique(calls.track).tolist():
        rows = np.flatnonzero(operators["track"] == track)
        rows = rows[intervals.nesting_order(start[rows], end[rows])]
        parent = intervals.parents(start[rows], end[rows])
        track_calls = np.flatnonzero(calls.track == track)
        call_start = calls.start_ns[track_calls]
        call_end = call_start + calls.duration_ns[track_calls]
        operator = intervals.innermost_at(call_start - 1, start[rows], end[rows], parent)
        operator_end, parent = np.append(end[rows], 0), np.append(parent, -1)
        while (too_short := (operator >= 0) & (operator_end[operator] < call_end)).any():
            operator[too_short] = parent[operator[too_short]]
        enclosing[track_calls] = np.append(rows, -1)[operator]
    return enclosing


def _merge_calls(
    combined: _CombinedCalls, parent: intervals.Int, tree: operator_tree.OperatorTree
) -> tuple[NDArray[np.bool_], intervals.Int]:
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
    combined: _CombinedCalls,
    paths: operator_tree.CallPaths,
    rows: intervals.Int,
    calls: ModuleCalls,
    tree: operator_tree.OperatorTree,
) -> list[str]:
    first = len(calls.names)
    keys = combined.key[rows[paths.first]].tolist()
    return [calls.names[key] if key < first else tree.names[key - first] for key in keys]
