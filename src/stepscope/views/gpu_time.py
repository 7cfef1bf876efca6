"""`gpu-time`: how the time of the devices is divided, per recording and per device."""

from __future__ import annotations

from dataclasses import asdict

import msgspec

from stepscope.analysis import GpuTime, measure_gpu_time, measure_gpu_time_by_device
from stepscope.run import CarryOver, Run, Trace, device_work_of
from stepscope.views.lacking import no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across, quality_notes
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import chosen_traces, missing_recordings


class GpuShares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of `total_ns`; the first four sum to one."""

    compute_ratio: float
    exposed_comm_ratio: float
    exposed_memcpy_ratio: float
    idle_ratio: float
    busy_ratio: float


class DeviceGpuTime(msgspec.Struct, frozen=True, kw_only=True):
    """One device, from its own first work to its own last; fields as in `TraceGpuTime`."""

    device: int
    total_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    memset_ns: int
    comm_ns: int
    exposed_comm_ns: int
    exposed_memcpy_ns: int
    same_stream_overlap_count: int
    gpu_event_count: int
    shares: GpuShares | None


class TraceGpuTime(msgspec.Struct, frozen=True, kw_only=True):
    """All devices of one recording together; times are null where no device did anything."""

    rank: int | None
    trace: str
    total_ns: int | None
    """From the first start to the last end of any kernel, copy or set."""
    busy_ns: int | None
    idle_ns: int | None
    compute_ns: int | None
    """Kernels that do not communicate, and sets."""
    memset_ns: int | None
    """Sets alone; part of `compute_ns`."""
    comm_ns: int | None
    """Kernels of collectives."""
    exposed_comm_ns: int | None
    """Communication while nothing is computed."""
    exposed_memcpy_ns: int | None
    """Copies while nothing is computed and nothing communicated."""
    same_stream_overlap_count: int | None
    gpu_event_count: int
    shares: GpuShares | None
    comm_hidden_ratio: float | None
    """Share of `comm_ns` that computation hides."""
    devices: list[DeviceGpuTime]
    missing: str | None
    quality: list[QualityNote]


class GpuTimeView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    share_of: str
    carry_over: CarryOver
    """Whether work launched before the window counts."""
    traces: list[TraceGpuTime]
    missing: str | None
    quality: list[QualityNote]


def gpu_time(run: Run, options: ViewOptions = DEFAULTS) -> GpuTimeView:
    """How the time of the devices is divided."""
    traces = chosen_traces(run, options)
    return GpuTimeView(
        share_of="total: from the first start to the last end of work on the devices",
        carry_over=options.carry_over,
        traces=[_trace(trace, options.carry_over) for trace in traces],
        missing=missing_recordings(run, traces),
        quality=notes_across(run, traces),
    )


_NOTHING: dict[str, None] = dict.fromkeys(
    name for name in GpuTime.__dataclass_fields__ if name != "gpu_event_count"
)


def _trace(trace: Trace, carry_over: CarryOver) -> TraceGpuTime:
    work = device_work_of(trace.whole, carry_over)
    devices = measure_gpu_time_by_device(work, trace.within)
    found = devices[min(devices)] if len(devices) == 1 else measure_gpu_time(work, trace.within)
    figures = asdict(found) if found is not None else _NOTHING | {"gpu_event_count": 0}
    hidden = found.comm_ns - found.exposed_comm_ns if found is not None else 0
    return TraceGpuTime(
        rank=trace.rank,
        trace=trace.name,
        **figures,
        shares=_shares(found) if found is not None else None,
        comm_hidden_ratio=hidden / found.comm_ns if found is not None and found.comm_ns else None,
        devices=[
            DeviceGpuTime(device=device, **asdict(own), shares=_shares(own))
            for device, own in devices.items()
        ],
        missing=None if found is not None else no_device_work(trace),
        quality=quality_notes(trace, "device"),
    )


def _shares(found: GpuTime) -> GpuShares | None:
    if not found.total_ns:
        return None
    return GpuShares(
        compute_ratio=found.compute_ns / found.total_ns,
        exposed_comm_ratio=found.exposed_comm_ns / found.total_ns,
        exposed_memcpy_ratio=found.exposed_memcpy_ns / found.total_ns,
        idle_ratio=found.idle_ns / found.total_ns,
        busy_ratio=found.busy_ns / found.total_ns,
    )
