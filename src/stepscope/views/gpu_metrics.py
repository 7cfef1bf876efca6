"""`gpu-metrics`: how well the multiprocessors of each device were used."""

from __future__ import annotations

from typing import Any

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
from stepscope.run import Run, Trace, calls_of, device_work_of, marked_steps
from stepscope.views.curves import buckets_of
from stepscope.views.lacking import no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across, quality_notes
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import chosen_traces, missing_recordings

NO_GRID = (
    "the recorder gave no grid of any kernel of device {device}, so its SM efficiency cannot be "
    "estimated"
)
NO_OCCUPANCY = "the recorder gave no occupancy of any kernel of device {device}"
EMPTY_RANGE = "the steps of this recording take no time at all, so there are no shares of it"
HEURISTIC = "which kernels use tensor or matrix cores is guessed from their names"


class DeviceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One device; null is what the recorder gave no data for."""

    device: int
    device_name: str | None
    memory_bytes: int | None
    compute_capability: str | None
    multiprocessor_count: int | None
    kernel_count: int
    utilization_ratio: float | None
    """Share of `range_ns` in which a kernel ran."""
    est_sm_efficiency_ratio: float | None
    """Mean over `range_ns` of min(1, blocks per multiprocessor of the kernels running)."""
    est_achieved_occupancy_ratio: float | None
    """Mean over kernels, by duration."""
    tensor_core_ratio: float | None
    """Share of the durations of its kernels; a heuristic."""
    utilization_curve_ratio: list[float]
    est_sm_efficiency_curve_ratio: list[float] | None


class TraceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one recording."""

    rank: int | None
    trace: str
    range_ns: int | None
    """From the first start of a step to the last end, each step until its device work is done."""
    bucket_ns: int | None
    """Width of the buckets of the curves, which cover the whole recording."""
    devices: list[DeviceMetrics]
    missing: str | None
    notes: list[str]
    quality: list[QualityNote]


class GpuMetricsView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    share_of: str
    traces: list[TraceMetrics]
    missing: str | None
    quality: list[QualityNote]


def gpu_metrics(run: Run, options: ViewOptions = DEFAULTS) -> GpuMetricsView:
    """How well the multiprocessors of each device were used."""
    traces = chosen_traces(run, options)
    return GpuMetricsView(
        share_of="range: from the first start of a step to the last end",
        traces=[_trace(run, trace, options) for trace in traces],
        missing=missing_recordings(run, traces),
        quality=notes_across(run, traces),
    )


def _trace(run: Run, trace: Trace, options: ViewOptions) -> TraceMetrics:
    work = device_work_of(trace, "keep")
    devices: list[DeviceMetrics] = []
    steps, cut = None, buckets_of(trace, options)
    if len(work):
        steps = find_trace_steps(marked_steps(run, trace).steps, work, calls_of(trace))
        devices = _devices(trace, steps, cut)
    return TraceMetrics(
        rank=trace.rank,
        trace=trace.name,
        range_ns=int(steps.extent.end[-1] - steps.extent.start[0]) if steps is not None else None,
        bucket_ns=cut.width_ns if cut is not None else None,
        devices=devices,
        missing=None if devices else no_device_work(trace),
        notes=_notes(devices),
        quality=quality_notes(trace, "device"),
    )


def _devices(trace: Trace, steps: TraceSteps, cut: Buckets | None) -> list[DeviceMetrics]:
    start_ns, end_ns = int(steps.extent.start[0]), int(steps.extent.end[-1])
    facts = _facts(trace)
    counts = {device: fact["multiprocessor_count"] for device, fact in facts.items()}
    known = {device: count for device, count in counts.items() if count}
    kernels = split_by_device(trace.columns("kernels", METRIC_KERNEL_COLUMNS), known)
    return [
        _device(device, facts.get(device, {}), measure_gpu_metrics(own, start_ns, end_ns, cut))
        for device, own in kernels.items()
    ]


def _facts(trace: Trace) -> dict[int, dict[str, Any]]:
    """What the recording says of each device; what it does not say is None."""
    names = ("name", "memory_bytes", "compute_major", "compute_minor", "multiprocessor_count")
    found = trace.columns("devices", ("device", *names))
    facts: dict[int, dict[str, Any]] = {}
    for row, device in enumerate(found["device"].tolist()):
        fact = {name: int(found[name][row]) for name in names[1:]}
        facts[device] = {name: value if value >= 0 else None for name, value in fact.items()}
        facts[device]["name"] = found["name"].values[found["name"].codes[row]]
    return facts


def _device(device: int, facts: dict[str, Any], found: GpuMetrics) -> DeviceMetrics:
    major, minor = facts.get("compute_major"), facts.get("compute_minor")
    return DeviceMetrics(
        device=device,
        device_name=facts.get("name"),
        memory_bytes=facts.get("memory_bytes"),
        compute_capability=f"{major}.{minor}" if major is not None and minor is not None else None,
        multiprocessor_count=facts.get("multiprocessor_count"),
        kernel_count=found.kernel_count,
        utilization_ratio=found.utilization_ratio,
        est_sm_efficiency_ratio=found.sm_efficiency_ratio,
        est_achieved_occupancy_ratio=found.occupancy_ratio,
        tensor_core_ratio=found.tensor_core_ratio,
        utilization_curve_ratio=found.utilization_curve,
        est_sm_efficiency_curve_ratio=found.sm_efficiency_curve,
    )


def _notes(devices: list[DeviceMetrics]) -> list[str]:
    if any(device.utilization_ratio is None for device in devices):
        return [EMPTY_RANGE]
    grids = [NO_GRID.format(device=d.device) for d in devices if d.est_sm_efficiency_ratio is None]
    occupancies = [
        NO_OCCUPANCY.format(device=d.device)
        for d in devices
        if d.est_achieved_occupancy_ratio is None
    ]
    return [HEURISTIC, *grids, *occupancies] if devices else []
