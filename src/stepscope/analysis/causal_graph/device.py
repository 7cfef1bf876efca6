"""Streams of a causal graph: launches, order, events, and calls of the host that wait.

    launch   a kernel, copy or set starts at the earliest a launch latency after its call
    stream   and a gap after the work before it on its stream; work of one stream that overlaps
             starts in order
    event    and after the work that its stream waits for: a recorded wait for an event, else the
             work of another stream that ends just when this one starts late without another reason
    sync     a call that waits returns after the work it waits for; its own time is that of such
             calls that found nothing to wait for

Latencies and gaps are those of the trace: each its own up to the 90th percentile of those where
nothing else held the work up, and the median of these where it is longer. A longer delay is
not explained, and the replay lacks it.

Work launched before the window has no launch, and keeps its measured start.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.arrays.columns import group_rows
from stepscope.analysis.causal_graph import graph
from stepscope.analysis.causal_graph.host import HostThreads

Int = intervals.Int
Mask = NDArray[np.bool_]
CLOCK_TOLERANCE_NS = 1_000
"""Times of one trace that differ by less are equal: some profilers round to microseconds."""
LATE_NS = 10_000
"""Work that starts this much later than everything that is known allows has waited for something
else …"""
JUST_NS = 20_000
"""… which is work of another stream that ended at most this long before."""
MAX_CANDIDATES = 16
"""Work that is looked at as such."""
LAUNCH_NS = 5_000
SYNC_NS = 2_000
"""Latency of a launch, and own time of a call that waits, where the trace shows none."""
PERCENTILE = 90
NONE = np.empty(0, dtype=np.int64)
ALL_STREAMS, NO_STREAM = -1, -2


class StreamWork(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Kernels, copies and sets; one entry per piece of work."""

    track: Int
    device: Int
    start: Int
    end: Int
    launch: Int
    """Row in `DeviceCalls` of the call that launched it, -1 for none."""
    is_communication: Mask
    category: NDArray[np.int8]
    activity: Int


class DeviceCalls(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Runtime calls; one entry per call."""

    track: Int
    start: Int
    end: Int
    is_wait: Mask
    """True for calls that wait for a stream, an event or a device."""


class RecordedWaits(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Recorded waits for device work; see the table `synchronisations`. One entry per wait."""

    call: Int
    """Row of the call that waits, -1 for none."""
    record_call: Int
    """Row of the call that recorded the event, -1 for none."""
    is_for_event: Mask
    by_stream: Mask
    """True where a stream waits, False where the host does."""
    track: Int
    """Track of the stream that waits, or that the host waits for; `ALL_STREAMS` for all of the
    device, `NO_STREAM` for one without work."""
    waited_track: Int
    """Track on which the event was recorded; below 0 for none."""
    device: Int


class LaunchOrder(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Work of each stream by the time of its launch."""

    rows: Int
    keys: Int
    tracks: Int
    base: int
    stride: int

    def last_before(self, track: Int, time: Int) -> Int:
        """Find the last work of a stream that was launched before a time, -1 for none."""
        return self._find(track, time, -1)

    def first_after(self, track: Int, time: Int) -> Int:
        """Find the first work of a stream that was launched at or after a time, -1 for none."""
        return self._find(track, time, 0)

    def _find(self, track: Int, time: Int, offset: int) -> Int:
        if not len(self.rows):
            return np.full(len(track), -1, dtype=np.int64)
        thread = np.minimum(np.searchsorted(self.tracks, track), len(self.tracks) - 1)
        key = thread * self.stride + np.clip(time - self.base, 0, self.stride - 1)
        at = np.searchsorted(self.keys, key) + offset
        is_known = (self.tracks[thread] == track) & (at >= 0) & (at < len(self.keys))
        at = np.where(is_known, at, 0)
        is_known &= self.keys[at] // self.stride == thread
        return np.where(is_known, self.rows[at], -1)


class DeviceGraph(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Edges of device work. Its points follow those of the host: all starts, then all ends."""

    edges: graph.CausalEdges
    host_weight_ns: Int
    """Weights of the edges of the host, without what its calls wait for."""
    host_category: NDArray[np.int8]


def build_streams(
    work: StreamWork, calls: DeviceCalls, waits: RecordedWaits, threads: HostThreads
) -> DeviceGraph:
    """Build the edges of device work, and take the waits out of the time of host threads."""
    count, first = len(work.start), len(threads.time)
    start_point = first + np.arange(count, dtype=np.int64)
    end_point = start_point + count
    order = np.lexsort((work.end, work.start, work.track))
    # What was launched before the window was launched before all that was launched in it.
    before = int(calls.start.min(initial=int(work.start.min(initial=0)))) - 1
    launched = np.full(count, before, dtype=np.int64)
    launched[work.launch >= 0] = calls.start[work.launch[work.launch >= 0]]
    by_launch = _order_launches(work.track, launched)
    running = graph.make_edges(
        start_point,
        end_point,
        work.end - work.start,
        graph.EdgeKind.WORK,
        work.category,
        work.activity,
    )
    stream = _StreamEdges(work, order)
    anchor = _find_anchors(work, calls)
    recorded = _wait_for_events(work, waits, calls, by_launch)
    inferred = _infer_events(work, launched, np.maximum(anchor, stream.bound))
    is_held = np.zeros(count, dtype=np.bool_)
    is_held[recorded[1]] = is_held[inferred[1]] = True
    stream.model_gaps(launched, is_held)
    launch_edges, launch_bound = _launch(
        work, calls, threads, anchor, is_held | (stream.bound >= anchor - LAUNCH_NS), start_point
    )
    ordered = stream.make_edges(start_point, end_point)
    explained = np.maximum(launch_bound, stream.bound)
    np.maximum.at(explained, recorded[1], work.end[recorded[0]])
    is_late = work.start[inferred[1]] - explained[inferred[1]] > LATE_NS
    inferred = inferred[0][is_late], inferred[1][is_late]
    sources, targets = (np.concatenate(pair) for pair in zip(recorded, inferred, strict=True))
    gap = work.start[targets] - work.end[sources]
    events = graph.make_edges(
        end_point[sources],
        start_point[targets],
        np.clip(gap, 0, stream.limit),
        graph.EdgeKind.EVENT,
        graph.PathCategory.LAUNCH,
    )
    host_weight, host_category, syncs = _wait_on_host(
        work, calls, waits, threads, by_launch, launched, end_point
    )
    np.maximum.at(stream.bound, events.target - first, work.end[sources] + events.weight_ns)
    roots = _keep_starts(work, threads, stream.bound, start_point)
    edges = graph.join_edges([running, launch_edges, ordered, events, syncs, roots])
    return DeviceGraph(edges=edges, host_weight_ns=host_weight, host_category=host_category)


def _order_launches(track: Int, launched: Int) -> LaunchOrder:
    groups = group_rows(track)
    tracks, stream = track[groups.first], groups.group
    base = int(launched.min()) if len(launched) else 0
    stride = int(launched.max()) - base + 2 if len(launched) else 1
    keys = stream * stride + launched - base
    rows = np.argsort(keys, kind="stable")
    return LaunchOrder(rows=rows, keys=keys[rows], tracks=tracks, base=base, stride=stride)


def _model_delays(observed: Int, is_alone: Mask, default: int) -> tuple[Int, int]:
    """Model delays by those that nothing else explains.

    Args:
        observed: measured delays.
        is_alone: True where nothing else can have caused the delay.
        default: delay where no delay is measured alone.

    Returns:
        The delays, and the limit that they do not exceed.
    """
    alone = observed[is_alone & (observed >= 0)]
    typical = int(np.median(alone)) if len(alone) else default
    limit = int(np.percentile(alone, PERCENTILE)) if len(alone) else default
    return np.where(observed > limit, typical, np.maximum(observed, 0)), limit


class _StreamEdges:
    """Order of the work of each stream.

    Args:
        work: the work.
        order: rows by stream, then start.
    """

    def __init__(self, work: StreamWork, order: Int) -> None:
        track, start, end = work.track[order], work.start[order], work.end[order]
        is_next = np.concatenate([[False], track[1:] == track[:-1]])
        position = np.arange(len(order), dtype=np.int64)
        reach = _running_argmax(end, is_next)
        previous = np.where(is_next, np.concatenate([[0], reach[:-1]])[: len(order)], -1)
        follows = is_next & (end[previous] <= start + CLOCK_TOLERANCE_NS)
        overlaps = is_next & ~follows
        self._after = order[previous[follows]], order[position[follows]]
        self._beside = order[position[overlaps] - 1], order[position[overlaps]]
        self._gap = np.zeros(len(self._after[0]), dtype=np.int64)
        self._observed = work.start[self._after[1]] - work.end[self._after[0]]
        self._done = work.end[self._after[0]]
        self.limit = 0
        """Limit of the gaps."""
        self.bound = np.full(len(order), np.iinfo(np.int64).min, dtype=np.int64)
        """Time from which the stream allows each piece to start."""
        self.bound[self._after[1]] = self._done
        self.bound[self._beside[1]] = work.start[self._beside[0]]

    def model_gaps(self, launched: Int, is_held: Mask) -> None:
        """Model the gaps between work and the work after it.

        Args:
            launched: start of the launching call of each piece.
            is_held: pieces that may have waited for another stream.
        """
        target = self._after[1]
        is_queued = (launched[target] < self._done - LAUNCH_NS) & ~is_held[target]
        self._gap, self.limit = _model_delays(self._observed, is_queued, 0)
        self.bound[target] = self._done + self._gap

    def make_edges(self, start_point: Int, end_point: Int) -> graph.CausalEdges:
        """Make the edges between pieces of work."""
        source, target = self._after
        after = graph.make_edges(
            end_point[source],
            start_point[target],
            self._gap,
            graph.EdgeKind.STREAM,
            graph.PathCategory.LAUNCH,
        )
        source, target = self._beside
        beside = graph.make_edges(
            start_point[source],
            start_point[target],
            np.zeros(len(source), dtype=np.int64),
            graph.EdgeKind.STREAM,
            graph.PathCategory.LAUNCH,
        )
        return graph.join_edges([after, beside])


def _running_argmax(values: Int, continues: Mask) -> Int:
    """Return the index of the largest value so far, in each run."""
    if not len(values):
        return NONE
    run = np.cumsum(~continues)
    lowest = int(values.min())
    spread = int(values.max()) - lowest + 1
    shifted = values - lowest + run * spread
    largest = np.maximum.accumulate(shifted)
    index = np.where(shifted == largest, np.arange(len(values)), 0)
    return np.maximum.accumulate(index)


def _find_anchors(work: StreamWork, calls: DeviceCalls) -> Int:
    """Find the time of the launching call from which each piece of work could start: the end, where
    it starts after that, as a call may take long before it submits; its start without a call."""
    call_start, call_end = (np.append(part, 0)[work.launch] for part in (calls.start, calls.end))
    anchor = np.where(work.start >= call_end, call_end, call_start)
    return np.where(work.launch >= 0, anchor, work.start)


def _launch(  # noqa: PLR0917
    work: StreamWork,
    calls: DeviceCalls,
    threads: HostThreads,
    anchors: Int,
    is_held: Mask,
    point: Int,
) -> tuple[graph.CausalEdges, Int]:
    """Make the edges from launching calls to their work, and the time that each allows.

    Args:
        work, calls, threads: work, and what launched it.
        anchors: time of the launching call of each piece.
        is_held: pieces that something else can have held up.
        point: point at the start of each piece.
    """
    rows = np.flatnonzero(work.launch >= 0)
    call, anchor = work.launch[rows], anchors[rows]
    source = threads.find(calls.track[call], anchor, before=True)
    observed = work.start[rows] - anchor
    is_after, is_alone = anchor == calls.end[call], ~is_held[rows]
    delay = np.zeros(len(rows), dtype=np.int64)
    for kind in (is_after, ~is_after):
        for category in np.unique(work.category):
            part = kind & (work.category[rows] == category)
            delay[part], _ = _model_delays(observed[part], is_alone[part], LAUNCH_NS)
    bound = np.full(len(work.start), np.iinfo(np.int64).min, dtype=np.int64)
    bound[rows] = anchor + delay
    has_source = source >= 0
    edges = graph.make_edges(
        source[has_source],
        point[rows[has_source]],
        # A call without a duration is no point.
        (delay + anchor - threads.time[source])[has_source],
        graph.EdgeKind.LAUNCH,
        graph.PathCategory.LAUNCH,
    )
    return edges, bound


def _keep_starts(
    work: StreamWork, threads: HostThreads, bound: Int, point: Int
) -> graph.CausalEdges:
    """Let work without a known launch start when it did, where nothing else explains its start."""
    late = work.start - bound > CLOCK_TOLERANCE_NS
    late |= bound == np.iinfo(np.int64).min
    rows = np.flatnonzero((work.launch < 0) & late)
    origin = int(np.argmin(threads.time))
    return graph.make_edges(
        np.full(len(rows), origin, dtype=np.int64),
        point[rows],
        work.start[rows] - threads.time[origin],
        graph.EdgeKind.LAUNCH,
        graph.PathCategory.UNEXPLAINED,
    )


def _wait_for_events(
    work: StreamWork, waits: RecordedWaits, calls: DeviceCalls, by_launch: LaunchOrder
) -> tuple[Int, Int]:
    """Find the work that each recorded wait of a stream ties together: source and target."""
    rows = np.flatnonzero(waits.by_stream & (waits.call >= 0) & (waits.record_call >= 0))
    recorded_at = calls.start[waits.record_call[rows]]
    waited_at = calls.start[waits.call[rows]]
    source = by_launch.last_before(waits.waited_track[rows], recorded_at)
    target = by_launch.first_after(waits.track[rows], waited_at)
    is_tied = (source >= 0) & (target >= 0)
    source, target = source[is_tied], target[is_tied]
    fits = work.end[source] <= work.start[target] + CLOCK_TOLERANCE_NS
    pairs = np.unique(np.stack([source[fits], target[fits]]), axis=1)
    return pairs[0], pairs[1]


def _infer_events(work: StreamWork, launched: Int, earliest: Int) -> tuple[Int, Int]:
    """Find the work of other streams that can have held up work which starts late: source and
    target."""
    late = np.flatnonzero(work.start - earliest > LATE_NS)
    if not len(late):
        return NONE, NONE
    by_end = np.argsort(work.end, kind="stable")
    ends = work.end[by_end]
    at = np.searchsorted(ends, work.start[late] + CLOCK_TOLERANCE_NS, side="right") - 1
    source = np.full(len(late), -1, dtype=np.int64)
    for _ in range(MAX_CANDIDATES):
        row = by_end[np.maximum(at, 0)]
        fits = (at >= 0) & (source < 0) & (work.track[row] != work.track[late])
        fits &= (work.end[row] >= work.start[late] - JUST_NS) & (
            work.device[row] == work.device[late]
        )
        fits &= (launched[row] <= launched[late]) & (work.start[row] < work.start[late])
        source[fits] = row[fits]
        at = at - 1
    is_known = source >= 0
    return source[is_known], late[is_known]


def _wait_on_host(  # noqa: PLR0917
    work: StreamWork,
    calls: DeviceCalls,
    waits: RecordedWaits,
    threads: HostThreads,
    by_launch: LaunchOrder,
    launched: Int,
    end_point: Int,
) -> tuple[Int, NDArray[np.int8], graph.CausalEdges]:
    """Take the waits of the host out of its own time, and make edges of them."""
    weight, category = threads.edges.weight_ns.copy(), threads.edges.category.copy()
    call, row = _find_host_waits(work, calls, waits, by_launch, launched)
    start_point = threads.find(calls.track[call], calls.start[call])
    stop_point = threads.find(calls.track[call], calls.end[call])
    is_usable = (start_point >= 0) & (stop_point > start_point)
    call, row, start_point, stop_point = (
        part[is_usable] for part in (call, row, start_point, stop_point)
    )
    latest = np.full(len(calls.start), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(latest, call, work.end[row])
    is_blocking = latest > calls.start + CLOCK_TOLERANCE_NS
    waiting = np.unique(call)
    idle = waiting[~is_blocking[waiting] & calls.is_wait[waiting]]
    length = calls.end - calls.start
    typical = int(np.median(length[idle])) if len(idle) else SYNC_NS
    observed = calls.end[call] - work.end[row]
    is_last = work.end[row] == latest[call]
    tail, _ = _model_delays(observed, is_blocking[call] & is_last, SYNC_NS)
    edge_start, edge_stop = threads.edge_after[start_point], threads.edge_after[stop_point - 1] + 1
    for index, first in zip(*np.unique(call, return_index=True), strict=True):
        pieces = slice(edge_start[first], edge_stop[first])
        if calls.is_wait[index]:
            category[pieces] = graph.PathCategory.HOST_SYNC
        if is_blocking[index]:
            until_copy = latest[index] - calls.start[index]
            weight[pieces] = 0
            weight[edge_start[first]] = min(typical, int(length[index]), int(until_copy))
    return (
        weight,
        category,
        graph.make_edges(
            end_point[row],
            stop_point,
            tail,
            graph.EdgeKind.SYNC,
            graph.PathCategory.HOST_SYNC,
            work.activity[row],
        ),
    )


def _find_host_waits(
    work: StreamWork,
    calls: DeviceCalls,
    waits: RecordedWaits,
    by_launch: LaunchOrder,
    launched: Int,
) -> tuple[Int, Int]:
    """Find the work that calls of the host wait for: pairs of a call and a piece of work."""
    recorded = np.flatnonzero(~waits.by_stream & (waits.call >= 0))
    is_recorded = np.zeros(len(calls.start), dtype=np.bool_)
    is_recorded[waits.call[recorded]] = True
    call = waits.call[recorded]
    for_event = waits.is_for_event[recorded]
    has_event = for_event & (waits.record_call[recorded] >= 0)
    one = np.where(for_event, has_event, waits.track[recorded] != ALL_STREAMS)
    track = np.where(for_event, waits.waited_track[recorded], waits.track[recorded])
    until = np.where(has_event, calls.start[waits.record_call[recorded]], calls.start[call])
    row = by_launch.last_before(track[one], until[one])
    pairs = [(call[one], row)]
    everywhere = call[~one & ~for_event]
    unrecorded = np.flatnonzero(calls.is_wait & ~is_recorded)
    device = waits.device[recorded][~one & ~for_event]
    for track_number in by_launch.tracks.tolist():
        row = by_launch.last_before(np.full(len(everywhere), track_number), calls.start[everywhere])
        row = np.where(np.append(work.device, -1)[row] == device, row, -1)
        pairs.append((everywhere, row))
    # What a wait without a record waited for is the last work before its end, of any stream.
    if len(unrecorded) and len(work.start):
        pairs.append((unrecorded, _find_last_done(work, calls, unrecorded, by_launch)))
    # Copies that end within their call: it waits for them.
    has_launch = np.flatnonzero((work.launch >= 0) & (work.category == graph.PathCategory.COPY))
    until = calls.end[work.launch[has_launch]]
    ends_within = work.end[has_launch] <= until + CLOCK_TOLERANCE_NS
    blocking = has_launch[ends_within & (work.start[has_launch] < until)]
    pairs.append((work.launch[blocking], blocking))
    call, row = (np.concatenate(part) for part in zip(*pairs, strict=True))
    fits = row >= 0
    call, row = call[fits], row[fits]
    done = work.end[row] <= calls.end[call] + CLOCK_TOLERANCE_NS
    return call[done], row[done]


def _find_last_done(
    work: StreamWork, calls: DeviceCalls, waiting: Int, by_launch: LaunchOrder
) -> Int:
    """Find the work that ended last before the end of each call, of that launched last per stream
    before its start; -1 for none."""
    best = np.full(len(waiting), -1, dtype=np.int64)
    best_end = np.full(len(waiting), np.iinfo(np.int64).min, dtype=np.int64)
    for track in by_launch.tracks.tolist():
        row = by_launch.last_before(np.full(len(waiting), track), calls.start[waiting])
        end = np.where(row >= 0, work.end[row], np.iinfo(np.int64).min)
        is_better = (row >= 0) & (end > best_end) & (end <= calls.end[waiting] + CLOCK_TOLERANCE_NS)
        best[is_better], best_end[is_better] = row[is_better], end[is_better]
    return best
