"""`launches`: cost of kernel launches, their delay on the device, and queue depth."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import (
    DEFAULT_LAUNCH_THRESHOLDS,
    SEQUENCE_KERNEL_COLUMNS,
    SEQUENCE_OPERATOR_COLUMNS,
    CallLaunches,
    KernelSequence,
    RuntimeCalls,
    StreamQueue,
    find_kernel_sequences,
    find_launches,
    match_rows,
    measure_queue_depths,
    summarize_launches_by_call,
    summarize_launches_by_operator,
)
from stepscope.run import Run, Trace, device_work_of, is_range, streams_of
from stepscope.schema import field_label
from stepscope.views.curves import choose_buckets
from stepscope.views.missing_data import explain_missing, explain_no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import show_traces

NO_LAUNCH = "no runtime call in the trace launched any of its device work"


class TraceLaunches(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of one trace."""

    rank: int | None
    trace: str
    calls: list[CallLaunches]
    """All calls together, then by runtime function, most used first."""
    operators: list[CallLaunches]
    """By the operator that made the call, most launches first."""
    sequences: list[KernelSequence]
    """Kernels that one outermost operator launches again and again, by kernel time: candidates for
    fusion."""
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
    thresholds = DEFAULT_LAUNCH_THRESHOLDS
    return LaunchesView(
        long_call_ns=thresholds.long_call_ns,
        long_delay_ns=thresholds.long_delay_ns,
        blocked_depth=thresholds.blocked_count,
        **show_traces(run, options, lambda trace: _show_trace(trace, options)),
    )


def _show_trace(trace: Trace, options: ViewOptions) -> TraceLaunches:
    columns = trace.columns("runtime_calls", ("id", "name", "operator", "start_ns", "duration_ns"))
    operators = trace.columns("operators", SEQUENCE_OPERATOR_COLUMNS)
    calls = RuntimeCalls.from_columns(columns)
    work = device_work_of(trace, "keep")
    launches = find_launches(work, calls)
    buckets = choose_buckets(trace, options)
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
        calls=summarize_launches_by_call(launches, calls, columns["name"]),
        operators=summarize_launches_by_operator(
            launches, calls, columns["operator"], operators, top=options.top
        ),
        sequences=find_kernel_sequences(
            trace.columns("kernels", SEQUENCE_KERNEL_COLUMNS),
            operators,
            match_rows(operators["name"], is_range),
            top=options.top,
        ),
        bucket_ns=buckets.width_ns if buckets is not None else None,
        queues=measure_queue_depths(launches, buckets, streams=streams_of(trace)),
        missing=missing,
        quality=note_trace_quality(trace, "launches"),
    )
