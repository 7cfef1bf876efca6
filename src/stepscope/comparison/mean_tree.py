"""Calls of the mean step: one tree for all steps of a run.

A call is identified by its path: the path of its caller, its name, and the number of earlier calls
of this name by the same caller. Calls of several steps with one path are one node, whose times are
means over all steps. So the times of all nodes sum to those of the mean step, even where steps make
different calls. Nodes of one caller are ordered by their mean distance from the start of the step:
in the order of the calls, where every step makes the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int, depths

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCalls:
    """Calls in the steps of one trace (operators, kernels and others); one entry each."""

    name: Int
    """Index in `names`."""
    names: Sequence[str]
    parent: Int
    """Row of the caller, -1 for none."""
    step: Int
    """Index of the step; every call is in one."""
    after_ns: Int
    """Time since the start of the step."""
    on_device: NDArray[np.bool_]
    exposed: Mapping[str, Float]
    """Exposed nanoseconds by part of the step."""
    busy: Mapping[str, Float]
    """Duration in nanoseconds by part of the step, whatever runs at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanTree:
    """Nodes of the mean step; one entry each, a caller before its calls."""

    name: list[str]
    parent: list[int]
    """Node of the caller, -1 for none."""
    children: list[list[int]]
    """Calls of each node in their order, and last the calls without a caller."""
    on_device: NDArray[np.bool_]
    calls: Float
    """Number of calls in the mean step."""
    exposed: dict[str, Float]
    """Nanoseconds of the mean step, by part."""
    busy: dict[str, Float]

    def __len__(self) -> int:
        return len(self.name)


def build_mean_tree(traces: Sequence[StepCalls], step_count: int) -> MeanTree:
    """Build the tree of the mean step.

    Args:
        traces: calls of each trace of a run.
        step_count: steps of all traces.
    """
    calls = _concatenate(traces)
    node = _assign_nodes(calls)
    count = int(node.max(initial=-1)) + 1
    first = np.zeros(count, dtype=np.int64)
    first[node[::-1]] = np.arange(len(node))[::-1]
    call_counts = np.bincount(node, minlength=count).astype(np.float64)
    caller_row = calls.parent[first]
    parent = np.where(caller_row >= 0, node[caller_row], -1) if count else caller_row
    after = np.bincount(node, weights=calls.after_ns, minlength=count) / np.maximum(call_counts, 1)

    def average(values: Mapping[str, Float]) -> dict[str, Float]:
        return {
            part: np.bincount(node, weights=ns, minlength=count) / max(1, step_count)
            for part, ns in values.items()
        }

    return MeanTree(
        name=[calls.names[code] for code in calls.name[first].tolist()],
        parent=parent.tolist(),
        children=_list_children(parent, after),
        on_device=calls.on_device[first],
        calls=call_counts / max(1, step_count),
        exposed=average(calls.exposed),
        busy=average(calls.busy),
    )


def _concatenate(traces: Sequence[StepCalls]) -> StepCalls:
    """Concatenate the calls of all traces; names, rows and steps are renumbered."""
    names = list(dict.fromkeys(name for trace in traces for name in trace.names))
    code_of = {name: code for code, name in enumerate(names)}
    rows = np.cumsum([0, *(len(trace.name) for trace in traces)])
    steps = np.cumsum([0, *(int(trace.step.max(initial=-1)) + 1 for trace in traces)])
    parts = list(dict.fromkeys(part for trace in traces for part in trace.exposed))
    empty = np.empty(0, dtype=np.int64)

    def join(values: Sequence[Int]) -> Int:
        return np.concatenate([empty, *values])

    def join_parts(values: Sequence[Mapping[str, Float]]) -> dict[str, Float]:
        sized = list(zip(values, (len(trace.name) for trace in traces), strict=True))
        return {
            part: np.concatenate([empty, *(times.get(part, np.zeros(n)) for times, n in sized)])
            for part in parts
        }

    codes = [np.array([code_of[n] for n in trace.names], dtype=np.int64) for trace in traces]
    return StepCalls(
        name=join([code[trace.name] for code, trace in zip(codes, traces, strict=True)]),
        names=names,
        parent=join(
            [
                np.where(trace.parent >= 0, trace.parent + row, -1)
                for trace, row in zip(traces, rows.tolist(), strict=False)
            ]
        ),
        step=join([trace.step + step for trace, step in zip(traces, steps.tolist(), strict=False)]),
        after_ns=join([trace.after_ns for trace in traces]),
        on_device=join([trace.on_device.astype(np.int64) for trace in traces]).astype(np.bool_),
        exposed=join_parts([trace.exposed for trace in traces]),
        busy=join_parts([trace.busy for trace in traces]),
    )


def _assign_nodes(calls: StepCalls) -> Int:
    """Assign a node to each call, level by level from the roots."""
    depth = depths(calls.parent)
    node = np.full(len(depth), -1, dtype=np.int64)
    count, name_count = 0, max(1, len(calls.names))
    by_depth = np.argsort(depth, kind="stable")
    cuts = np.searchsorted(depth[by_depth], np.arange(int(depth.max(initial=-1)) + 2))
    for start, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        rows = by_depth[start:end]
        parent, name = calls.parent[rows], calls.name[rows]
        # Calls without a caller are numbered within their step.
        caller = np.where(parent >= 0, parent, -1 - calls.step[rows])
        ordinal = _number_calls(caller, name, calls.after_ns[rows])
        path = np.where(parent >= 0, node[parent], -1) + 1
        key = (path * name_count + name) * (int(ordinal.max(initial=0)) + 1) + ordinal
        unique, index = np.unique(key, return_inverse=True)
        node[rows] = count + index.ravel()
        count += len(unique)
    return node


def _number_calls(caller: Int, name: Int, after_ns: Int) -> Int:
    """Number the calls of each name by each caller, from 0 in the order of time."""
    order = np.lexsort((after_ns, name, caller))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (np.diff(caller[order]) != 0) | (np.diff(name[order]) != 0)
    indices = np.arange(len(order))
    ordinals = np.empty(len(order), dtype=np.int64)
    ordinals[order] = indices - np.maximum.accumulate(np.where(is_first, indices, 0))
    return ordinals


def _list_children(parent: Int, after: Float) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in range(len(parent) + 1)]
    order = np.argsort(after, kind="stable")
    for node, caller in zip(order.tolist(), parent[order].tolist(), strict=True):
        children[caller].append(node)
    return children
