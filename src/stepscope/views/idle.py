"""`idle`: idle time of the streams of the devices, by reason."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import KERNEL_WAIT_BELOW_NS, StreamIdle, measure_stream_idle
from stepscope.run import CarryOver, Run, Trace, calls_of, device_work_of, streams_of
from stepscope.schema import field_label
from stepscope.views.missing_data import explain_no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_run_quality, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import explain_no_traces, select_traces


class StreamIdleView(msgspec.Struct, frozen=True, kw_only=True):
    """One stream, from its first work to its last; busy and the three waits sum to the span."""

    stream: int | None
    device: int
    work_count: Annotated[int, field_label("work")]
    span_ns: int
    busy_ns: int
    idle_ns: int
    host_wait_ns: int
    """Gaps in which the runtime call that launched the next work started after the stream became
    idle."""
    kernel_wait_ns: int
    """Gaps between queued work, each shorter than `kernel_wait_below_ns`."""
    other_ns: int
    """Longer gaps between queued work, and gaps before work whose launch is unknown."""
    host_wait_ratio: Annotated[float | None, field_label(display="bar")]
    """Share of `idle_ns`; null without idle time."""
    kernel_wait_ratio: Annotated[float | None, field_label(display="bar")]
    """Share of `idle_ns`; null without idle time."""
    other_ratio: Annotated[float | None, field_label(display="bar")]
    """Share of `idle_ns`; null without idle time."""
    host_wait_count: int
    kernel_wait_count: int
    other_count: Annotated[int, field_label("other gaps")]
    longest_host_wait_ns: int


class TraceIdle(msgspec.Struct, frozen=True, kw_only=True):
    """Streams of one trace."""

    rank: int | None
    trace: str
    streams: list[StreamIdleView]
    missing: str | None
    quality: list[QualityNote]


class IdleView(Ranged, frozen=True, kw_only=True):
    """Payload of `idle`."""

    share_of: str
    kernel_wait_below_ns: int
    carry_over: CarryOver
    traces: list[TraceIdle]
    missing: str | None
    quality: list[QualityNote]


def show_idle(run: Run, options: ViewOptions = DEFAULTS) -> IdleView:
    """Show the idle time of streams by reason."""
    traces = select_traces(run, options)
    return IdleView(
        share_of="idle time of the stream between its first and its last work",
        kernel_wait_below_ns=KERNEL_WAIT_BELOW_NS,
        carry_over=options.carry_over,
        traces=[_show_trace(trace, options.carry_over) for trace in traces],
        missing=explain_no_traces(run, traces),
        quality=note_run_quality(run, traces),
    )


def _show_trace(trace: Trace, carry_over: CarryOver) -> TraceIdle:
    idle_times = measure_stream_idle(device_work_of(trace, carry_over), calls_of(trace))
    streams = streams_of(trace)
    return TraceIdle(
        rank=trace.rank,
        trace=trace.name,
        streams=[_show_stream(idle, streams.get(idle.track)) for idle in idle_times],
        missing=None if idle_times else explain_no_device_work(trace),
        quality=note_trace_quality(trace, "device", "launches"),
    )


def _show_stream(idle: StreamIdle, stream: int | None) -> StreamIdleView:
    idle_ns = idle.idle_ns
    return StreamIdleView(
        device=idle.device,
        stream=stream,
        work_count=idle.work_count,
        span_ns=idle.span_ns,
        busy_ns=idle.busy_ns,
        idle_ns=idle_ns,
        host_wait_ns=idle.host_wait_ns,
        kernel_wait_ns=idle.kernel_wait_ns,
        other_ns=idle.other_ns,
        host_wait_ratio=idle.host_wait_ns / idle_ns if idle_ns else None,
        kernel_wait_ratio=idle.kernel_wait_ns / idle_ns if idle_ns else None,
        other_ratio=idle.other_ns / idle_ns if idle_ns else None,
        host_wait_count=idle.host_wait_count,
        kernel_wait_count=idle.kernel_wait_count,
        other_count=idle.other_count,
        longest_host_wait_ns=idle.longest_host_wait_ns,
    )
