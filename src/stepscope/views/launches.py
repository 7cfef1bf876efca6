"""`launches`: cost of kernel launches, their delay on the device, and queue depth."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import (
    DEFAULT_LAUNCH_THRESHOLDS,
    LaunchStatistics,
    QueueDepth,
    RuntimeCalls,
    find_launches,
    measure_queue_depths,
    summarize_launches_by_call,
)
from stepscope.run import Run, Trace, device_work_of, streams_of
from stepscope.schema import field_label
from stepscope.views.curves import choose_buckets
from stepscope.views.missing_data import explain_missing, explain_no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_run_quality, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import explain_no_traces, select_traces

NO_LAUNCH = "no runtime call in the trace launched any of its device work"


class CallLaunches(msgspec.Struct, frozen=True, kw_only=True):
    """Launches by one runtime function, or by all of them."""

    call: str
    launch_count: int
    work_count: Annotated[int, field_label("work")]
    """Kernels, copies and sets; a replayed graph is one launch of many."""
    call_mean_ns: Annotated[float, field_label("mean call")]
    call_p95_ns: Annotated[float, field_label("p95 call")]
    device_mean_ns: Annotated[float, field_label("mean work")]
    delay_p50_ns: Annotated[float, field_label("median delay")]
    """Median time from the end of the call to the start on the device, at least 0."""
    delay_p95_ns: Annotated[float, field_label("p95 delay")]
    delay_max_ns: Annotated[float, field_label("max delay")]
    short_count: Annotated[int, field_label("short work")]
    """Launches whose device work took less time than the call."""
    long_call_count: int
    """Calls longer than `long_call_ns`."""
    long_delay_count: int
    """Delays longer than `long_delay_ns`."""


class StreamQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Launches queued on one stream, from its first launch to its last start."""

    stream: int | None
    launch_count: int
    span_ns: int
    mean_depth: Annotated[float, field_label(unit="count")]
    """Time-weighted mean."""
    largest_depth: Annotated[int, field_label(unit="count")]
    blocked_ns: int
    """Time with at least `blocked_depth` launches queued."""
    depth_curve: Annotated[list[int], field_label("depth over time", unit="count", display="curve")]
    """Largest depth in each bucket."""


class TraceLaunches(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of one trace."""

    rank: int | None
    trace: str
    calls: list[CallLaunches]
    """All calls together, then by runtime function, most used first."""
    bucket_ns: int | None
    queues: list[StreamQueue]
    missing: str | None
    quality: list[QualityNote]


class LaunchesView(Ranged, frozen=True, kw_only=True):
    """Payload of `launches`."""

    long_call_ns: int
    long_delay_ns: int
    blocked_depth: Annotated[int, field_label(unit="count")]
    traces: list[TraceLaunches]
    missing: str | None
    quality: list[QualityNote]


def show_launches(run: Run, options: ViewOptions = DEFAULTS) -> LaunchesView:
    """Show the cost of launches, their delay and the queue depth."""
    traces = select_traces(run, options)
    thresholds = DEFAULT_LAUNCH_THRESHOLDS
    return LaunchesView(
        long_call_ns=thresholds.long_call_ns,
        long_delay_ns=thresholds.long_delay_ns,
        blocked_depth=thresholds.blocked_count,
        traces=[_show_trace(trace, options) for trace in traces],
        missing=explain_no_traces(run, traces),
        quality=note_run_quality(run, traces),
    )


def _show_trace(trace: Trace, options: ViewOptions) -> TraceLaunches:
    columns = trace.columns("runtime_calls", ("id", "name", "start_ns", "duration_ns"))
    calls = RuntimeCalls.from_columns(columns)
    work = device_work_of(trace, "keep")
    launches = find_launches(work, calls)
    buckets = choose_buckets(trace, options)
    streams = streams_of(trace)
    missing = None
    if not len(launches):
        missing = (
            explain_missing(NO_LAUNCH, "launches", trace)
            if len(work)
            else explain_no_device_work(trace)
        )
    return TraceLaunches(
        rank=trace.rank,
        trace=trace.name,
        calls=[
            _show_call(name, statistics)
            for name, statistics in summarize_launches_by_call(launches, calls, columns["name"])
        ],
        bucket_ns=buckets.width_ns if buckets is not None else None,
        queues=[
            _show_queue(queue, streams.get(queue.track))
            for queue in measure_queue_depths(launches, buckets)
        ],
        missing=missing,
        quality=note_trace_quality(trace, "launches"),
    )


def _show_call(name: str, statistics: LaunchStatistics) -> CallLaunches:
    return CallLaunches(
        call=name,
        launch_count=statistics.launch_count,
        work_count=statistics.work_count,
        call_mean_ns=statistics.call_ns.mean,
        call_p95_ns=statistics.call_ns.p95,
        device_mean_ns=statistics.device_ns.mean,
        delay_p50_ns=statistics.delay_ns.p50,
        delay_p95_ns=statistics.delay_ns.p95,
        delay_max_ns=statistics.delay_ns.maximum,
        short_count=statistics.short_count,
        long_call_count=statistics.long_call_count,
        long_delay_count=statistics.long_delay_count,
    )


def _show_queue(queue: QueueDepth, stream: int | None) -> StreamQueue:
    return StreamQueue(
        stream=stream,
        launch_count=queue.launch_count,
        span_ns=queue.span_ns,
        mean_depth=queue.mean,
        largest_depth=queue.largest,
        blocked_ns=queue.blocked_ns,
        depth_curve=queue.curve,
    )
