"""Tree of the operators of a trace, call paths in it, and activation checkpointing.

A call whose only child operator has the same name is one call recorded twice (a dispatcher and
the operator it dispatches to): the child is merged into it. The caller's duration and totals
represent both, the self times of both add up, and the child's children become the caller's. The
caller's own runtime calls are kept, unlike in the tool that this definition comes from.

In a trace with microseconds, a call of length zero at the start or end of another may as well be
the one before or after it (`aten::as_strided`, thousands of times in a row). It is merged only if
longer calls of that name show that the operator dispatches to its own name.

Call paths: calls grouped by their own key and the keys of all their callers. A path is a key and
the path of the caller, so two calls share a path if their keys agree and those of all their callers
do.

Activation checkpointing: forward operators that run again inside a backward pass. The autograd
engine runs backward nodes (`MulBackward0`) with gradients off, so the operators that a node calls
have no sequence number. Checkpointing runs the forward pass of a segment again with gradients on:
inside `CheckpointFunctionBackward`, or inside the node that first needs an activation of the
segment (https://docs.pytorch.org/docs/stable/checkpoint.html). So

    recomputed   an operator with a sequence number, called by a backward node that also calls
                 operators without one, or that is named after checkpointing
    time         device and host total of these calls, with everything below them

With `create_graph=True` all operators of a node have sequence numbers, and none is recomputed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.arrays.columns import Columns, Strings, group_rows
from stepscope.analysis.kernel_classes import match_rows

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

    ids: intervals.Int
    name: NDArray[np.int32]
    """Index into `names`."""
    names: Sequence[str]
    parent: intervals.Int
    """Row of the calling operator, -1 for none."""
    depth: intervals.Int
    merged: intervals.Int
    """Row that each row is merged into; the row itself if it is not merged."""
    counted: NDArray[np.bool_]
    """True for calls of operators: not merged, not a step, loader or optimizer."""

    def __len__(self) -> int:
        return len(self.ids)

    def find_rows(self, ids: intervals.Int) -> intervals.Int:
        """Find the row of each operator id, -1 for an unknown id."""
        return _look_up(self._row_of_id, ids)

    def sum_merged(self, values: NDArray[Any]) -> intervals.Int:
        """Sum the values of each row and of the rows merged into it.

        The result is meaningless for a row that was merged into another.
        """
        sums = np.array(values, dtype=np.int64)
        rows = np.flatnonzero(self.merged != np.arange(len(self)))
        np.add.at(sums, self.merged[rows], sums[rows])
        return sums

    def totals(self, values: NDArray[Any]) -> intervals.Int:
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
    def calls_by_name(self) -> intervals.Int:
        """Number of counted calls of each name."""
        return np.bincount(self.name[self.counted], minlength=len(self.names)).astype(np.int64)

    @cached_property
    def _row_of_id(self) -> NDArray[np.int32]:
        return _index_ids(self.ids)

    @cached_property
    def levels(self) -> list[intervals.Int]:
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


def find_rows(ids: intervals.Int, lookup: intervals.Int) -> intervals.Int:
    """Find the index in `ids` of each id to look up, -1 for an unknown id.

    Ids are small: they are positions in a file.
    """
    return _look_up(_index_ids(ids), lookup)


def find_outermost(
    operators: Columns, is_range: NDArray[np.bool_], ids: intervals.Int
) -> intervals.Int:
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


def _index_ids(ids: intervals.Int) -> NDArray[np.int32]:
    """Index rows by id from 0; -1 for an id without a row, and in the last entry."""
    row_of_id = np.full(int(ids.max(initial=-1)) + 2, -1, dtype=np.int32)
    row_of_id[ids] = np.arange(len(ids), dtype=np.int32)
    return row_of_id


def _look_up(row_of_id: NDArray[np.int32], lookup: intervals.Int) -> intervals.Int:
    in_range = (lookup >= 0) & (lookup < len(row_of_id))
    return row_of_id[np.where(in_range, lookup, -1)].astype(np.int64)


def sum_by_row(rows: intervals.Int, values: NDArray[Any], count: int) -> intervals.Int:
    """Sum integers by row; values with row -1 are ignored."""
    has_row = rows >= 0
    if not has_row.all():
        rows, values = rows[has_row], values[has_row]
    return np.rint(np.bincount(rows, weights=values, minlength=count)).astype(np.int64)


def _merge_chains(
    parent: intervals.Int, name: NDArray[np.int32], start: intervals.Int, end: intervals.Int
) -> intervals.Int:
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


class CallPaths(msgspec.Struct, frozen=True, eq=False):
    """Paths of a forest of calls; a path follows the path of its caller."""

    of_call: intervals.Int
    """Path of each call."""
    parent: intervals.Int
    """Path of the caller of each path, -1 for none."""
    first: intervals.Int
    """First call of each path."""
    depth: intervals.Int
    """Number of callers of each path."""

    def __len__(self) -> int:
        return len(self.parent)

    def totals(self, values: intervals.Int) -> intervals.Int:
        """Sum of values over each path and all paths below it."""
        return intervals.subtree_sums(values, self.parent, self.depth)


def find_paths(parent: intervals.Int, *keys: NDArray[Any]) -> CallPaths:
    """Group calls by path.

    Args:
        parent: row of the caller of each call, -1 for none.
        keys: integers that distinguish calls of one caller.
    """
    depth = intervals.depths(parent)
    by_depth = np.argsort(depth, kind="stable")
    levels = np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1)
    of_call = np.append(np.empty(len(parent), dtype=np.int64), -1)  # last entry: for parent -1
    parents, firsts, count = [], [], 0
    for rows in levels if len(parent) else []:
        groups = group_rows(of_call[parent[rows]], *(key[rows] for key in keys))
        of_call[rows] = groups.group + count
        first = rows[groups.first]
        parents.append(of_call[parent[first]])
        firsts.append(first)
        count += len(groups)
    empty = np.empty(0, dtype=np.int64)
    first = np.concatenate(firsts) if firsts else empty
    return CallPaths(
        of_call=of_call[:-1],
        parent=np.concatenate(parents) if parents else empty,
        first=first,
        depth=depth[first],
    )


class RowLabels(msgspec.Struct, frozen=True, eq=False):
    """Text labels of rows: a code per row (-1 for none) and the text of a code."""

    codes: NDArray[Any]
    text: Callable[[int], str | None]


def make_string_labels(strings: Strings) -> RowLabels:
    """Make labels from a column of strings."""
    return RowLabels(strings.codes, lambda code: strings.values[code] if code >= 0 else None)


STACK_COLUMNS = ("id", "name", "parent")
"""Columns of `python_functions` that `make_stack_labels` reads."""


def make_stack_labels(functions: Columns, called_from: intervals.Int) -> RowLabels:
    """Make labels from Python stacks: frames joined by ';', innermost first.

    Args:
        functions: `STACK_COLUMNS` of the table.
        called_from: id of the innermost Python function of each row to label.
    """
    names: Strings = functions["name"]
    paths = find_paths(find_rows(functions["id"], functions["parent"]), names.codes)
    of_function = np.append(paths.of_call, -1)  # row -1 is the appended one

    def text(path: int) -> str | None:
        frames = []
        while path >= 0:
            frames.append(names.values[names.codes[paths.first[path]]] or "")
            path = int(paths.parent[path])
        return ";".join(frames) or None

    return RowLabels(of_function[find_rows(functions["id"], called_from)], text)


RECOMPUTATION_COLUMNS = (
    *("id", "name", "parent", "sequence", "forward_thread"),
    *("duration_ns", "device_self_ns", "device_total_ns"),
)
"""Columns of `operators` that `find_recomputation` reads."""
_NODE = re.compile(r"Backward\d*$")
_ENGINE = ("autograd::engine::", "torch::autograd::")


class RecomputedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """Recomputed calls of one operator."""

    name: Annotated[str, schema.field_label("operator")]
    calls: int
    device_ns: int
    """Time of the kernels, copies and sets launched by the calls and below them."""
    host_ns: int


class Recomputation(msgspec.Struct, frozen=True, kw_only=True):
    """Forward operators that ran again in the backward pass (activation checkpointing)."""

    call_count: int
    """Outermost recomputed operators."""
    device_ns: int
    device_ratio: Annotated[float | None, schema.field_label("share of device time")]
    """Share of the device time that operators launched; null without any."""
    host_ns: int
    host_ratio: Annotated[float | None, schema.field_label("share of host time")]
    """Share of the duration of the outermost operators."""
    operators: list[RecomputedOperator]
    """By descending device time, then host time."""


def find_recomputation(operators: Columns, *, top: int = 0) -> Recomputation | None:
    """Find the forward operators that ran again in the backward pass.

    Args:
        operators: `RECOMPUTATION_COLUMNS` of the table.
        top: limit of the list of operators; 0 for all.

    Returns:
        None if it is unknown: no backward node, or no sequence number in the trace.
    """
    names = operators["name"]
    texts = [name or "" for name in names.values]
    code = names.codes
    is_node = match_rows(names, lambda name: _NODE.search(name) is not None)
    is_engine = match_rows(names, lambda name: name.startswith(_ENGINE))
    checkpoints = match_rows(names, lambda name: "Checkpoint" in name)
    has_sequence = operators["sequence"] >= 0
    if not is_node.any() or not (has_sequence & ~is_node).any():
        return None
    parent = find_rows(operators["id"], operators["parent"])
    in_node = (parent >= 0) & is_node[parent] & ~is_node & ~is_engine
    computes = checkpoints.copy()
    computes[parent[in_node & ~has_sequence]] = True
    is_forward = has_sequence & (operators["forward_thread"] <= 0)
    rows = np.flatnonzero(in_node & is_forward & computes[parent])

    device, host = operators["device_total_ns"][rows], operators["duration_ns"][rows]
    groups = group_rows(code[rows])
    totals = zip(groups.first, groups.counts(), groups.sums(device), groups.sums(host), strict=True)
    summed = [
        RecomputedOperator(
            name=texts[code[rows[first]]], calls=int(calls), device_ns=int(d), host_ns=int(h)
        )
        for first, calls, d, h in totals
    ]
    summed.sort(key=lambda row: (-row.device_ns, -row.host_ns))
    device_ns, host_ns = int(device.sum()), int(host.sum())
    all_device_ns = int(operators["device_self_ns"].sum())
    all_host_ns = int(operators["duration_ns"][parent < 0].sum())
    return Recomputation(
        call_count=len(rows),
        device_ns=device_ns,
        device_ratio=device_ns / all_device_ns if all_device_ns else None,
        host_ns=host_ns,
        host_ratio=host_ns / all_host_ns if all_host_ns else None,
        operators=summed[:top] if top else summed,
    )
