"""What launching work costs, how long it waits, and how much of it is queued.

A launch is a runtime call with the device work that it launched: one kernel, copy or set, or
all of those of a replayed graph.

    delay          max(0, first start on the device - end of the call)
    short          the device's durations, summed, are below that of the call
    long call      the call takes more than 50 us
    long delay     the delay is more than 100 us
    queue depth    of a stream: +1 when a call that launches onto it begins, -1 when the first
                   work of that launch starts there
    blocked        the depth is 1024 or more: the driver lets the next launch wait
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.buckets import Buckets
from stepscope.analysis.device_work import DeviceWork, RuntimeCalls
from stepscope.analysis.statistics import Distribution, summarize
from stepscope.intervals import Int


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What counts as long or blocked."""

    long_call_ns: int = 50_000
    long_delay_ns: int = 100_000
    blocked_count: int = 1024


DEFAULT_LAUNCH_THRESHOLDS = Thresholds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Launches of one recording; arrays have one entry per call and stream."""

    call: Int
    """Place of the call in `RuntimeCalls`."""
    track: Int
    call_start: Int
    call_end: Int
    device_start: Int
    """Start of the first work on the stream."""
    device_ns: Int
    """Durations of the work on the stream, summed."""
    work_count: Int

    @property
    def delay_ns(self) -> Int:
        """From the end of the call to the start on the device, at least 0."""
        delay: Int = np.maximum(self.device_start - self.call_end, 0)
        return delay


def find_launches(work: DeviceWork, calls: RuntimeCalls) -> Launches:
    """Joins device work with the calls that launched it; work without a call is left out."""
    place = calls.places(work.launch)
    linked = np.flatnonzero(place >= 0)
    order = linked[np.lexsort((work.track[linked], place[linked]))]
    call, track = place[order], work.track[order]
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = (call[1:] != call[:-1]) | (track[1:] != track[:-1])
    first = np.flatnonzero(opens)
    if not len(first):
        empty = np.empty(0, dtype=np.int64)
        return Launches(**dict.fromkeys(Launches.__dataclass_fields__, empty))
    return Launches(
        call=call[first],
        track=track[first],
        call_start=calls.start[call[first]],
        call_end=calls.end[call[first]],
        device_start=np.minimum.reduceat(work.start[order], first),
        device_ns=np.add.reduceat((work.end - work.start)[order], first),
        work_count=np.diff(np.append(first, len(order))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStatistics:
    """Of the launches by one runtime function."""

    launch_count: int
    work_count: int
    call_ns: Distribution
    device_ns: Distribution
    delay_ns: Distribution
    short_count: int
    long_call_count: int
    long_delay_count: int


def launch_statistics(
    launches: Launches, rows: NDArray[np.bool_], thresholds: Thresholds = DEFAULT_LAUNCH_THRESHOLDS
) -> LaunchStatistics | None:
    """Statistics of some launches; None when there are none."""
    call_ns = (launches.call_end - launches.call_start)[rows]
    device_ns, delay_ns = launches.device_ns[rows], launches.delay_ns[rows]
    of_calls, of_device, of_delays = map(summarize, (call_ns, device_ns, delay_ns))
    if of_calls is None or of_device is None or of_delays is None:
        return None
    return LaunchStatistics(
        launch_count=len(call_ns),
        work_count=int(launches.work_count[rows].sum()),
        call_ns=of_calls,
        device_ns=of_device,
        delay_ns=of_delays,
        short_count=int((device_ns < call_ns).sum()),
        long_call_count=int((call_ns > thresholds.long_call_ns).sum()),
        long_delay_count=int((delay_ns > thresholds.long_delay_ns).sum()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """How much was queued on one stream, from its first launch to its last start."""

    track: int
    launch_count: int
    span_ns: int
    mean: float
    """Over time."""
    largest: int
    blocked_ns: int
    curve: list[int]
    """The largest depth in each bucket."""


def queue_depths(
    launches: Launches, cut: Buckets | None, thresholds: Thresholds = DEFAULT_LAUNCH_THRESHOLDS
) -> list[QueueDepth]:
    """The queue of every stream, by stream."""
    if not len(launches.track):
        return []
    order = np.argsort(launches.track, kind="stable")
    tracks, first = np.unique(launches.track[order], return_index=True)
    return [
        _queue(launches, track, rows, cut, thresholds)
        for track, rows in zip(tracks.tolist(), np.split(order, first[1:]), strict=True)
    ]


def _queue(
    launches: Launches, track: int, rows: Int, cut: Buckets | None, thresholds: Thresholds
) -> QueueDepth:
    begin = launches.call_start[rows]
    # Clocks of host and device differ by some microseconds: nothing starts before its launch.
    start = np.maximum(launches.device_start[rows], begin)
    times = np.concatenate([begin, start])
    change = np.repeat(np.array([1, -1]), len(rows))
    order = np.lexsort((-change, times))
    times, depth = times[order], np.cumsum(change[order])
    lasts = np.diff(times)
    span = int(times[-1] - times[0])
    return QueueDepth(
        track=track,
        launch_count=len(rows),
        span_ns=span,
        mean=float((depth[:-1] * lasts).sum() / span) if span else 0.0,
        largest=int(depth.max()),
        blocked_ns=int(lasts[depth[:-1] >= thresholds.blocked_count].sum()),
        curve=_largest_in(cut, times, depth) if cut is not None else [],
    )


def _largest_in(cut: Buckets, times: Int, depth: Int) -> list[int]:
    edges = cut.edges
    before = np.searchsorted(times, edges[:-1], side="right") - 1
    curve = np.where(before >= 0, depth[np.maximum(before, 0)], 0)
    bucket = np.minimum(np.searchsorted(edges, times, side="right") - 1, cut.count - 1)
    inside = bucket >= 0
    np.maximum.at(curve, bucket[inside], depth[inside])
    return [int(value) for value in curve]
