"""`gpu-time`: breakdown of device time, by trace and by device."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import msgspec

from stepscope.analysis import GpuTime, measure_gpu_time, measure_gpu_time_by_device
from stepscope.run import CarryOver, Run, Trace, device_work_of
from stepscope.schema import field_label
from stepscope.views.missing_data import explain_no_device_work
from stepscope.views.options import COMMUNICATION_OF, DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import show_traces


class GpuShares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of `total_ns`; the first four sum to one."""

    compute_ratio: Annotated[float, field_label("computation")]
    exposed_comm_ratio: float
    exposed_memcpy_ratio: Annotated[float, field_label("exposed copies")]
    idle_ratio: float
    busy_ratio: float


class DeviceGpuTime(msgspec.Struct, frozen=True, kw_only=True):
    """One device, from its first work to its last; fields as in `TraceGpuTime`."""

    device: int
    total_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: Annotated[int, field_label("computation")]
    memset_ns: Annotated[int, field_label("sets")]
    comm_ns: int
    exposed_comm_ns: int
    exposed_memcpy_ns: Annotated[int, field_label("exposed copies")]
    same_stream_overlap_count: Annotated[int, field_label("overlaps within a stream")]
    gpu_event_count: Annotated[int, field_label("events")]
    shares: GpuShares | None


class TraceGpuTime(msgspec.Struct, frozen=True, kw_only=True):
    """All devices of one trace together; times are null without device work."""

    rank: int | None
    trace: str
    total_ns: int | None
    """Time from the first start to the last end of any kernel, copy or set."""
    busy_ns: int | None
    idle_ns: int | None
    compute_ns: Annotated[int | None, field_label("computation")]
    """Kernels that do not communicate, and sets."""
    memset_ns: Annotated[int | None, field_label("sets")]
    """Sets alone, included in `compute_ns`."""
    comm_ns: int | None
    """Kernels of collectives."""
    exposed_comm_ns: int | None
    """Communication without simultaneous compute."""
    exposed_memcpy_ns: Annotated[int | None, field_label("exposed copies")]
    """Copies without simultaneous compute or communication."""
    same_stream_overlap_count: Annotated[int | None, field_label("overlaps within a stream")]
    gpu_event_count: Annotated[int, field_label("events")]
    shares: GpuShares | None
    comm_hidden_ratio: float | None
    """Share of `comm_ns` that compute hides."""
    devices: list[DeviceGpuTime]
    missing: str | None
    quality: list[QualityNote]


class GpuTimeView(Ranged, frozen=True, kw_only=True):
    """Payload of `gpu-time`."""

    share_of: str
    communication_of: str
    """Definition of communication."""
    carry_over: CarryOver
    """Whether work launched before the window counts."""
    traces: list[TraceGpuTime]
    missing: str | None
    quality: list[QualityNote]


def show_gpu_time(run: Run, options: ViewOptions = DEFAULTS) -> GpuTimeView:
    """Show the breakdown of device time."""
    return GpuTimeView(
        share_of="total: time from the first start to the last end of work on the devices",
        communication_of=COMMUNICATION_OF[options.communication],
        carry_over=options.carry_over,
        **show_traces(run, options, lambda trace: _show_trace(trace, options)),
    )


_NO_TIMES: dict[str, None] = dict.fromkeys(
    name for name in GpuTime.__dataclass_fields__ if name != "gpu_event_count"
)


def _show_trace(trace: Trace, options: ViewOptions) -> TraceGpuTime:
    work = device_work_of(trace.whole, options.carry_over, options.communication)
    devices = measure_gpu_time_by_device(work, trace.within)
    total = devices[min(devices)] if len(devices) == 1 else measure_gpu_time(work, trace.within)
    times = asdict(total) if total is not None else _NO_TIMES | {"gpu_event_count": 0}
    hidden_ns = total.comm_ns - total.exposed_comm_ns if total is not None else 0
    return TraceGpuTime(
        rank=trace.rank,
        trace=trace.name,
        **times,
        shares=_compute_shares(total) if total is not None else None,
        comm_hidden_ratio=hidden_ns / total.comm_ns
        if total is not None and total.comm_ns
        else None,
        devices=[
            DeviceGpuTime(device=device, **asdict(time), shares=_compute_shares(time))
            for device, time in devices.items()
        ],
        missing=None if total is not None else explain_no_device_work(trace),
        quality=note_trace_quality(trace, "device"),
    )


def _compute_shares(time: GpuTime) -> GpuShares | None:
    if not time.total_ns:
        return None
    return GpuShares(
        compute_ratio=time.compute_ns / time.total_ns,
        exposed_comm_ratio=time.exposed_comm_ns / time.total_ns,
        exposed_memcpy_ratio=time.exposed_memcpy_ns / time.total_ns,
        idle_ratio=time.idle_ns / time.total_ns,
        busy_ratio=time.busy_ns / time.total_ns,
    )
