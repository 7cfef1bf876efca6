"""`gpu-time`, `idle` and `activity`: time of devices by kind, by reason and by operation."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec.structs import asdict

from stepscope import analysis, schema
from stepscope.quantities import count_of, duration, percent
from stepscope.run import CarryOver, Run, Trace, calls_of, device_work_of, streams_of
from stepscope.views import trace_data
from stepscope.views.options import COMMUNICATION_OF, DEFAULTS, Ranged, ViewOptions


class GpuShares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of `total_ns`; the first four sum to one."""

    compute_ratio: Annotated[float, schema.field_label("computation")]
    exposed_comm_ratio: float
    exposed_memcpy_ratio: Annotated[float, schema.field_label("exposed copies")]
    idle_ratio: float
    busy_ratio: float


class DeviceGpuTime(msgspec.Struct, frozen=True, kw_only=True):
    """One device, from its first work to its last; fields as in `TraceGpuTime`."""

    device: int
    total_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: Annotated[int, schema.field_label("computation")]
    memset_ns: Annotated[int, schema.field_label("sets")]
    comm_ns: int
    exposed_comm_ns: int
    exposed_memcpy_ns: Annotated[int, schema.field_label("exposed copies")]
    same_stream_overlap_count: Annotated[int, schema.field_label("overlaps within a stream")]
    gpu_event_count: Annotated[int, schema.field_label("events")]
    shares: GpuShares | None


class TraceGpuTime(msgspec.Struct, frozen=True, kw_only=True):
    """All devices of one trace together; times are null without device work."""

    rank: int | None
    trace: str
    sentence: str
    """Largest share of the time, and the view that explains it; empty without device work."""
    total_ns: int | None
    """Time from the first start to the last end of any kernel, copy or set."""
    busy_ns: int | None
    idle_ns: int | None
    compute_ns: Annotated[int | None, schema.field_label("computation")]
    """Kernels that do not communicate, and sets."""
    memset_ns: Annotated[int | None, schema.field_label("sets")]
    """Sets alone, included in `compute_ns`."""
    comm_ns: int | None
    """Kernels of collectives."""
    exposed_comm_ns: int | None
    """Communication without simultaneous compute."""
    exposed_memcpy_ns: Annotated[int | None, schema.field_label("exposed copies")]
    """Copies without simultaneous compute or communication."""
    same_stream_overlap_count: Annotated[int | None, schema.field_label("overlaps within a stream")]
    gpu_event_count: Annotated[int, schema.field_label("events")]
    shares: GpuShares | None
    comm_hidden_ratio: float | None
    """Share of `comm_ns` that compute hides."""
    devices: list[DeviceGpuTime]
    missing: str | None
    quality: list[trace_data.QualityNote]


class GpuTimeView(Ranged, frozen=True, kw_only=True):
    """Payload of `gpu-time`."""

    share_of: str
    communication_of: str
    """Definition of communication."""
    carry_over: CarryOver
    """Whether work launched before the window counts."""
    traces: list[TraceGpuTime]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_gpu_time(run: Run, options: ViewOptions = DEFAULTS) -> GpuTimeView:
    """Show the breakdown of device time."""
    return GpuTimeView(
        share_of="total: time from the first start to the last end of work on the devices",
        communication_of=COMMUNICATION_OF[options.communication],
        carry_over=options.carry_over,
        **trace_data.show_traces(run, options, lambda trace: _show_gpu_time_of(trace, options)),
    )


_NO_TIMES: dict[str, None] = dict.fromkeys(
    name for name in analysis.GpuTime.__struct_fields__ if name != "gpu_event_count"
)


def _show_gpu_time_of(trace: Trace, options: ViewOptions) -> TraceGpuTime:
    work = device_work_of(trace.whole, options.carry_over, options.communication)
    devices = analysis.measure_gpu_time_by_device(work, trace.within)
    if trace.unknown_devices is not None:  # how long they were busy is not known
        devices, total = {}, None
    elif len(devices) == 1:
        total = devices[min(devices)]
    else:
        total = analysis.measure_gpu_time(work, trace.within)
    times = asdict(total) if total is not None else _NO_TIMES | {"gpu_event_count": 0}
    hidden_ns = total.comm_ns - total.exposed_comm_ns if total is not None else 0
    return TraceGpuTime(
        rank=trace.rank,
        trace=trace.name,
        sentence="" if total is None else _write_sentence(total),
        **times,
        shares=_compute_shares(total) if total is not None else None,
        comm_hidden_ratio=hidden_ns / total.comm_ns
        if total is not None and total.comm_ns
        else None,
        devices=[
            DeviceGpuTime(device=device, **asdict(time), shares=_compute_shares(time))
            for device, time in devices.items()
        ],
        missing=None if total is not None else trace_data.explain_no_device_work(trace),
        quality=trace_data.note_trace_quality(trace, "device"),
    )


_SENTENCES = {
    "compute": "Computation takes {share}: Kernels and Roofline show what it consists of.",
    "exposed_comm": "Communication that nothing hides takes {share}: Ranks lists the collectives.",
    "exposed_memcpy": "Copies that nothing hides take {share}: Activity lists them.",
    "idle": "The devices are idle for {share}: Idle time shows what they wait for.",
}
"""Sentences on the largest share of device time. Advice is the verdict's: it knows the rest."""


def _write_sentence(time: analysis.GpuTime) -> str:
    """Write what takes most of the time of devices."""
    parts = {name: int(getattr(time, f"{name}_ns")) for name in _SENTENCES}
    largest = max(parts, key=lambda name: parts[name])
    if not time.total_ns:
        return ""
    total, part = duration(time.total_ns), duration(parts[largest])
    share = f"{percent(parts[largest] / time.total_ns)} of the time, {part} of {total}"
    return _SENTENCES[largest].format(share=share)


def _compute_shares(time: analysis.GpuTime) -> GpuShares | None:
    if not time.total_ns:
        return None
    return GpuShares(
        compute_ratio=time.compute_ns / time.total_ns,
        exposed_comm_ratio=time.exposed_comm_ns / time.total_ns,
        exposed_memcpy_ratio=time.exposed_memcpy_ns / time.total_ns,
        idle_ratio=time.idle_ns / time.total_ns,
        busy_ratio=time.busy_ns / time.total_ns,
    )


class TraceIdle(msgspec.Struct, frozen=True, kw_only=True):
    """Streams of one trace."""

    rank: int | None
    trace: str
    sentence: str
    """Idle time of the stream with most work, by reason; empty without streams."""
    streams: list[analysis.StreamIdle]
    missing: str | None
    quality: list[trace_data.QualityNote]


class IdleView(Ranged, frozen=True, kw_only=True):
    """Payload of `idle`."""

    share_of: str
    kernel_wait_below_ns: int
    carry_over: CarryOver
    traces: list[TraceIdle]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_idle(run: Run, options: ViewOptions = DEFAULTS) -> IdleView:
    """Show the idle time of streams by reason."""
    return IdleView(
        share_of="idle time of the stream between its first and its last work",
        kernel_wait_below_ns=analysis.KERNEL_WAIT_BELOW_NS,
        carry_over=options.carry_over,
        **trace_data.show_traces(
            run, options, lambda trace: _show_idle_of(trace, options.carry_over)
        ),
    )


def _show_idle_of(trace: Trace, carry_over: CarryOver) -> TraceIdle:
    streams = (
        analysis.measure_stream_idle(
            device_work_of(trace, carry_over), calls_of(trace), streams=streams_of(trace)
        )
        if trace.unknown_devices is None
        else []
    )
    return TraceIdle(
        rank=trace.rank,
        trace=trace.name,
        sentence=_describe_idle(streams),
        streams=streams,
        missing=None if streams else trace_data.explain_no_device_work(trace),
        quality=trace_data.note_trace_quality(trace, "device", "launches"),
    )


def _describe_idle(streams: list[analysis.StreamIdle]) -> str:
    """Write for how long the stream with most work is idle, and the largest reason."""
    if not streams:
        return ""
    stream = max(streams, key=lambda stream: stream.work_count)
    reasons = {
        "host wait": stream.host_wait_ratio,
        "kernel wait": stream.kernel_wait_ratio,
        "other gaps": stream.other_ratio,
    }
    reason = max(reasons, key=lambda name: reasons[name] or 0.0)
    cause = f", mostly {reason} ({percent(reasons[reason])})" if reasons[reason] else ""
    name = "The stream with most work" if stream.stream is None else f"Stream {stream.stream}"
    return (
        f"{name} of device {stream.device} is idle for {percent(stream.idle_ns / stream.span_ns)} "
        f"of {duration(stream.span_ns)}{cause}."
    )


class TraceActivity(msgspec.Struct, frozen=True, kw_only=True):
    """Activity of one trace."""

    rank: int | None
    trace: str
    sentence: str
    """Kind of activity that takes longest; empty without activities."""
    activities: list[analysis.ActivityKind]
    copies: list[analysis.CopyKind]
    bucket_ns: int | None
    """Width of the buckets of the curves, which cover the whole trace."""
    bandwidth: list[analysis.CopyBandwidth]
    missing: str | None
    quality: list[trace_data.QualityNote]


class ActivitiesView(Ranged, frozen=True, kw_only=True):
    """Payload of `activity`."""

    share_of: str
    carry_over: CarryOver
    traces: list[TraceActivity]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_activity(run: Run, options: ViewOptions = DEFAULTS) -> ActivitiesView:
    """Show kernels, memory operations and synchronization, and the bandwidth of copies."""
    return ActivitiesView(
        share_of="sum of the durations of all activities",
        carry_over=options.carry_over,
        **trace_data.show_traces(run, options, lambda trace: _show_activity_of(trace, options)),
    )


def _show_activity_of(trace: Trace, options: ViewOptions) -> TraceActivity:
    condition = "carry_over = 0" if options.carry_over == "drop" else ""
    kernels = trace.columns("kernels", ("name", "duration_ns"), condition=condition)
    columns = ("start_ns", *analysis.ACTIVITY_COPY_COLUMNS)
    copies = trace.columns("copies", columns, condition=condition)
    buckets = trace_data.choose_buckets(trace, options)
    calls = trace.columns(
        "runtime_calls", ("name", "duration_ns"), condition="name ILIKE '%synchron%'"
    )
    activities = analysis.summarize_activities(
        kernels, copies, calls, trace.collectives.predicate()
    )
    has_device_work = len(kernels["duration_ns"]) + len(copies["duration_ns"]) > 0
    return TraceActivity(
        rank=trace.rank,
        trace=trace.name,
        sentence=_describe_activities(activities),
        activities=activities if any(activity.total_ns for activity in activities) else [],
        copies=analysis.summarize_copies(copies),
        bucket_ns=buckets.width_ns if buckets is not None else None,
        bandwidth=analysis.measure_copy_bandwidth(copies, buckets) if buckets is not None else [],
        missing=None if has_device_work else trace_data.explain_no_device_work(trace),
        quality=trace_data.note_trace_quality(trace, "device"),
    )


def _describe_activities(activities: list[analysis.ActivityKind]) -> str:
    """Write which kind of activity takes longest."""
    first = max(activities, key=lambda activity: activity.total_ns, default=None)
    if first is None or not first.total_ns:
        return ""
    return (
        f"{first.kind.capitalize()} takes {percent(first.share_ratio)} of the time of all "
        f"activities, {duration(first.total_ns)} in {count_of(first.count, 'event')}."
    )
