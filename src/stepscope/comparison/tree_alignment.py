"""Two trees of calls laid on each other: what became of every call.

From the roots down, what one caller calls in one run is aligned with what it calls in the other:

1. A longest common subsequence of the names is matched (`sequences`).
2. Of what is left, calls of one name are matched in their order: they were moved.
3. What is left then was added or removed, with everything inside it.
4. The calls inside of what was matched are aligned in the same way.

With n and m calls below one caller that takes O(n m / 64) time, after what both lists begin and
end with was left out; over all callers, for two steps of 5 000 operators in one flat list, some ten
milliseconds. A call that moved to another caller was removed there and added here.

Rows gather calls that have one path of names: twelve layers of a model are one row. What each row
adds to the change of the step is the change of its exposed time (`exposed_time`), so rows sum to
the whole. The status of a row follows from it:

    added, removed     it is only in one of the runs
    reordered          it moved among the calls of its caller
    unchanged          its exposed time changed by at most 1 %
    less_overlapped    it is exposed longer, and at most half of that is because it takes longer
    more_overlapped    it is exposed shorter, and at most half of that is because it takes shorter
    slower, faster     any other
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepscope.comparison.mean_tree import MeanTree
from stepscope.comparison.sequences import common_subsequence
from stepscope.intervals import Int

Fate = Literal["matched", "reordered", "added", "removed"]
Status = Literal[
    "added",
    "removed",
    "reordered",
    "less_overlapped",
    "more_overlapped",
    "slower",
    "faster",
    "unchanged",
]
ALIKE_RATIO = 0.01
"""A call whose exposed time changes by at most this share of itself is unchanged."""
OVERLAP_RATIO = 0.5
"""Of a change of the exposed time, what a change of the duration may explain of it at most where
it is overlap that changed."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Nodes of two trees, -1 for none, and what became of them."""

    base: int
    other: int
    fate: Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Calls of one path in one part of the step; nanoseconds of the mean step."""

    part: str
    name: str
    path: tuple[str, ...]
    """Names of the callers, the outermost first."""
    on_device: bool
    status: Status
    base_ns: float
    """Exposed."""
    other_ns: float
    base_busy_ns: float
    other_busy_ns: float
    base_calls: float
    other_calls: float


def align(base: MeanTree, other: MeanTree) -> Iterator[Pair]:
    """What became of each node: every node of both trees is in one pair.

    Of what was added or removed, the outermost node and those inside it are pairs of their own.
    """
    code: dict[str, int] = {}
    names = [[code.setdefault(name, len(code)) for name in tree.name] for tree in (base, other)]
    open_lists: list[tuple[list[int], list[int]]] = [(base.children[-1], other.children[-1])]
    while open_lists:
        one, two = open_lists.pop()
        pairs = common_subsequence([names[0][n] for n in one], [names[1][n] for n in two])
        found = [Pair(one[i], two[j], "matched") for i, j in pairs]
        left = _without(one, {pair.base for pair in found})
        right = _without(two, {pair.other for pair in found})
        found += _moved(left, right, names)
        for pair in found:
            yield pair
            inside = base.children[pair.base], other.children[pair.other]
            if inside[0] or inside[1]:
                open_lists.append(inside)
        yield from (Pair(n, -1, "removed") for n in _inside(base, left))
        yield from (Pair(-1, n, "added") for n in _inside(other, right))


def _without(nodes: list[int], used: set[int]) -> list[int]:
    return [node for node in nodes if node not in used]


def _moved(left: list[int], right: list[int], names: list[list[int]]) -> list[Pair]:
    """Matches what is left by name, in order, and takes it out of both lists."""
    waiting: defaultdict[int, list[int]] = defaultdict(list)
    for node in reversed(right):
        waiting[names[1][node]].append(node)
    pairs = [
        Pair(node, waiting[names[0][node]].pop(), "reordered")
        for node in left
        if waiting[names[0][node]]
    ]
    left[:] = _without(left, {pair.base for pair in pairs})
    right[:] = _without(right, {pair.other for pair in pairs})
    return pairs


def _inside(tree: MeanTree, nodes: list[int]) -> Iterator[int]:
    """Nodes and all that they call, each before what it calls."""
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(tree.children[node])


@dataclass(frozen=True, slots=True)
class _Key:
    """What calls of one row have in common."""

    path: tuple[str, ...]
    name: str
    on_device: bool
    fate: Fate


def aligned_rows(base: MeanTree, other: MeanTree) -> list[Row]:
    """What became of the calls, by path and part of the step; their times sum to those of the
    trees."""
    keys: dict[_Key, int] = {}
    row_of = np.full(len(base), -1, dtype=np.int64), np.full(len(other), -1, dtype=np.int64)
    paths: list[dict[int, tuple[str, ...]]] = [{-1: ()}, {-1: ()}]
    outermost: list[dict[int, int]] = [{}, {}]
    inside_others: tuple[set[int], set[int]] = set(), set()
    for pair in align(base, other):
        side = 0 if pair.base >= 0 else 1
        tree, node = ((base, pair.base), (other, pair.other))[side]
        above = tree.parent[node]
        whole = outermost[side].get(above) if pair.fate in {"added", "removed"} else None
        if whole is not None:  # it counts with what it is inside of
            outermost[side][node] = whole
            row_of[side][node] = row_of[side][whole]
            inside_others[side].add(node)
            continue
        key = _Key(paths[side][above], tree.name[node], bool(tree.on_device[node]), pair.fate)
        row = keys.setdefault(key, len(keys))
        inner = (*key.path, key.name)
        for place, own in enumerate((pair.base, pair.other)):
            if own >= 0:
                row_of[place][own] = row
                paths[place][own] = inner
        if pair.fate in {"added", "removed"}:
            outermost[side][node] = node
    return list(_rows(list(keys), (base, other), row_of, inside_others))


def _rows(
    keys: list[_Key],
    trees: tuple[MeanTree, MeanTree],
    row_of: tuple[Int, Int],
    inside_others: tuple[set[int], set[int]],
) -> Iterator[Row]:
    parts = list(dict.fromkeys([*trees[0].exposed, *trees[1].exposed]))
    calls = []
    for tree, rows, left_out in zip(trees, row_of, inside_others, strict=True):
        weights = tree.calls.copy()
        weights[list(left_out)] = 0
        calls.append(np.bincount(rows, weights=weights, minlength=len(keys)))
    for part in parts:
        sums = []
        for tree, rows in zip(trees, row_of, strict=True):
            for times in (tree.exposed, tree.busy):
                ns = times.get(part)
                sums.append(
                    np.zeros(len(keys))
                    if ns is None
                    else np.bincount(rows, weights=ns, minlength=len(keys))
                )
        for row in np.flatnonzero(sum(sums)).tolist():
            key = keys[row]
            base_ns, base_busy_ns, other_ns, other_busy_ns = (float(each[row]) for each in sums)
            yield Row(
                part=part,
                name=key.name,
                path=key.path,
                on_device=key.on_device,
                status=status_of(key.fate, base_ns, other_ns, other_busy_ns - base_busy_ns),
                base_ns=base_ns,
                other_ns=other_ns,
                base_busy_ns=base_busy_ns,
                other_busy_ns=other_busy_ns,
                base_calls=float(calls[0][row]),
                other_calls=float(calls[1][row]),
            )


def status_of(fate: Fate, base_ns: float, other_ns: float, longer_ns: float) -> Status:
    """What to call a change; see the top of this file.

    Args:
        fate: what became of the call.
        base_ns, other_ns: its exposed time.
        longer_ns: how much longer it takes, whatever runs beside it.
    """
    if fate != "matched":
        return fate
    change = other_ns - base_ns
    if abs(change) <= ALIKE_RATIO * base_ns:
        return "unchanged"
    longer = change > 0
    if (longer_ns if longer else -longer_ns) <= OVERLAP_RATIO * abs(change):
        return "less_overlapped" if longer else "more_overlapped"
    return "slower" if longer else "faster"
