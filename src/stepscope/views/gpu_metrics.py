"""`gpu-metrics`: utilization of the multiprocessors of each device."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import (
    METRIC_KERNEL_COLUMNS,
    Buckets,
    GpuMetrics,
    TraceSteps,
    find_trace_steps,
    measure_gpu_metrics,
    split_by_device,
)
from stepscope.quantities import percent
from stepscope.run import (
    DeviceFacts,
    Run,
    Trace,
    calls_of,
    count_multiprocessors,
    device_work_of,
    marked_steps,
    read_devices,
)
from stepscope.schema import field_label
from stepscope.views.curves import choose_buckets
from stepscope.views.missing_data import explain_no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import show_traces

UNKNOWN_GRID = (
    "SM efficiency leaves out {share} of the kernel time of device {device}: the profiler recorded "
    "no grid of these kernels"
)
UNKNOWN_OCCUPANCY = (
    "occupancy leaves out {share} of the kernel time of device {device}: the profiler recorded "
    "none or wrote 0 because it could not estimate it"
)
UNKNOWN_CORES = (
    "the names of {share} of the kernel time of device {device} do not show whether it is on "
    "tensor or matrix cores, so the share on them is a lower bound"
)
EMPTY_RANGE = "the steps of this trace have no duration, so there are no shares of it"
HEURISTIC = "use of tensor or matrix cores is guessed from kernel names"


class DeviceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One device; null where the profiler recorded no data."""

    device: int
    device_name: Annotated[str | None, field_label("name")]
    memory_bytes: Annotated[int | None, field_label("memory")]
    compute_capability: str | None
    multiprocessor_count: Annotated[int | None, field_label("SMs")]
    kernel_count: int
    utilization_ratio: float | None
    """Share of `range_ns` in which a kernel ran."""
    est_sm_efficiency_ratio: float | None
    """Mean over `range_ns`, without the time of kernels with an unknown grid, of min(1, blocks per
    multiprocessor of the running kernels)."""
    unknown_grid_ratio: Annotated[float | None, field_label("grid unknown")]
    """Share of kernel time that the SM efficiency leaves out."""
    est_achieved_occupancy_ratio: Annotated[float | None, field_label("est. occupancy")]
    """Mean over kernels, weighted by duration."""
    unknown_occupancy_ratio: Annotated[float | None, field_label("occupancy unknown")]
    """Share of kernel time that the occupancy leaves out: not recorded, or 0 where the profiler
    could not estimate it."""
    tensor_core_ratio: Annotated[float | None, field_label("on Tensor Cores")]
    """Share of the durations of its kernels, guessed from their names; a lower bound if there are
    unknown kernels."""
    unknown_tensor_core_ratio: Annotated[float | None, field_label("Tensor Cores unknown")]
    """Share of the durations of kernels whose names do not show it."""
    utilization_curve_ratio: Annotated[list[float], field_label("utilization over time")]
    est_sm_efficiency_curve_ratio: Annotated[
        list[float | None] | None, field_label("est. SM efficiency over time")
    ]
    """Null where kernels with an unknown grid ran all the time."""


class TraceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of one trace."""

    rank: int | None
    trace: str
    range_ns: int | None
    """Time from the first start of a step to the last end, each step until its device work is
    done."""
    bucket_ns: int | None
    """Width of the buckets of the curves, which cover the whole trace."""
    devices: list[DeviceMetrics]
    missing: str | None
    notes: list[str]
    quality: list[QualityNote]


class GpuMetricsView(Ranged, frozen=True, kw_only=True):
    """Payload of `gpu-metrics`."""

    share_of: str
    traces: list[TraceMetrics]
    missing: str | None
    quality: list[QualityNote]


def show_gpu_metrics(run: Run, options: ViewOptions = DEFAULTS) -> GpuMetricsView:
    """Show the utilization of the multiprocessors of each device."""
    return GpuMetricsView(
        share_of="range: time from the first start of a step to the last end",
        **show_traces(run, options, lambda trace: _show_trace(run, trace, options)),
    )


def _show_trace(run: Run, trace: Trace, options: ViewOptions) -> TraceMetrics:
    work = device_work_of(trace, "keep")
    devices: list[DeviceMetrics] = []
    steps, buckets = None, choose_buckets(trace, options)
    if len(work):
        steps = find_trace_steps(marked_steps(run, trace).steps, work, calls_of(trace))
        devices = _show_devices(trace, steps, buckets)
    return TraceMetrics(
        rank=trace.rank,
        trace=trace.name,
        range_ns=int(steps.extent.end[-1] - steps.extent.start[0]) if steps is not None else None,
        bucket_ns=buckets.width_ns if buckets is not None else None,
        devices=devices,
        missing=None if devices else explain_no_device_work(trace),
        notes=_write_notes(devices),
        quality=note_trace_quality(trace, "device"),
    )


def _show_devices(trace: Trace, steps: TraceSteps, buckets: Buckets | None) -> list[DeviceMetrics]:
    start_ns, end_ns = int(steps.extent.start[0]), int(steps.extent.end[-1])
    facts = read_devices(trace)
    kernels = split_by_device(
        trace.columns("kernels", METRIC_KERNEL_COLUMNS), count_multiprocessors(facts)
    )
    return [
        _show_device(
            device,
            facts.get(device, DeviceFacts()),
            measure_gpu_metrics(device_kernels, start_ns, end_ns, buckets),
        )
        for device, device_kernels in kernels.items()
    ]


def _show_device(device: int, facts: DeviceFacts, metrics: GpuMetrics) -> DeviceMetrics:
    major, minor = facts.compute_major, facts.compute_minor
    return DeviceMetrics(
        device=device,
        device_name=facts.name,
        memory_bytes=facts.memory_bytes,
        compute_capability=f"{major}.{minor}" if major is not None and minor is not None else None,
        multiprocessor_count=facts.multiprocessor_count,
        kernel_count=metrics.kernel_count,
        utilization_ratio=metrics.utilization_ratio,
        est_sm_efficiency_ratio=metrics.sm_efficiency_ratio,
        unknown_grid_ratio=metrics.unknown_grid_ratio,
        est_achieved_occupancy_ratio=metrics.occupancy_ratio,
        unknown_occupancy_ratio=metrics.unknown_occupancy_ratio,
        tensor_core_ratio=metrics.tensor_core_ratio,
        unknown_tensor_core_ratio=metrics.unknown_tensor_core_ratio,
        utilization_curve_ratio=metrics.utilization_curve,
        est_sm_efficiency_curve_ratio=metrics.sm_efficiency_curve,
    )


def _write_notes(devices: list[DeviceMetrics]) -> list[str]:
    if any(device.utilization_ratio is None for device in devices):
        return [EMPTY_RANGE]
    unknown = [
        sentence.format(share=percent(share, 1), device=device.device)
        for device in devices
        for sentence, share in (
            (UNKNOWN_CORES, device.unknown_tensor_core_ratio),
            (UNKNOWN_GRID, device.unknown_grid_ratio),
            (UNKNOWN_OCCUPANCY, device.unknown_occupancy_ratio),
        )
        if share
    ]
    return [HEURISTIC, *unknown] if devices else []
