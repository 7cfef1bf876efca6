"""Modules of the model: how often each was called, and what its calls took.

A module is one instance called along one path: calls of an instance below the same module are
one row. Of its calls:

    host total       sum of durations
    host self        host total - durations of the calls of modules directly inside
    operators        operators called inside it but in no module inside it, and by no operator
    device self      device time of every operator inside it but in no module inside it
    device total     device self, plus that of the modules below
    backward host    durations of the outermost backward operators that compute the gradients of
                     its operators, those of the modules below included
    backward device  device time of these; it is part of device self and device total

A backward operator belongs to the module of the forward operator that it names, with everything
inside the outermost operator around it. Operators outside every module, such as the loss or the
optimizer, enter no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.call_paths import CallPaths, find_paths
from stepscope.analysis.columns import Columns, Strings
from stepscope.analysis.operator_tree import OperatorTree, add_at, rows_of
from stepscope.intervals import Int, innermost_at, nesting_order, parents

FUNCTION_COLUMNS = (
    *("id", "name", "parent", "module", "module_id"),
    *("track", "start_ns", "duration_ns"),
)
"""What `python_module_calls` needs of the table `python_functions`."""
MODULE_OPERATOR_COLUMNS = (
    "python",
    "forward",
    "track",
    "start_ns",
    "duration_ns",
    "device_self_ns",
)
"""What is needed of the table `operators` besides the columns of its tree."""
MODULE_ANNOTATION_COLUMNS = ("name", "track", "start_ns", "duration_ns")
"""What `lightning_module_calls` needs of the annotations on the host."""
_PYTHON_PREFIX = "nn.Module: "
_LIGHTNING_PREFIX = "[pl][module]"

Source = Literal["torch.nn", "lightning"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ModuleCalls:
    """Calls of modules."""

    source: Source
    name: NDArray[np.int32]
    names: Sequence[str]
    instance: Int
    """The recorder's number of the instance, -1 for none."""
    parent: Int
    """Row of the module call around it, -1 for none."""
    track: Int
    start_ns: Int
    duration_ns: Int
    of_operator: Int
    """Of each row of the table `operators`, the innermost call around it, -1 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRow:
    """One module at its place in the model. Device times are None without a device."""

    name: str
    instance: int | None
    depth: int
    occurrences: int
    operator_count: int
    host_total_ns: int
    host_self_ns: int
    device_total_ns: int | None
    device_self_ns: int | None
    device_ratio: float | None
    """Device total, of the device time of all operators of the recording."""
    backward_host_ns: int | None
    """None when the recording does not say which operators compute whose gradients."""
    backward_device_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTable:
    """Modules, each before those inside it, in the order of their first calls."""

    source: Source
    rows: list[ModuleRow]
    module_count: int
    operator_device_ns: int | None
    """Device time of all operators: the denominator of `device_ratio`."""
    outside_device_ns: int | None
    """Of this, outside every module."""


def python_module_calls(functions: Columns, operator_python: Int) -> ModuleCalls:
    """Calls of torch.nn modules, as recorded with stacks.

    Args:
        functions: `FUNCTION_COLUMNS` of the table `python_functions`.
        operator_python: `python` of the table `operators`.
    """
    names: Strings = functions["name"]
    calls = np.flatnonzero(functions["module_id"] >= 0)
    call_of = np.append(rows_of(functions["id"][calls], functions["module"]), -1)
    above = rows_of(functions["id"], functions["parent"][calls])
    return ModuleCalls(
        source="torch.nn",
        name=names.codes[calls],
        names=[(name or "").removeprefix(_PYTHON_PREFIX) for name in names.values],
        instance=functions["module_id"][calls],
        parent=call_of[above],  # row -1 is the one appended
        track=functions["track"][calls],
        start_ns=functions["start_ns"][calls],
        duration_ns=functions["duration_ns"][calls],
        of_operator=call_of[rows_of(functions["id"], operator_python)],
    )


def lightning_module_calls(annotations: Columns, operators: Columns) -> ModuleCalls:
    """Calls of modules as Lightning's profiler annotates them, `[pl][module]Class: path`.

    Args:
        annotations: `MODULE_ANNOTATION_COLUMNS` of the table `annotations`, those on the host.
        operators: `track` and `start_ns` of the table.
    """
    names: Strings = annotations["name"]
    wanted = [(name or "").startswith(_LIGHTNING_PREFIX) for name in names.values]
    calls = np.flatnonzero(np.array([*wanted, False])[names.codes])
    track, start = annotations["track"][calls], annotations["start_ns"][calls]
    end = start + annotations["duration_ns"][calls]
    parent = np.full(len(calls), -1, dtype=np.int64)
    of_operator = np.full(len(operators["track"]), -1, dtype=np.int64)
    for each in np.unique(track).tolist():
        mine = np.flatnonzero(track == each)
        mine = mine[nesting_order(start[mine], end[mine])]
        above = parents(start[mine], end[mine])
        parent[mine] = np.where(above >= 0, mine[above], -1)
        inside = np.flatnonzero(operators["track"] == each)
        found = innermost_at(operators["start_ns"][inside], start[mine], end[mine], above)
        of_operator[inside] = np.where(found >= 0, mine[found], -1)
    return ModuleCalls(
        source="lightning",
        name=names.codes[calls],
        names=[(name or "").removeprefix(_LIGHTNING_PREFIX) for name in names.values],
        instance=np.full(len(calls), -1, dtype=np.int64),
        parent=parent,
        track=track,
        start_ns=start,
        duration_ns=end - start,
        of_operator=of_operator,
    )


def module_table(
    calls: ModuleCalls,
    tree: OperatorTree,
    operators: Columns,
    *,
    on_device: bool,
    top: int = 0,
) -> ModuleTable:
    """What the calls of modules took.

    Args:
        calls: of modules.
        tree: the operators of the recording.
        operators: `MODULE_OPERATOR_COLUMNS` of the same rows.
        on_device: whether the recording holds device work.
        top: only so many modules, those with most time, and what they are inside; 0 for all.
    """
    paths = find_paths(calls.parent, calls.name, calls.instance)
    sums = _sums(calls, paths, tree, operators)
    device = sums["device"] + sums["backward_device"]
    totals = {name: paths.totals(values) for name, values in sums.items()}
    device_total = totals["device"] + totals["backward_device"]
    occurrences = np.bincount(paths.of_call, minlength=len(paths))
    first = calls.start_ns[paths.first].copy()
    np.minimum.at(first, paths.of_call, calls.start_ns)
    every = int(operators["device_self_ns"].sum())
    linked = bool((operators["forward"] >= 0).any())
    weight = device_total if on_device else sums["host"]
    rows = [
        ModuleRow(
            name=calls.names[calls.name[paths.first[p]]],
            instance=_known(calls.instance[paths.first[p]]),
            depth=int(paths.depth[p]),
            occurrences=int(occurrences[p]),
            operator_count=int(sums["operators"][p]),
            host_total_ns=int(sums["host"][p]),
            host_self_ns=int(sums["host"][p] - sums["host_inside"][p]),
            device_total_ns=int(device_total[p]) if on_device else None,
            device_self_ns=int(device[p]) if on_device else None,
            device_ratio=int(device_total[p]) / every if on_device and every else None,
            backward_host_ns=int(totals["backward_host"][p]) if linked else None,
            backward_device_ns=(
                int(totals["backward_device"][p]) if linked and on_device else None
            ),
        )
        for p in _in_order(paths, first, _heaviest(paths, weight, top))
    ]
    return ModuleTable(
        source=calls.source,
        rows=rows,
        module_count=len(paths),
        operator_device_ns=every if on_device else None,
        outside_device_ns=every - int(device.sum()) if on_device else None,
    )


def _sums(
    calls: ModuleCalls, paths: CallPaths, tree: OperatorTree, operators: Columns
) -> dict[str, Int]:
    """Sums over the calls of each path itself."""
    of_call = np.append(paths.of_call, -1)  # row -1 is the one appended
    count = len(paths)
    outermost = outermost_rows(tree)
    backward = backward_calls(calls, tree, operators["forward"], outermost)
    forward = np.where(backward >= 0, -1, calls.of_operator)
    around = np.append(forward, -1)[tree.parent]
    direct = np.where((around != forward) | (tree.parent < 0), forward, -1)
    counted = np.where(tree.counted, direct, -1)
    root = outermost == np.arange(len(tree))
    device = operators["device_self_ns"]

    def add(rows: Int, values: NDArray[Any]) -> Int:
        return add_at(of_call[rows], values, count)

    return {
        "host": add_at(paths.of_call, calls.duration_ns, count),
        "host_inside": add(calls.parent, calls.duration_ns),
        "operators": add(counted, np.ones(len(tree), dtype=np.int64)),
        "device": add(forward, device),
        "backward_device": add(backward, device),
        "backward_host": add(np.where(root, backward, -1), operators["duration_ns"]),
    }


def outermost_rows(tree: OperatorTree) -> Int:
    """Row of the outermost operator around each row; steps and the like are none."""
    countable = np.append(tree.counted[tree.merged], False)
    found = np.arange(len(tree), dtype=np.int64)
    for rows in tree.levels:
        above = tree.parent[rows]
        found[rows] = np.where(countable[above], found[above], rows)
    return found


def backward_calls(calls: ModuleCalls, tree: OperatorTree, forward: Int, outermost: Int) -> Int:
    """Of each operator, the module call whose gradients it computes, -1 for none."""
    named = np.flatnonzero(forward >= 0)[::-1]
    of_forward = np.append(calls.of_operator, -1)[tree.rows(forward[named])]
    of_root = np.full(len(tree), -1, dtype=np.int64)
    of_root[outermost[named]] = of_forward  # the first one named is the last written
    return of_root[outermost]


def _heaviest(paths: CallPaths, weight: Int, top: int) -> NDArray[np.bool_]:
    """The `top` heaviest paths and all those they are inside."""
    chosen = np.zeros(len(paths), dtype=np.bool_)
    rows = np.argsort(-weight, kind="stable")[: top or None]
    while len(rows):
        chosen[rows] = True
        rows = paths.parent[rows]
        rows = rows[rows >= 0]
    return chosen


def _in_order(paths: CallPaths, first: Int, chosen: NDArray[np.bool_]) -> list[int]:
    """Paths with each before those inside it, in the order of the times of their first calls."""
    inside: dict[int, list[int]] = {}
    for path in np.flatnonzero(chosen)[np.argsort(first[chosen], kind="stable")].tolist():
        inside.setdefault(int(paths.parent[path]), []).append(path)
    found, waiting = [], inside.get(-1, [])[::-1]
    while waiting:
        path = waiting.pop()
        found.append(path)
        waiting.extend(inside.get(path, [])[::-1])
    return found


def _known(value: int) -> int | None:
    return None if value < 0 else int(value)
