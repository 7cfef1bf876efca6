"""`activity`: kernels, memory operations and synchronization, and the bandwidth of copies."""

from __future__ import annotations

import msgspec

from stepscope.analysis import (
    ACTIVITY_COPY_COLUMNS,
    ActivityKind,
    CopyBandwidth,
    CopyKind,
    measure_copy_bandwidth,
    summarize_activities,
    summarize_copies,
)
from stepscope.run import CarryOver, Run, Trace
from stepscope.views.curves import choose_buckets
from stepscope.views.missing_data import explain_no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import show_traces


class TraceActivity(msgspec.Struct, frozen=True, kw_only=True):
    """Activity of one trace."""

    rank: int | None
    trace: str
    activities: list[ActivityKind]
    copies: list[CopyKind]
    bucket_ns: int | None
    """Width of the buckets of the curves, which cover the whole trace."""
    bandwidth: list[CopyBandwidth]
    missing: str | None
    quality: list[QualityNote]


class ActivitiesView(Ranged, frozen=True, kw_only=True):
    """Payload of `activity`."""

    share_of: str
    carry_over: CarryOver
    traces: list[TraceActivity]
    missing: str | None
    quality: list[QualityNote]


def show_activity(run: Run, options: ViewOptions = DEFAULTS) -> ActivitiesView:
    """Show kernels, memory operations and synchronization, and the bandwidth of copies."""
    return ActivitiesView(
        share_of="sum of the durations of all activities",
        carry_over=options.carry_over,
        **show_traces(run, options, lambda trace: _show_trace(trace, options)),
    )


def _show_trace(trace: Trace, options: ViewOptions) -> TraceActivity:
    condition = "carry_over = 0" if options.carry_over == "drop" else ""
    kernels = trace.columns("kernels", ("name", "duration_ns"), condition=condition)
    columns = ("start_ns", *ACTIVITY_COPY_COLUMNS)
    copies = trace.columns("copies", columns, condition=condition)
    buckets = choose_buckets(trace, options)
    calls = trace.columns(
        "runtime_calls", ("name", "duration_ns"), condition="name ILIKE '%synchron%'"
    )
    activities = summarize_activities(kernels, copies, calls)
    has_device_work = len(kernels["duration_ns"]) + len(copies["duration_ns"]) > 0
    return TraceActivity(
        rank=trace.rank,
        trace=trace.name,
        activities=activities if any(activity.total_ns for activity in activities) else [],
        copies=summarize_copies(copies),
        bucket_ns=buckets.width_ns if buckets is not None else None,
        bandwidth=measure_copy_bandwidth(copies, buckets) if buckets is not None else [],
        missing=None if has_device_work else explain_no_device_work(trace),
        quality=note_trace_quality(trace, "device"),
    )
