"""`timeline-flame`: a range of some tracks by path of names."""

from __future__ import annotations

from collections import defaultdict

from stepscope.analysis.timeline_nesting import ROOT, CallTree, cut_events
from stepscope.diagnosis import Signals
from stepscope.diagnosis.timeline_window import chunks
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.asked import nesting_lines, range_of, tracks_of
from stepscope.views.timeline.names import shown
from stepscope.views.timeline.payload import FlameNode, FlameView
from stepscope.views.timeline.summary import MOST_TRACKS

MOST_NODES = 3_000
SMALLEST_RATIO = 1 / 4_000
"""Of the whole; a node of less is less than a pixel wide."""
DEEPEST = 200


def timeline_flame(signals: Signals, options: ViewOptions) -> FlameView:
    """A range of some tracks by path of names, largest first."""
    extent = range_of(signals.clock, options)
    tracks = tracks_of(signals, options, sliced=True)[:MOST_TRACKS]
    nests = nesting_lines(signals, tracks)
    tree = CallTree()
    for begin, end, slices in chunks(signals, tracks, extent):
        tree.add(cut_events(slices, (begin, end), first=begin == extent[0], nests=nests))
    children: dict[int, list[int]] = defaultdict(list)
    for node, parent in enumerate(tree.parent):
        children[parent].append(node)
    total = sum(tree.total_ns[node] for node in children[ROOT])
    kept = _largest(tree, children, total)
    return FlameView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        total_ns=total,
        roots=_nodes(tree, children, ROOT, kept),
        left_out_ns=sum(ns for node, ns in enumerate(tree.self_ns) if node not in kept),
    )


def _largest(tree: CallTree, children: dict[int, list[int]], total: int) -> set[int]:
    """The largest nodes; one is shown only below one that is."""
    smallest = total * SMALLEST_RATIO
    large = sorted((ns for ns in tree.total_ns if ns >= smallest), reverse=True)
    smallest = max([smallest, *large[MOST_NODES - 1 : MOST_NODES]])
    kept: set[int] = set()
    level = children[ROOT]
    for _ in range(DEEPEST):
        level = [node for node in level if tree.total_ns[node] >= smallest]
        kept.update(level)
        level = [below for node in level for below in children[node]]
    return kept


def _nodes(
    tree: CallTree, children: dict[int, list[int]], parent: int, kept: set[int]
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
