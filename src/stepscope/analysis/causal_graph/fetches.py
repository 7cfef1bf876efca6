"""Fetches of a causal graph: batches that become ready one after another.

    workers     the thread of the steps waits for what they prepare meanwhile: a fetch ends at the
                earliest when the time between two batches has passed since the one before it
    no workers  the thread prepares the batch itself; workers would need the same time for it

What the thread does between two fetches is not on the critical path while it waits for workers,
and more workers save at most what the rest of the step leaves.
"""

from __future__ import annotations

import msgspec
import numpy as np

from stepscope import intervals
from stepscope.analysis.causal_graph import graph
from stepscope.analysis.causal_graph.host import HostThreads

Int = intervals.Int
HANDLING_NS = 200_000
"""Time to get a batch that is ready, where each fetch has waited."""
HANDLING_PARTS = 10
"""The shortest fetch has waited if it is longer than this part of the time between two fetches.
Otherwise it is the time to get a batch that is ready …"""
WAIT_PARTS = 20
"""… and a fetch has waited if it is longer by this part of the time since the one before it."""


class Fetches(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Fetches of batches by the thread of the steps; one entry per fetch."""

    start: Int
    end: Int
    has_workers: bool
    """True if workers prepare the batches."""


def add_fetches(threads: HostThreads, fetches: Fetches, main_track: int) -> HostThreads:
    """Let each batch be ready a time after the one before it.

    Args:
        threads: the threads.
        fetches: fetches by the thread of the steps.
        main_track: this thread.
    """
    track = np.full(len(fetches.start), main_track)
    first, last = threads.find(track, fetches.start), threads.find(track, fetches.end)
    fits = (first >= 0) & (last > first) & (threads.time[first] == fetches.start)
    fits &= threads.time[last] == fetches.end
    first, last = first[fits], last[fits]
    source = np.concatenate([np.flatnonzero(threads.track == main_track)[:1], last])[: len(last)]
    duration, period = (threads.time[last] - threads.time[part] for part in (first, source))
    rows = np.flatnonzero(last > source)
    begin, stop = threads.edge_after[first], threads.edge_after[last - 1] + 1
    weight, category = threads.edges.weight_ns.copy(), threads.edges.category.copy()
    if fetches.has_workers and len(rows):
        handling_ns = int(duration.min())
        if handling_ns > np.median(period) / HANDLING_PARTS:
            handling_ns = HANDLING_NS
        waited_ns = np.maximum(period // WAIT_PARTS, HANDLING_NS)
        rows = rows[(duration > handling_ns + waited_ns)[rows]]
        for piece, next_piece in zip(begin.tolist(), stop.tolist(), strict=True):
            category[piece:next_piece] = graph.PathCategory.PYTHON
        for row in rows.tolist():
            weight[begin[row] : stop[row]] = 0
            weight[begin[row]] = handling_ns
    ready = graph.make_edges(
        source[rows],
        last[rows],
        (period if fetches.has_workers else duration)[rows],
        graph.EdgeKind.HANDOVER,
        graph.PathCategory.INPUT,
        threads.edges.activity[begin[rows]],
    )
    chains = msgspec.structs.replace(threads.edges, weight_ns=weight, category=category)
    return msgspec.structs.replace(threads, edges=graph.join_edges([chains, ready]))
