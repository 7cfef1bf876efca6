"""Alignment of two trees of calls.

From the roots down, the calls of one caller in the base run are aligned with those of its
counterpart in the other run:

1. A longest common subsequence of the names is matched (below).
2. Remaining calls with one name are matched in their order: they were reordered.
3. Calls that still remain were added or removed, with all calls inside them.
4. The calls inside of matched calls are aligned in the same way.

With n and m calls below one caller this takes O(n m / 64) time, after the common start and end of
both lists; over all callers, for two steps of 5,000 operators in one flat list, about ten
milliseconds. A call that moved to another caller was removed there and added here.

Rows aggregate calls with one path of names: twelve layers of a model are one row. A row
contributes the change of its exposed time to the change of the step, so rows sum to the whole. The
status of a row follows from it:

    added, removed     it is in only one of the runs
    reordered          it moved among the calls of its caller
    unchanged          its exposed time changed by at most 1%
    less_overlapped    it is exposed longer, and at most half of that because it takes longer
    more_overlapped    it is exposed shorter, and at most half of that because it takes shorter
    slower, faster     any other

Longest common subsequence of two sequences. The common start and end are matched first. For the
rest, each row of the table of lengths L[i][j] (of the first i elements of one and the first j of
the other sequence) is stored as one bit per j: 1 where L[i][j] = L[i][j-1], 0 where it is one more.
With rows as integers, a row follows from the one before in a few operations on whole machine words
(the bit-parallel formulation of Hyyrö, "Bit-parallel LCS-length computation revisited", 2004):

    next = (row + (row & matches)) | (row & ~matches)

where `matches` has the bits of the elements that equal the row's element. So n against m elements
take O(n m / w) time and n m / 8 bytes; 5,000 against 5,000 about ten milliseconds and 3 MB.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
import numpy as np

from stepscope import intervals
from stepscope.comparison.mean_step import MeanTree

Match = Literal["matched", "reordered", "added", "removed"]
ChangeStatus = Literal[
    "added",
    "removed",
    "reordered",
    "less_overlapped",
    "more_overlapped",
    "slower",
    "faster",
    "unchanged",
]
UNCHANGED_RATIO = 0.01
"""A call whose exposed time changes by at most this share of itself is unchanged."""
OVERLAP_RATIO = 0.5
"""The overlap changed if the change of the duration explains at most this share of the change of
the exposed time."""


class NodePair(msgspec.Struct, frozen=True):
    """Matched nodes of two trees, -1 for none."""

    base_node: int
    other_node: int
    match: Match

    @property
    def is_two_sided(self) -> bool:
        """True where both runs have the call."""
        return self.match in {"matched", "reordered"}


class AlignedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one path in one part of the step; nanoseconds of the mean step."""

    part: str
    name: str
    path: tuple[str, ...]
    """Names of the callers, outermost first."""
    on_device: bool
    status: ChangeStatus
    base_ns: float
    """Exposed time, as `other_ns`."""
    other_ns: float
    base_busy_ns: float
    other_busy_ns: float
    base_calls: float
    other_calls: float


def align_trees(base_tree: MeanTree, other_tree: MeanTree) -> Iterator[NodePair]:
    """Align two trees; every node of both is in exactly one pair.

    An added or removed node and each node inside it are pairs of their own.
    """
    codes: dict[str, int] = {}
    base_names, other_names = (
        [codes.setdefault(name, len(codes)) for name in tree.name]
        for tree in (base_tree, other_tree)
    )
    pending = [(base_tree.children[-1], other_tree.children[-1])]
    while pending:
        base_nodes, other_nodes = pending.pop()
        indices = find_common_subsequence(
            [base_names[node] for node in base_nodes], [other_names[node] for node in other_nodes]
        )
        pairs = [NodePair(base_nodes[i], other_nodes[j], "matched") for i, j in indices]
        removed = _exclude(base_nodes, {pair.base_node for pair in pairs})
        added = _exclude(other_nodes, {pair.other_node for pair in pairs})
        pairs += _match_reordered(removed, added, base_names, other_names)
        for pair in pairs:
            yield pair
            children = base_tree.children[pair.base_node], other_tree.children[pair.other_node]
            if children[0] or children[1]:
                pending.append(children)
        yield from (NodePair(node, -1, "removed") for node in _walk(base_tree, removed))
        yield from (NodePair(-1, node, "added") for node in _walk(other_tree, added))


def _exclude(nodes: list[int], used: set[int]) -> list[int]:
    return [node for node in nodes if node not in used]


def _match_reordered(
    removed: list[int], added: list[int], base_names: list[int], other_names: list[int]
) -> list[NodePair]:
    """Match remaining nodes by name, in order, and remove them from both lists."""
    by_name: defaultdict[int, list[int]] = defaultdict(list)
    for node in reversed(added):
        by_name[other_names[node]].append(node)
    pairs = [
        NodePair(node, by_name[base_names[node]].pop(), "reordered")
        for node in removed
        if by_name[base_names[node]]
    ]
    removed[:] = _exclude(removed, {pair.base_node for pair in pairs})
    added[:] = _exclude(added, {pair.other_node for pair in pairs})
    return pairs


def _walk(tree: MeanTree, nodes: list[int]) -> Iterator[int]:
    """Walk nodes and all calls inside them, each before its calls."""
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(tree.children[node])


class _RowKey(msgspec.Struct, frozen=True):
    """Common properties of the calls of one row."""

    path: tuple[str, ...]
    name: str
    on_device: bool
    match: Match


def align_rows(base_tree: MeanTree, other_tree: MeanTree) -> list[AlignedRow]:
    """Align two trees and aggregate their calls by path and part of the step; the times of the rows
    sum to those of the trees."""
    trees = base_tree, other_tree
    keys: dict[_RowKey, int] = {}
    row_of = tuple(np.full(len(tree), -1, dtype=np.int64) for tree in trees)
    paths: list[dict[int, tuple[str, ...]]] = [{-1: ()}, {-1: ()}]
    outermost: list[dict[int, int]] = [{}, {}]
    nested: tuple[set[int], set[int]] = set(), set()
    for pair in align_trees(base_tree, other_tree):
        nodes = (pair.base_node, pair.other_node)
        side = 0 if pair.base_node >= 0 else 1
        tree, node = trees[side], nodes[side]
        parent = tree.parent[node]
        root = None if pair.is_two_sided else outermost[side].get(parent)
        if root is not None:  # it counts with the added or removed node that contains it
            outermost[side][node] = root
            row_of[side][node] = row_of[side][root]
            nested[side].add(node)
            continue
        key = _RowKey(paths[side][parent], tree.name[node], bool(tree.on_device[node]), pair.match)
        row = keys.setdefault(key, len(keys))
        path = (*key.path, key.name)
        for tree_index, tree_node in enumerate(nodes):
            if tree_node >= 0:
                row_of[tree_index][tree_node] = row
                paths[tree_index][tree_node] = path
        if not pair.is_two_sided:
            outermost[side][node] = node
    return list(_aggregate_rows(list(keys), trees, (row_of[0], row_of[1]), nested))


def _aggregate_rows(
    keys: list[_RowKey],
    trees: tuple[MeanTree, MeanTree],
    row_of: tuple[intervals.Int, intervals.Int],
    nested: tuple[set[int], set[int]],
) -> Iterator[AlignedRow]:
    """Sum times and calls by row.

    Args:
        row_of: row of each node, by tree.
        nested: nodes inside added or removed nodes, by tree; their calls do not count.
    """
    parts = list(dict.fromkeys([*trees[0].exposed, *trees[1].exposed]))
    calls = []
    for tree, rows, nested_nodes in zip(trees, row_of, nested, strict=True):
        weights = tree.calls.copy()
        weights[list(nested_nodes)] = 0
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
            base_ns, base_busy_ns, other_ns, other_busy_ns = (float(total[row]) for total in sums)
            yield AlignedRow(
                part=part,
                name=key.name,
                path=key.path,
                on_device=key.on_device,
                status=classify_change(key.match, base_ns, other_ns, other_busy_ns - base_busy_ns),
                base_ns=base_ns,
                other_ns=other_ns,
                base_busy_ns=base_busy_ns,
                other_busy_ns=other_busy_ns,
                base_calls=float(calls[0][row]),
                other_calls=float(calls[1][row]),
            )


def classify_change(
    match: Match, base_ns: float, other_ns: float, busy_change_ns: float
) -> ChangeStatus:
    """Classify a change, see the top of this file.

    Args:
        match: result of the alignment.
        base_ns, other_ns: exposed time of the call.
        busy_change_ns: change of its duration, whatever runs at the same time.
    """
    if match != "matched":
        return match
    change_ns = other_ns - base_ns
    if abs(change_ns) <= UNCHANGED_RATIO * base_ns:
        return "unchanged"
    is_longer = change_ns > 0
    explained_ns = busy_change_ns if is_longer else -busy_change_ns
    if explained_ns <= OVERLAP_RATIO * abs(change_ns):
        return "less_overlapped" if is_longer else "more_overlapped"
    return "slower" if is_longer else "faster"


MAX_CELLS = 2_000_000_000
"""Cells of the largest table (250 MB). Beyond it, the halves of both sequences are aligned
separately, and the result may be shorter than the longest common subsequence."""

Pairs = list[tuple[int, int]]


def find_common_subsequence(base_items: Sequence[int], other_items: Sequence[int]) -> Pairs:
    """Find a longest common subsequence; returns pairs of indices, ascending.

    >>> find_common_subsequence([1, 2, 3, 4], [2, 9, 4])
    [(1, 0), (3, 2)]
    """
    start, max_length = 0, min(len(base_items), len(other_items))
    while start < max_length and base_items[start] == other_items[start]:
        start += 1
    tail = 0
    while tail < max_length - start and base_items[-1 - tail] == other_items[-1 - tail]:
        tail += 1
    base_end, other_end = len(base_items) - tail, len(other_items) - tail
    middle = _align_middle(base_items[start:base_end], other_items[start:other_end])
    return [
        *((index, index) for index in range(start)),
        *((start + i, start + j) for i, j in middle),
        *((base_end + index, other_end + index) for index in range(tail)),
    ]


def _align_middle(base_items: Sequence[int], other_items: Sequence[int]) -> Pairs:
    if not base_items or not other_items:
        return []
    if len(base_items) * len(other_items) > MAX_CELLS:
        base_half, other_half = len(base_items) // 2, len(other_items) // 2
        second = find_common_subsequence(base_items[base_half:], other_items[other_half:])
        return [
            *find_common_subsequence(base_items[:base_half], other_items[:other_half]),
            *((base_half + i, other_half + j) for i, j in second),
        ]
    return _trace_back(_compute_rows(base_items, other_items), len(other_items))


def _compute_rows(base_items: Sequence[int], other_items: Sequence[int]) -> list[int]:
    """Compute the rows of the table after the first 0, 1, … elements."""
    positions: dict[int, int] = {}
    for index, element in enumerate(other_items):
        positions[element] = positions.get(element, 0) | 1 << index
    mask = (1 << len(other_items)) - 1
    rows = [mask]
    for element in base_items:
        row, matches = rows[-1], positions.get(element, 0)
        rows.append(((row + (row & matches)) | (row & ~matches)) & mask)
    return rows


def _trace_back(rows: Sequence[int], width: int) -> Pairs:
    """Trace the matches from the last corner of the table to its first.

    A column that adds nothing to a row is skipped. Where it adds to this row and to the row before,
    both rows have the same length there, so the row is skipped; where it adds to this row only, the
    two elements match.
    """
    pairs = []
    i, j = len(rows) - 1, width
    while i and j:
        if rows[i] >> (j - 1) & 1:
            j -= 1
        elif rows[i - 1] >> (j - 1) & 1:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        else:
            i -= 1
    return pairs[::-1]
