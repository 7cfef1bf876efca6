"""Kernels of replayed CUDA graphs and the operators that were captured.

A replay is one launch: its kernels belong to the call of cudaGraphLaunch, which no operator but
the replaying one encloses. While a graph is captured, every operator makes its launches as usual,
but nothing runs. The nodes of a graph are numbered in the order in which they were captured, so
where the capture is in the same trace, the n-th node is the n-th launch.

No file says which capture became which graph. They match if the launches of the one are of the
kinds of the nodes of the other, one by one; several that are alike match in their order, if there
are as many captures as graphs. The quality record counts the work that was matched so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.importers.kineto.gather import Gathered
from stepscope.importers.kineto.joins import Counts
from stepscope.importers.kineto.kinds import CALL_KINDS, KERNEL, MEMCPY, MEMSET, WORK_KINDS, Kind
from stepscope.schema import CAPTURE_BEGIN, CAPTURE_END, COPY_LAUNCH, SET_LAUNCH, WORK_LAUNCHES

Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Captures:
    """Captured launches, capture by capture in the order of their calls."""

    launches: list[Int]
    """Ids of calls."""
    kinds: list[tuple[Kind, ...]]
    """Kind of work that each launch puts on the device."""

    @property
    def ids(self) -> Int:
        """Ids of all launches."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self.launches])


def name_captured(gathered: Gathered, captures: Captures, counts: Counts) -> None:
    """Give work of replayed graphs the column `captured`: the captured launch of its node.

    It is -1 for all other work, and where no capture fits.
    """
    if not captures.launches:
        return
    graphs = _graph_nodes(gathered)
    launch_of: dict[tuple[int, int], int] = {}
    for form in set(captures.kinds):
        same_form = [index for index, kinds in enumerate(captures.kinds) if kinds == form]
        candidates = [
            graph for graph, nodes in sorted(graphs.items()) if tuple(nodes.values()) == form
        ]
        if form and len(same_form) == len(candidates):
            for index, graph in zip(same_form, candidates, strict=True):
                nodes = zip(graphs[graph], captures.launches[index].tolist(), strict=True)
                launch_of.update({(graph, node): launch for node, launch in nodes})
    if not launch_of:
        return
    for kind in WORK_KINDS:
        columns = gathered.columns(kind, "graph", "graph_node")
        pairs = zip(columns["graph"].tolist(), columns["graph_node"].tolist(), strict=True)
        captured = np.array([launch_of.get(pair, -1) for pair in pairs], dtype=np.int64)
        gathered.extend(kind, "captured", captured)
        counts.captured += int((captured >= 0).sum())


def _graph_nodes(gathered: Gathered) -> dict[int, dict[int, Kind]]:
    """Return the kinds of the nodes of each graph, in their order."""
    graphs: dict[int, dict[int, Kind]] = {}
    for kind in WORK_KINDS:
        work = gathered.select(kind, ("graph", "graph_node"), "graph")
        rows = work["graph"] >= 0
        pairs = np.unique(np.stack([work["graph"][rows], work["graph_node"][rows]], axis=1), axis=0)
        for graph, node in pairs.tolist():
            graphs.setdefault(graph, {})[node] = kind
    return {graph: dict(sorted(nodes.items())) for graph, nodes in graphs.items()}


def find_captures(gathered: Gathered) -> Captures:
    """Find the captures in a trace."""
    captures = Captures([], [])
    begins, ends, launches = map(
        gathered.names_with, ((CAPTURE_BEGIN,), (CAPTURE_END,), WORK_LAUNCHES)
    )
    if not begins or not ends:
        return captures
    copies, sets = gathered.names_with((COPY_LAUNCH,)), gathered.names_with((SET_LAUNCH,))
    parts = [gathered.columns(kind, "id", "start", "track", "name") for kind in CALL_KINDS]
    calls = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    marks = np.flatnonzero(np.isin(calls["name"], begins + ends))
    for begin in marks[np.isin(calls["name"][marks], begins)].tolist():
        same_track = calls["track"] == calls["track"][begin]
        later = marks[(calls["start"][marks] > calls["start"][begin]) & same_track[marks]]
        later = later[np.isin(calls["name"][later], ends)]
        if not len(later):
            continue
        end = calls["start"][later].min()
        inside = same_track & (calls["start"] > calls["start"][begin]) & (calls["start"] < end)
        rows = np.flatnonzero(inside & np.isin(calls["name"], launches))
        rows = rows[np.argsort(calls["start"][rows], kind="stable")]
        captures.launches.append(calls["id"][rows])
        captures.kinds.append(
            tuple(
                MEMCPY if name in copies else MEMSET if name in sets else KERNEL
                for name in calls["name"][rows].tolist()
            )
        )
    return captures
