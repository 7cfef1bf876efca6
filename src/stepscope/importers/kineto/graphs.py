"""Kernels of replayed CUDA graphs and the operators that were captured.

A replay is one launch: its kernels belong to the call of cudaGraphLaunch, which no operator but
the replaying one encloses. While a graph is captured, every operator makes its launches as ever,
but nothing runs. The nodes of a graph are numbered in the order in which they were captured, so
where the capture lies in the same recording, the n-th node is the n-th launch.

No file says which capture became which graph. They belong together if the launches of the one are
of the kinds of the nodes of the other, one by one; several that are alike, if there are as many
captures as graphs, in their order. The quality record says how much work was named so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.importers.kineto.gather import Gathered
from stepscope.importers.kineto.joins import CALL_KINDS, DEVICE_KINDS, LAUNCHES, Counts
from stepscope.importers.kineto.kinds import Kind

Int = NDArray[np.int64]

_BEGIN = ("cudaStreamBeginCapture", "hipStreamBeginCapture", "cuStreamBeginCapture")
_END = ("cudaStreamEndCapture", "hipStreamEndCapture", "cuStreamEndCapture")


@dataclass(frozen=True, slots=True)
class Captures:
    """Launches that were captured, capture by capture in the order of their calls."""

    launches: list[Int]
    """Ids of calls."""
    kinds: list[tuple[Kind, ...]]
    """What each launch puts on the device."""

    @property
    def ids(self) -> Int:
        """Of all launches."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self.launches])


def name_captured(gathered: Gathered, captures: Captures, counts: Counts) -> None:
    """Gives work of replayed graphs the column `captured`: the launch that was captured for its
    node; -1 for all other work, and where no capture fits."""
    if not captures.launches:
        return
    graphs = _nodes(gathered)
    launch_of: dict[tuple[int, int], int] = {}
    for form in set(captures.kinds):
        alike = [n for n, kinds in enumerate(captures.kinds) if kinds == form]
        fitting = [
            graph for graph, nodes in sorted(graphs.items()) if tuple(nodes.values()) == form
        ]
        if form and len(alike) == len(fitting):
            for place, graph in zip(alike, fitting, strict=True):
                nodes = zip(graphs[graph], captures.launches[place].tolist(), strict=True)
                launch_of.update({(graph, node): launch for node, launch in nodes})
    if not launch_of:
        return
    for kind in DEVICE_KINDS:
        columns = gathered.columns(kind, "graph", "graph_node")
        pairs = zip(columns["graph"].tolist(), columns["graph_node"].tolist(), strict=True)
        captured = np.array([launch_of.get(pair, -1) for pair in pairs], dtype=np.int64)
        gathered.extend(kind, "captured", captured)
        counts.captured += int((captured >= 0).sum())


def _nodes(gathered: Gathered) -> dict[int, dict[int, Kind]]:
    """By graph, what its nodes are, in their order."""
    found: dict[int, dict[int, Kind]] = {}
    for kind in DEVICE_KINDS:
        work = gathered.select(kind, ("graph", "graph_node"), "graph")
        chosen = work["graph"] >= 0
        pairs = np.unique(
            np.stack([work["graph"][chosen], work["graph_node"][chosen]], axis=1), axis=0
        )
        for graph, node in pairs.tolist():
            found.setdefault(graph, {})[node] = kind
    return {graph: dict(sorted(nodes.items())) for graph, nodes in found.items()}


def find_captures(gathered: Gathered) -> Captures:
    """The captures that a recording holds."""
    found = Captures([], [])
    begins, ends, launches = map(gathered.names_with, (_BEGIN, _END, LAUNCHES))
    if not begins or not ends:
        return found
    copies, sets = gathered.names_with(("Memcpy",)), gathered.names_with(("Memset",))
    parts = [gathered.columns(kind, "id", "start", "track", "name") for kind in CALL_KINDS]
    calls = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    marks = np.flatnonzero(np.isin(calls["name"], begins + ends))
    for begin in marks[np.isin(calls["name"][marks], begins)].tolist():
        same = calls["track"] == calls["track"][begin]
        later = marks[(calls["start"][marks] > calls["start"][begin]) & same[marks]]
        later = later[np.isin(calls["name"][later], ends)]
        if not len(later):
            continue
        end = calls["start"][later].min()
        inside = same & (calls["start"] > calls["start"][begin]) & (calls["start"] < end)
        chosen = np.flatnonzero(inside & np.isin(calls["name"], launches))
        chosen = chosen[np.argsort(calls["start"][chosen], kind="stable")]
        found.launches.append(calls["id"][chosen])
        found.kinds.append(
            tuple(
                Kind.MEMCPY if name in copies else Kind.MEMSET if name in sets else Kind.KERNEL
                for name in calls["name"][chosen].tolist()
            )
        )
    return found
