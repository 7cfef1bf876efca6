"""`idle`: idle time of the streams of the devices, by reason."""

from __future__ import annotations

import msgspec

from stepscope.analysis import KERNEL_WAIT_BELOW_NS, StreamIdle, measure_stream_idle
from stepscope.run import CarryOver, Run, Trace, calls_of, device_work_of, streams_of
from stepscope.views.missing_data import explain_no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import show_traces


class TraceIdle(msgspec.Struct, frozen=True, kw_only=True):
    """Streams of one trace."""

    rank: int | None
    trace: str
    streams: list[StreamIdle]
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
    return IdleView(
        share_of="idle time of the stream between its first and its last work",
        kernel_wait_below_ns=KERNEL_WAIT_BELOW_NS,
        carry_over=options.carry_over,
        **show_traces(run, options, lambda trace: _show_trace(trace, options.carry_over)),
    )


def _show_trace(trace: Trace, carry_over: CarryOver) -> TraceIdle:
    streams = measure_stream_idle(
        device_work_of(trace, carry_over), calls_of(trace), streams=streams_of(trace)
    )
    return TraceIdle(
        rank=trace.rank,
        trace=trace.name,
        streams=streams,
        missing=None if streams else explain_no_device_work(trace),
        quality=note_trace_quality(trace, "device", "launches"),
    )
