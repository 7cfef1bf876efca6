"""`launches`: what launching work costs, how long it waits, and how much of it is queued."""

from __future__ import annotations

import msgspec
import numpy as np

from stepscope.analysis import (
    DEFAULT_LAUNCH_THRESHOLDS,
    LaunchStatistics,
    QueueDepth,
    RuntimeCalls,
    find_launches,
    measure_queue_depths,
    summarize_launches,
)
from stepscope.run import Run, Trace, device_work_of, streams_of
from stepscope.views.curves import buckets_of
from stepscope.views.lacking import how_to_get, no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across, quality_notes
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import chosen_traces, missing_recordings

NO_LAUNCH = "no runtime call in this recording launched any of its device work"


class CallLaunches(msgspec.Struct, frozen=True, kw_only=True):
    """Launches by one runtime function, or by all of them."""

    call: str
    launch_count: int
    work_count: int
    """Kernels, copies and sets; a replayed graph is one launch of many."""
    call_mean_ns: float
    call_p95_ns: float
    device_mean_ns: float
    delay_p50_ns: float
    """From the end of the call to the start on the device, at least 0; as the next two."""
    delay_p95_ns: float
    delay_max_ns: float
    short_count: int
    """The device was done in less time than the call took."""
    long_call_count: int
    """Calls longer than `long_call_ns`."""
    long_delay_count: int
    """Delays longer than `long_delay_ns`."""


class StreamQueue(msgspec.Struct, frozen=True, kw_only=True):
    """What was queued on one stream, from its first launch to its last start."""

    stream: int | None
    launch_count: int
    span_ns: int
    mean_depth: float
    """Over time."""
    largest_depth: int
    blocked_ns: int
    """Time with `blocked_depth` launches queued or more."""
    depth_curve: list[int]
    """The largest depth in each bucket."""


class TraceLaunches(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of one recording."""

    rank: int | None
    trace: str
    calls: list[CallLaunches]
    """All together, then by runtime function, the most used first."""
    bucket_ns: int | None
    queues: list[StreamQueue]
    missing: str | None
    quality: list[QualityNote]


class LaunchesView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    long_call_ns: int
    long_delay_ns: int
    blocked_depth: int
    traces: list[TraceLaunches]
    missing: str | None
    quality: list[QualityNote]


def launches(run: Run, options: ViewOptions = DEFAULTS) -> LaunchesView:
    """What launching work costs, how long it waits, and how much of it is queued."""
    traces = chosen_traces(run, options)
    thresholds = DEFAULT_LAUNCH_THRESHOLDS
    return LaunchesView(
        long_call_ns=thresholds.long_call_ns,
        long_delay_ns=thresholds.long_delay_ns,
        blocked_depth=thresholds.blocked_count,
        traces=[_trace(trace, options) for trace in traces],
        missing=missing_recordings(run, traces),
        quality=notes_across(run, traces),
    )


def _trace(trace: Trace, options: ViewOptions) -> TraceLaunches:
    columns = trace.columns("runtime_calls", ("id", "name", "start_ns", "duration_ns"))
    calls = RuntimeCalls.from_columns(columns)
    work = device_work_of(trace, "keep")
    found = find_launches(work, calls)
    cut = buckets_of(trace, options)
    streams = streams_of(trace)
    code = columns["name"].codes[calls.row[found.call]]
    every = np.ones(len(code), dtype=np.bool_)
    groups = [("all", every)] + [
        (columns["name"].values[each] or "", code == each)
        for each in np.argsort(-np.bincount(code), kind="stable").tolist()
    ]
    return TraceLaunches(
        rank=trace.rank,
        trace=trace.name,
        calls=[
            _call(name, statistics)
            for name, rows in groups
            if (statistics := summarize_launches(found, rows)) is not None
        ],
        bucket_ns=cut.width_ns if cut is not None else None,
        queues=[_queue(one, streams.get(one.track)) for one in measure_queue_depths(found, cut)],
        missing=None if len(code) else _why_none(trace, work_count=len(work)),
        quality=quality_notes(trace, "launches"),
    )


def _why_none(trace: Trace, work_count: int) -> str:
    return f"{NO_LAUNCH}: {how_to_get('launches', trace)}" if work_count else no_device_work(trace)


def _call(name: str, found: LaunchStatistics) -> CallLaunches:
    return CallLaunches(
        call=name,
        launch_count=found.launch_count,
        work_count=found.work_count,
        call_mean_ns=found.call_ns.mean,
        call_p95_ns=found.call_ns.p95,
        device_mean_ns=found.device_ns.mean,
        delay_p50_ns=found.delay_ns.p50,
        delay_p95_ns=found.delay_ns.p95,
        delay_max_ns=found.delay_ns.maximum,
        short_count=found.short_count,
        long_call_count=found.long_call_count,
        long_delay_count=found.long_delay_count,
    )


def _queue(found: QueueDepth, stream: int | None) -> StreamQueue:
    return StreamQueue(
        stream=stream,
        launch_count=found.launch_count,
        span_ns=found.span_ns,
        mean_depth=found.mean,
        largest_depth=found.largest,
        blocked_ns=found.blocked_ns,
        depth_curve=found.curve,
    )
