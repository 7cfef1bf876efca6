"""`activity`: kernels, memory operations and synchronization, and the bandwidth of copies."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import (
    ACTIVITY_COPY_COLUMNS,
    Activity,
    CopyKind,
    summarize_activities,
    summarize_copies,
)
from stepscope.run import CarryOver, Run, Trace
from stepscope.schema import field_label
from stepscope.views.missing_data import explain_no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_run_quality, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import explain_no_traces, select_traces


class ActivityView(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of activity."""

    kind: str
    """compute, communication, memcpy, memset: work on devices; synchronization: runtime calls
    in which the host waits for a device."""
    count: int
    total_ns: int
    """Sum of the durations: simultaneous work on several streams counts several times."""
    share_ratio: float
    """Share of the durations of all kinds."""
    mean_ns: float | None


class CopyKindView(msgspec.Struct, frozen=True, kw_only=True):
    """Copies between the same two kinds of memory, or sets."""

    direction: str
    source: Annotated[str | None, field_label("from")]
    target: Annotated[str | None, field_label("to")]
    count: int
    total_ns: int
    moved_bytes: Annotated[int | None, field_label("moved")]
    """Null where the profiler recorded no sizes."""
    achieved_bytes_per_s: Annotated[float | None, field_label("bandwidth")]
    """Sum of the bytes divided by the sum of the durations."""


class TraceActivity(msgspec.Struct, frozen=True, kw_only=True):
    """Activity of one trace."""

    rank: int | None
    trace: str
    activities: list[ActivityView]
    copies: list[CopyKindView]
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
    traces = select_traces(run, options)
    return ActivitiesView(
        share_of="sum of the durations of all activities",
        carry_over=options.carry_over,
        traces=[_show_trace(trace, options.carry_over) for trace in traces],
        missing=explain_no_traces(run, traces),
        quality=note_run_quality(run, traces),
    )


def _show_trace(trace: Trace, carry_over: CarryOver) -> TraceActivity:
    condition = "carry_over = 0" if carry_over == "drop" else ""
    kernels = trace.columns("kernels", ("name", "duration_ns"), condition=condition)
    copies = trace.columns("copies", ACTIVITY_COPY_COLUMNS, condition=condition)
    calls = trace.columns(
        "runtime_calls", ("name", "duration_ns"), condition="name ILIKE '%synchron%'"
    )
    activities = summarize_activities(kernels, copies, calls)
    total_ns = sum(activity.total_ns for activity in activities)
    has_device_work = len(kernels["duration_ns"]) + len(copies["duration_ns"]) > 0
    return TraceActivity(
        rank=trace.rank,
        trace=trace.name,
        activities=[_show_kind(activity, total_ns) for activity in activities] if total_ns else [],
        copies=[_show_copies(kind) for kind in summarize_copies(copies)],
        missing=None if has_device_work else explain_no_device_work(trace),
        quality=note_trace_quality(trace, "device"),
    )


def _show_kind(activity: Activity, all_ns: int) -> ActivityView:
    return ActivityView(
        kind=activity.kind,
        count=activity.count,
        total_ns=activity.total_ns,
        share_ratio=activity.total_ns / all_ns,
        mean_ns=activity.total_ns / activity.count if activity.count else None,
    )


def _show_copies(kind: CopyKind) -> CopyKindView:
    return CopyKindView(
        direction=kind.direction,
        source=kind.source,
        target=kind.target,
        count=kind.count,
        total_ns=kind.total_ns,
        moved_bytes=kind.bytes,
        achieved_bytes_per_s=kind.bytes_per_s,
    )
