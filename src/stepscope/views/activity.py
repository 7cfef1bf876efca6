"""`activity`: kernels, memory operations and synchronisation, and how fast copies were."""

from __future__ import annotations

import msgspec

from stepscope.analysis import (
    ACTIVITY_COPY_COLUMNS,
    Activity,
    CopyKind,
    summarize_activities,
    summarize_copies,
)
from stepscope.run import CarryOver, Run, Trace
from stepscope.views.lacking import no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across, quality_notes
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import chosen_traces, missing_recordings


class ActivityView(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of activity."""

    kind: str
    """compute, communication, memcpy, memset: work on devices; synchronization: runtime calls
    in which the host waits for a device."""
    count: int
    total_ns: int
    """Durations, summed: work on several streams at once counts several times."""
    share_ratio: float
    """Of the durations of all kinds."""
    mean_ns: float | None


class CopyKindView(msgspec.Struct, frozen=True, kw_only=True):
    """Copies between the same two sorts of memory, or sets."""

    direction: str
    source: str | None
    target: str | None
    count: int
    total_ns: int
    moved_bytes: int | None
    """Null where the recorder gave no sizes."""
    achieved_bytes_per_s: float | None
    """Bytes by durations, both summed; print it in GB/s, a GB being 1e9 bytes."""


class TraceActivity(msgspec.Struct, frozen=True, kw_only=True):
    """Of one recording."""

    rank: int | None
    trace: str
    activities: list[ActivityView]
    copies: list[CopyKindView]
    missing: str | None
    quality: list[QualityNote]


class ActivitiesView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    share_of: str
    carry_over: CarryOver
    traces: list[TraceActivity]
    missing: str | None
    quality: list[QualityNote]


def activity(run: Run, options: ViewOptions = DEFAULTS) -> ActivitiesView:
    """Kernels, memory operations and synchronisation, and how fast copies were."""
    traces = chosen_traces(run, options)
    return ActivitiesView(
        share_of="durations of all activities, summed",
        carry_over=options.carry_over,
        traces=[_trace(trace, options.carry_over) for trace in traces],
        missing=missing_recordings(run, traces),
        quality=notes_across(run, traces),
    )


def _trace(trace: Trace, carry_over: CarryOver) -> TraceActivity:
    where = "carry_over = 0" if carry_over == "drop" else ""
    kernels = trace.columns("kernels", ("name", "duration_ns"), condition=where)
    copies = trace.columns("copies", ACTIVITY_COPY_COLUMNS, condition=where)
    calls = trace.columns(
        "runtime_calls", ("name", "duration_ns"), condition="name ILIKE '%synchron%'"
    )
    found = summarize_activities(kernels, copies, calls)
    total_ns = sum(one.total_ns for one in found)
    seen = len(kernels["duration_ns"]) + len(copies["duration_ns"]) > 0
    return TraceActivity(
        rank=trace.rank,
        trace=trace.name,
        activities=[_activity(one, total_ns) for one in found] if total_ns else [],
        copies=[_copy(one) for one in summarize_copies(copies)],
        missing=None if seen else no_device_work(trace),
        quality=quality_notes(trace, "device"),
    )


def _activity(found: Activity, total_ns: int) -> ActivityView:
    return ActivityView(
        kind=found.kind,
        count=found.count,
        total_ns=found.total_ns,
        share_ratio=found.total_ns / total_ns,
        mean_ns=found.total_ns / found.count if found.count else None,
    )


def _copy(found: CopyKind) -> CopyKindView:
    return CopyKindView(
        direction=found.direction,
        source=found.source,
        target=found.target,
        count=found.count,
        total_ns=found.total_ns,
        moved_bytes=found.bytes,
        achieved_bytes_per_s=found.bytes_per_s,
    )
