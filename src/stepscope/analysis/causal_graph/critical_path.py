"""Critical path of steps: the chain of events that determines how long they take.

The path ends where the last step ends, and goes back from each point along the edge that
determines its time in the replay. The time from one point of the path to the next is measured, not
replayed, so that the parts of the path sum to the measured time of the steps. What exceeds the
weight of the edge is unexplained: the work waited for something that the trace does not show.

See also the critical path analysis of Holistic Trace Analysis, which needs a record of each event
that a stream waits for, and has no edges between host threads:
https://hta.readthedocs.io/en/latest/source/features/lightweight_critical_path_analysis.html
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.causal_graph import graph
from stepscope.analysis.causal_graph.device import CLOCK_TOLERANCE_NS

Int = intervals.Int


class CriticalPath(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Pieces of time, each of which begins where the one before it ends."""

    border_ns: Int
    """Measured times between the pieces, one more than pieces."""
    category: NDArray[np.int8]
    """`PathCategory` of each piece."""
    edge: Int
    """Edge of the graph of each piece, -1 for the time before the first one."""

    @property
    def duration_ns(self) -> Int:
        """Duration of each piece."""
        return np.diff(self.border_ns)

    def sum_by(self, keys: Int, count: int) -> Int:
        """Sum the time by a key of each piece; keys below 0 are left out.

        Args:
            keys: key of each piece.
            count: number of keys.
        """
        sums = np.zeros(count, dtype=np.int64)
        is_known = keys >= 0
        np.add.at(sums, keys[is_known], self.duration_ns[is_known])
        return sums


def find_critical_path(
    causal: graph.CausalGraph, path: Int, extent_ns: tuple[int, int]
) -> CriticalPath:
    """Cut the longest path into pieces, from the start of the first step on.

    Args:
        causal: the graph.
        path: edges of the path, in the order of time.
        extent_ns: start of the first step, and end of the last one.
    """
    edges = causal.edges
    start_ns, end_ns = extent_ns
    path = path[causal.time_ns[edges.target[path]] > start_ns]
    # Clocks contradict each other a little: a piece neither begins before the one before it has
    # ended, nor after the end of all.
    reach = np.concatenate([[start_ns], causal.time_ns[edges.target[path]]])
    reach = np.minimum(np.maximum.accumulate(reach), end_ns)
    # Until the first point of the path, which waits for nothing that was recorded.
    lead = end_ns
    if len(path):
        lead = int(np.clip(causal.time_ns[edges.source[path[0]]], start_ns, reach[1]))
    begin = np.concatenate([[start_ns, lead], reach[1:-1]])[: len(path) + 1]
    until = np.concatenate([[lead], reach[1:]])
    weight = np.concatenate([[0], edges.weight_ns[path]])
    category = np.concatenate([[graph.PathCategory.UNEXPLAINED], edges.category[path]])
    edge = np.concatenate([[-1], path])
    explained = np.minimum(until, begin + np.maximum(weight, 0))
    explained = np.where(until - explained <= CLOCK_TOLERANCE_NS, until, explained)
    explained[0] = begin[0]
    border = np.stack([explained, until], axis=1).reshape(-1)
    both = np.stack(
        [category, np.full(len(category), graph.PathCategory.UNEXPLAINED)], axis=1
    ).reshape(-1)
    border = np.concatenate([[start_ns], border])
    nonempty = np.flatnonzero(np.diff(border))
    return CriticalPath(
        border_ns=np.concatenate([border[:1], border[1:][nonempty]]),
        category=both[nonempty].astype(np.int8),
        edge=np.repeat(edge, 2)[nonempty],
    )
