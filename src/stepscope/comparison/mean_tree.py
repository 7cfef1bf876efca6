"""The calls of the mean step: one tree for all steps of a run.

A call is known by its path: the path of its caller, its name, and how many calls of this name the
caller made before it. Calls of several steps with one path are one node, whose times are means over
all steps, so that the times of all nodes sum to those of the mean step, whatever a single step left
out or did besides. Nodes of one caller stand in the order of their mean distance from the beginning
of the step: in the order of the calls, where every step makes the same ones.
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
    """Calls in the steps of one recording: of operators, kernels and others; one entry each."""

    name: Int
    """Place in `names`."""
    names: Sequence[str]
    parent: Int
    """Row of the caller, -1 for none."""
    step: Int
    """Which step it is in; none is outside."""
    after_ns: Int
    """Since its step began."""
    on_device: NDArray[np.bool_]
    exposed: Mapping[str, Float]
    """Nanoseconds by part of the step; see `exposed_time`."""
    busy: Mapping[str, Float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanTree:
    """Nodes of the mean step; one entry each, a caller before what it calls."""

    name: list[str]
    parent: list[int]
    """Node of the caller, -1 for none."""
    children: list[list[int]]
    """Of each node, and at last of no caller, in their order."""
    on_device: NDArray[np.bool_]
    calls: Float
    """In the mean step."""
    exposed: dict[str, Float]
    """Nanoseconds of the mean step, by part."""
    busy: dict[str, Float]

    def __len__(self) -> int:
        return len(self.name)


def mean_tree(recordings: Sequence[StepCalls], step_count: int) -> MeanTree:
    """The mean step.

    Args:
        recordings: calls of each recording of a run.
        step_count: of all of them.
    """
    every = _together(recordings)
    node = _nodes(every)
    count = int(node.max(initial=-1)) + 1
    first = np.zeros(count, dtype=np.int64)
    first[node[::-1]] = np.arange(len(node))[::-1]
    calls = np.bincount(node, minlength=count).astype(np.float64)
    above = every.parent[first]
    parent = np.where(above >= 0, node[above], -1) if count else above
    after = np.bincount(node, weights=every.after_ns, minlength=count) / np.maximum(calls, 1)

    def mean(values: Mapping[str, Float]) -> dict[str, Float]:
        return {
            part: np.bincount(node, weights=ns, minlength=count) / max(1, step_count)
            for part, ns in values.items()
        }

    return MeanTree(
        name=[every.names[code] for code in every.name[first].tolist()],
        parent=parent.tolist(),
        children=_children(parent, after),
        on_device=every.on_device[first],
        calls=calls / max(1, step_count),
        exposed=mean(every.exposed),
        busy=mean(every.busy),
    )


def _together(recordings: Sequence[StepCalls]) -> StepCalls:
    """Calls of all recordings as if they were one: names, rows and steps are numbered anew."""
    names = list(dict.fromkeys(name for one in recordings for name in one.names))
    place = {name: number for number, name in enumerate(names)}
    rows = np.cumsum([0, *(len(one.name) for one in recordings)])
    steps = np.cumsum([0, *(int(one.step.max(initial=-1)) + 1 for one in recordings)])
    parts = list(dict.fromkeys(part for one in recordings for part in one.exposed))
    none = np.empty(0, dtype=np.int64)

    def joined(values: Sequence[Int]) -> Int:
        return np.concatenate([none, *values])

    def by_part(values: Sequence[Mapping[str, Float]]) -> dict[str, Float]:
        lengths = [len(one.name) for one in recordings]
        both = list(zip(values, lengths, strict=True))
        return {
            part: np.concatenate([none, *(v.get(part, np.zeros(n)) for v, n in both)])
            for part in parts
        }

    codes = [np.array([place[n] for n in one.names], dtype=np.int64) for one in recordings]
    return StepCalls(
        name=joined([code[one.name] for code, one in zip(codes, recordings, strict=True)]),
        names=names,
        parent=joined(
            [
                np.where(one.parent >= 0, one.parent + row, -1)
                for one, row in zip(recordings, rows.tolist(), strict=False)
            ]
        ),
        step=joined(
            [one.step + step for one, step in zip(recordings, steps.tolist(), strict=False)]
        ),
        after_ns=joined([one.after_ns for one in recordings]),
        on_device=joined([one.on_device.astype(np.int64) for one in recordings]).astype(np.bool_),
        exposed=by_part([one.exposed for one in recordings]),
        busy=by_part([one.busy for one in recordings]),
    )


def _nodes(every: StepCalls) -> Int:
    """The node of each call, level by level: those of a level follow from those above."""
    depth = depths(every.parent)
    node = np.full(len(depth), -1, dtype=np.int64)
    count, names = 0, max(1, len(every.names))
    by_depth = np.argsort(depth, kind="stable")
    cuts = np.searchsorted(depth[by_depth], np.arange(int(depth.max(initial=-1)) + 2))
    for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        rows = by_depth[begin:end]
        above, name = every.parent[rows], every.name[rows]
        # Without a caller, the step is what calls of one name are counted in.
        caller = np.where(above >= 0, above, -1 - every.step[rows])
        before = _ordinals(caller, name, every.after_ns[rows])
        path = np.where(above >= 0, node[above], -1) + 1
        key = (path * names + name) * (int(before.max(initial=0)) + 1) + before
        unique, place = np.unique(key, return_inverse=True)
        node[rows] = count + place.ravel()
        count += len(unique)
    return node


def _ordinals(caller: Int, name: Int, after_ns: Int) -> Int:
    """How many calls of the same caller and name come before each one."""
    order = np.lexsort((after_ns, name, caller))
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = (np.diff(caller[order]) != 0) | (np.diff(name[order]) != 0)
    places = np.arange(len(order))
    found = np.empty(len(order), dtype=np.int64)
    found[order] = places - np.maximum.accumulate(np.where(opens, places, 0))
    return found


def _children(parent: Int, after: Float) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in range(len(parent) + 1)]
    order = np.argsort(after, kind="stable")
    for node, caller in zip(order.tolist(), parent[order].tolist(), strict=True):
        children[caller].append(node)
    return children
