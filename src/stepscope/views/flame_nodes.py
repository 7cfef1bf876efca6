"""Flame graphs of call trees, without nodes that are too small to be seen."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import msgspec

from stepscope.analysis import CallTree
from stepscope.views.names import shorten_name

MAX_NODES = 3_000
MIN_SHARE = 1 / 4_000
"""Share of the total; a smaller node is less than a pixel wide."""
MAX_DEPTH = 200
_ROOT = -1


class FlameNode(msgspec.Struct, frozen=True, kw_only=True):
    """Calls on one path of names."""

    name: str
    count: int
    total_ns: int
    self_ns: int
    children: list[FlameNode] = []


class FlameNodes(NamedTuple):
    """Nodes of a flame graph."""

    total_ns: int
    """Time of the outermost calls."""
    roots: list[FlameNode]
    left_out_ns: int
    """Self time of paths that are too small to be listed."""


def build_flame_nodes(tree: CallTree) -> FlameNodes:
    """Build the visible nodes of a tree, largest first."""
    children: dict[int, list[int]] = defaultdict(list)
    for node, parent in enumerate(tree.parent):
        children[parent].append(node)
    total_ns = sum(tree.total_ns[node] for node in children[_ROOT])
    visible = _find_visible(tree, children, total_ns)
    return FlameNodes(
        total_ns=total_ns,
        roots=_build_nodes(tree, children, _ROOT, visible),
        left_out_ns=sum(ns for node, ns in enumerate(tree.self_ns) if node not in visible),
    )


def _find_visible(tree: CallTree, children: dict[int, list[int]], total_ns: int) -> set[int]:
    """Find the largest nodes whose ancestors are all visible."""
    min_ns = total_ns * MIN_SHARE
    large = sorted((ns for ns in tree.total_ns if ns >= min_ns), reverse=True)
    min_ns = max([min_ns, *large[MAX_NODES - 1 : MAX_NODES]])
    visible: set[int] = set()
    level = children[_ROOT]
    for _ in range(MAX_DEPTH):
        level = [node for node in level if tree.total_ns[node] >= min_ns]
        visible.update(level)
        level = [child for node in level for child in children[node]]
    return visible


def _build_nodes(
    tree: CallTree, children: dict[int, list[int]], parent: int, visible: set[int]
) -> list[FlameNode]:
    nodes = [node for node in children[parent] if node in visible]
    return [
        FlameNode(
            name=shorten_name(tree.name[node]),
            count=tree.count[node],
            total_ns=tree.total_ns[node],
            self_ns=tree.self_ns[node],
            children=_build_nodes(tree, children, node, visible),
        )
        for node in sorted(nodes, key=lambda node: (-tree.total_ns[node], tree.name[node]))
    ]
