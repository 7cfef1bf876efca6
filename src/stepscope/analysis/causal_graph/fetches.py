"""Fetches of a causal graph: batches that become ready one after another.

    workers     the thread of the steps waits for what they prepare meanwhile: a fetch ends at the
                earliest when the time between two batches has passed since the one before it
    no workers  the thread prepares the batch itself; workers would need the same time for it

What the thread does between two fetches is not on the critical path while it waits for workers,
and more workers save at most what the rest of the step leaves.

Where the fetches of each worker are recorded, they take the place of the time between two batches:

    fetch of a worker            starts after its fetch before, and after the batch of
                                 prefetch_factor * num_workers before it was received: the loader
                                 asks for no more batches ahead
    k-th batch of an iteration   made by worker k modulo num_workers, ready when its fetch has ended
    first batches                asked for when the iteration starts
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from stepscope import intervals
from stepscope.analysis.arrays.columns import find_values
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
MAX_REVERSED_NS = 1_000_000
"""A batch that is received earlier before the end of its fetch contradicts the order of batches."""
MAX_REVERSED_RATIO = 0.02
"""Share of batches that may contradict it."""


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
    first, last, _ = _find_points(threads, fetches.start, fetches.end, main_track)
    source = np.concatenate([np.flatnonzero(threads.track == main_track)[:1], last])[: len(last)]
    duration, period = (threads.time[last] - threads.time[part] for part in (first, source))
    rows = np.flatnonzero(last > source)
    begin = threads.edge_after[first]
    if fetches.has_workers and len(rows):
        handling_ns = int(duration.min())
        if handling_ns > np.median(period) / HANDLING_PARTS:
            handling_ns = HANDLING_NS
        waited_ns = np.maximum(period // WAIT_PARTS, HANDLING_NS)
        rows = rows[(duration > handling_ns + waited_ns)[rows]]
        threads = _wait_no_longer(
            threads,
            (first, last),
            rows,
            np.full(len(first), handling_ns, dtype=np.int64),
            graph.PathCategory.PYTHON,
        )
    ready = graph.make_edges(
        source[rows],
        last[rows],
        (period if fetches.has_workers else duration)[rows],
        graph.EdgeKind.HANDOVER,
        graph.PathCategory.INPUT,
        threads.edges.activity[begin[rows]],
    )
    return msgspec.structs.replace(threads, edges=graph.join_edges([threads.edges, ready]))


class _Points(NamedTuple):
    first: Int
    last: Int
    rows: Int
    """Rows of the ranges with these points."""


def _find_points(threads: HostThreads, start: Int, end: Int, main_track: int) -> _Points:
    """Find the points at which ranges of a thread start and end; without those of no such range."""
    track = np.full(len(start), main_track)
    first, last = threads.find(track, start), threads.find(track, end)
    fits = (first >= 0) & (last > first) & (threads.time[first] == start)
    rows = np.flatnonzero(fits & (threads.time[last] == end))
    return _Points(first[rows], last[rows], rows)


def _wait_no_longer(
    threads: HostThreads,
    points: tuple[Int, Int],
    late: Int,
    handling_ns: Int,
    handling: graph.PathCategory,
) -> HostThreads:
    """Let waits for batches be the thread's own time, of which late batches need no more than the
    time to get one that is ready.

    Args:
        threads: the threads.
        points: points at the start and the end of the waits.
        late: rows of those in which the batch was late.
        handling_ns: time to get a batch that is ready, by wait.
        handling: its category.
    """
    first, last = points
    begin, stop = threads.edge_after[first], threads.edge_after[last - 1] + 1
    weight, category = threads.edges.weight_ns.copy(), threads.edges.category.copy()
    for piece, next_piece in zip(begin.tolist(), stop.tolist(), strict=True):
        category[piece:next_piece] = handling
    for row in late.tolist():
        weight[begin[row] : stop[row]] = 0
        weight[begin[row]] = handling_ns[row]
    edges = msgspec.structs.replace(threads.edges, weight_ns=weight, category=category)
    return msgspec.structs.replace(threads, edges=edges)


class LoaderBatches(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Batches of a loader: their fetches by workers, or their receipt; one entry per batch."""

    start: Int
    end: Int
    iteration: Int
    """Number of the iteration over the loader."""
    number: Int
    """Number of the batch in its iteration, from 0."""

    def take(self, rows: Int) -> LoaderBatches:
        """Select batches by an index array."""
        return LoaderBatches(**{name: getattr(self, name)[rows] for name in self.__struct_fields__})

    def find(self, iteration: Int, number: Int) -> Int:
        """Find the rows of batches, -1 for none."""
        stride = 1 + max(int(part.max(initial=0)) for part in (self.number, number))
        batches, requested = self.iteration * stride + self.number, iteration * stride + number
        return np.where(number >= 0, find_values(batches, requested), -1)


class LoaderWork(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Work of the workers of a loader, and what the thread of the steps receives of it."""

    fetches: LoaderBatches
    worker: Int
    """Worker of each fetch."""
    activity: Int
    """Number of each fetch in the graph."""
    waits: LoaderBatches
    """Waits of the thread of the steps for batches."""
    iteration_start: Int
    """Start of each iteration."""
    ahead_count: Int
    """Batches that the loader asks for ahead in each."""


class WorkerPoints(NamedTuple):
    """Threads with the batches of workers."""

    threads: HostThreads
    time_ns: Int
    """Times of the points of the fetches, which come after those of the threads."""


def add_worker_fetches(
    threads: HostThreads, loader: LoaderWork, main_track: int
) -> WorkerPoints | None:
    """Let workers fetch batches, and the thread of the steps wait for them.

    Args:
        threads: the threads.
        loader: the fetches and the waits.
        main_track: the thread of the steps.

    Returns:
        None if fetches and waits contradict each other.
    """
    fetches, waits = loader.fetches, loader.waits
    first, last, rows = _find_points(threads, waits.start, waits.end, main_track)
    waits = waits.take(rows)
    fetch = fetches.find(waits.iteration, waits.number)
    received = np.flatnonzero(fetch >= 0)
    ready_ns = fetches.end[fetch[received]]
    handover_ns = waits.end[received] - ready_ns
    is_late = ready_ns > waits.start[received]
    sources = _find_fetch_sources(threads, loader, waits, last, main_track)
    if sources is None or not len(received) or _is_contradictory(handover_ns):
        return None
    duration = waits.end - waits.start
    at_hand = duration[received[~is_late]]
    handling_ns = np.minimum(int(np.median(at_hand)) if len(at_hand) else HANDLING_NS, duration)
    latency_ns = int(np.median(handover_ns[is_late])) if is_late.any() else HANDLING_NS
    threads = _wait_no_longer(
        threads, (first, last), received[is_late], handling_ns, graph.PathCategory.BATCH_HANDOVER
    )
    start_point = len(threads.time) + np.arange(len(fetches.start), dtype=np.int64)
    end_point = start_point + len(start_point)
    work = graph.make_edges(
        start_point,
        end_point,
        fetches.end - fetches.start,
        graph.EdgeKind.WORK,
        graph.PathCategory.INPUT,
        loader.activity,
    )
    handover = graph.make_edges(
        end_point[fetch[received]],
        last[received],
        np.where(is_late, handover_ns, np.minimum(handover_ns, latency_ns)),
        graph.EdgeKind.HANDOVER,
        graph.PathCategory.BATCH_HANDOVER,
        threads.edges.activity[threads.edge_after[first[received]]],
    )
    edges = graph.join_edges([threads.edges, work, handover, *sources])
    return WorkerPoints(
        msgspec.structs.replace(threads, edges=edges), np.concatenate([fetches.start, fetches.end])
    )


def _is_contradictory(delay_ns: Int) -> bool:
    """Return True if too many events come before what they wait for."""
    return len(delay_ns) > 0 and bool((delay_ns < -MAX_REVERSED_NS).mean() > MAX_REVERSED_RATIO)


def _find_fetch_sources(
    threads: HostThreads, loader: LoaderWork, waits: LoaderBatches, received: Int, main_track: int
) -> list[graph.CausalEdges] | None:
    """Make the edges to the starts of fetches, all with the delay after the last of their sources.

    Args:
        waits: waits that are in the graph.
        received: point at the end of each.

    Returns:
        None if fetches and waits contradict each other.
    """
    fetches, point_count, count = loader.fetches, len(threads.time), len(loader.worker)
    before = np.full(count, -1, dtype=np.int64)
    order = np.lexsort((fetches.start, loader.worker))
    follows = np.flatnonzero(np.diff(loader.worker[order], prepend=-1) == 0)
    before[order[follows]] = order[follows - 1]
    ahead_count = loader.ahead_count[fetches.iteration]
    wait = waits.find(fetches.iteration, fetches.number - ahead_count)
    begin_ns = loader.iteration_start[fetches.iteration]
    begin = threads.find(np.full(count, main_track), begin_ns)
    is_first = (begin >= 0) & (fetches.number < ahead_count)
    is_first &= threads.time[begin] == begin_ns
    points = (
        np.where(before >= 0, point_count + count + before, -1),
        np.append(received, -1)[wait],
        np.where(is_first, begin, -1),
    )
    time = np.concatenate([threads.time, fetches.start, fetches.end, [np.iinfo(np.int64).min]])
    latest = np.maximum.reduce([time[part] for part in points])
    delay_ns = fetches.start - latest
    # Where workers start, that alone takes the time.
    ready_ns = np.where(is_first & (latest == begin_ns), np.minimum(delay_ns, 0), delay_ns)
    # The loader asks for the next batch while the thread receives one.
    after_wait = np.flatnonzero(wait >= 0)
    if _is_contradictory(fetches.start[after_wait] - waits.start[wait[after_wait]]):
        return None
    kinds = (
        (ready_ns, graph.PathCategory.PYTHON),
        (ready_ns, graph.PathCategory.PYTHON),
        (delay_ns, graph.PathCategory.STARTUP),
    )
    rows = [np.flatnonzero(part >= 0) for part in points]
    return [
        graph.make_edges(
            part[row], point_count + row, weight_ns[row], graph.EdgeKind.HANDOVER, category
        )
        for part, row, (weight_ns, category) in zip(points, rows, kinds, strict=True)
    ]
