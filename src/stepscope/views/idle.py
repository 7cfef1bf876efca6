"""`idle`: why the streams of the devices were idle."""

from __future__ import annotations

import msgspec

from stepscope.analysis import KERNEL_WAIT_BELOW_NS, StreamIdle, measure_stream_idle
from stepscope.run import CarryOver, Run, Trace, calls_of, device_work_of, streams_of
from stepscope.views.lacking import no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across, quality_notes
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import chosen_traces, missing_recordings


class StreamIdleView(msgspec.Struct, frozen=True, kw_only=True):
    """One stream, from its first work to its last; busy and the three waits sum to the span."""

    stream: int | None
    device: int
    work_count: int
    span_ns: int
    busy_ns: int
    idle_ns: int
    host_wait_ns: int
    """The runtime call that launched the next work began after the stream had run dry."""
    kernel_wait_ns: int
    """Gaps between work that was queued, each shorter than `kernel_wait_below_ns`."""
    other_ns: int
    """Longer gaps between work that was queued, or whose launch is unknown."""
    host_wait_ratio: float | None
    """Share of `idle_ns`, as the next two; null when it is never idle."""
    kernel_wait_ratio: float | None
    other_ratio: float | None
    host_wait_count: int
    kernel_wait_count: int
    other_count: int
    longest_host_wait_ns: int


class TraceIdle(msgspec.Struct, frozen=True, kw_only=True):
    """The streams of one recording."""

    rank: int | None
    trace: str
    streams: list[StreamIdleView]
    missing: str | None
    quality: list[QualityNote]


class IdleView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    share_of: str
    kernel_wait_below_ns: int
    carry_over: CarryOver
    traces: list[TraceIdle]
    missing: str | None
    quality: list[QualityNote]


def idle(run: Run, options: ViewOptions = DEFAULTS) -> IdleView:
    """Why the streams of the devices were idle."""
    traces = chosen_traces(run, options)
    return IdleView(
        share_of="idle time of the stream, between its first and its last work",
        kernel_wait_below_ns=KERNEL_WAIT_BELOW_NS,
        carry_over=options.carry_over,
        traces=[_trace(trace, options.carry_over) for trace in traces],
        missing=missing_recordings(run, traces),
        quality=notes_across(run, traces),
    )


def _trace(trace: Trace, carry_over: CarryOver) -> TraceIdle:
    found = measure_stream_idle(device_work_of(trace, carry_over), calls_of(trace))
    streams = streams_of(trace)
    return TraceIdle(
        rank=trace.rank,
        trace=trace.name,
        streams=[_stream(one, streams.get(one.track)) for one in found],
        missing=None if found else no_device_work(trace),
        quality=quality_notes(trace, "device", "launches"),
    )


def _stream(found: StreamIdle, stream: int | None) -> StreamIdleView:
    idle_ns = found.idle_ns
    return StreamIdleView(
        device=found.device,
        stream=stream,
        work_count=found.work_count,
        span_ns=found.span_ns,
        busy_ns=found.busy_ns,
        idle_ns=idle_ns,
        host_wait_ns=found.host_wait_ns,
        kernel_wait_ns=found.kernel_wait_ns,
        other_ns=found.other_ns,
        host_wait_ratio=found.host_wait_ns / idle_ns if idle_ns else None,
        kernel_wait_ratio=found.kernel_wait_ns / idle_ns if idle_ns else None,
        other_ratio=found.other_ns / idle_ns if idle_ns else None,
        host_wait_count=found.host_wait_count,
        kernel_wait_count=found.kernel_wait_count,
        other_count=found.other_count,
        longest_host_wait_ns=found.longest_host_wait_ns,
    )
