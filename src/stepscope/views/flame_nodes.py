"""Trees of calls as flame graphs: what is too small to be seen is left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from stepscope.views.names import shown

MOST_NODES = 3_000
SMALLEST_RATIO = 1 / 4_000
"""Of the whole; a node of less is less than a pixel wide."""
DEEPEST = 200
_ROOT = -1


class FlameNode(msgspec.Struct, frozen=True, kw_only=True):
    """Calls with one path of names."""

    name: str
    count: int
    total_ns: int
    self_ns: int
    children: list[FlameNode] = []


class Tree(Protocol):
    """Calls by path of names. Node `i` is inside node `parent[i]`, -1 for none."""

    @property
    def parent(self) -> Sequence[int]: ...
    @property
    def name(self) -> Sequence[str]: ...
    @property
    def count(self) -> Sequence[int]: ...
    @property
    def total_ns(self) -> Sequence[int]: ...
    @property
    def self_ns(self) -> Sequence[int]: ...


class FlameNodes(NamedTuple):
    """What there is to draw."""

    total_ns: int
    """Of the outermost calls."""
    roots: list[FlameNode]
    left_out_ns: int
    """Self time of paths too small to be listed."""


def flame_nodes(tree: Tree) -> FlameNodes:
    """The nodes of a tree that can be seen, largest first."""
    children: dict[int, list[int]] = defaultdict(list)
    for node, parent in enumerate(tree.parent):
        children[parent].append(node)
    total = sum(tree.total_ns[node] for node in children[_ROOT])
    kept = _largest(tree, children, total)
    return FlameNodes(
        total_ns=total,
        roots=_nodes(tree, children, _ROOT, kept),
        left_out_ns=sum(ns for node, ns in enumerate(tree.self_ns) if node not in kept),
    )


def _largest(tree: Tree, children: dict[int, list[int]], total: int) -> set[int]:
    """The largest nodes; one is shown only below one that is."""
    smallest = total * SMALLEST_RATIO
    large = sorted((ns for ns in tree.total_ns if ns >= smallest), reverse=True)
    smallest = max([smallest, *large[MOST_NODES - 1 : MOST_NODES]])
    kept: set[int] = set()
    level = children[_ROOT]
    for _ in range(DEEPEST):
        level = [node for node in level if tree.total_ns[node] >= smallest]
        kept.update(level)
        level = [below for node in level for below in children[node]]
    return kept


def _nodes(
    tree: Tree, children: dict[int, list[int]], parent: int, kept: set[int]
) -> list[FlameNode]:
    below = [node for node in children[parent] if node in kept]
    return [
        FlameNode(
            name=shown(tree.name[node]),
            count=tree.count[node],
            total_ns=tree.total_ns[node],
            self_ns=tree.self_ns[node],
            children=_nodes(tree, children, node, kept),
        )
        for node in sorted(below, key=lambda node: (-tree.total_ns[node], tree.name[node]))
    ]
