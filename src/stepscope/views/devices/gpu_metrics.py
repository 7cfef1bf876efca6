"""`gpu-metrics`: utilization of the multiprocessors of each device, as a whole and over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from stepscope import analysis, quantities, schema
from stepscope.run import (
    DeviceFacts,
    RecordedWork,
    Run,
    Trace,
    aggregate_samples,
    calls_of,
    choose_bins,
    count_multiprocessors,
    device_work_of,
    marked_steps,
    read_devices,
)
from stepscope.views import trace_data
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions

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
HIGH_RATIO = 0.8
"""Utilization and SM efficiency from which on neither limits the steps."""
HEURISTIC = "use of tensor or matrix cores is guessed from kernel names"


class DeviceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One device; null where the profiler recorded no data."""

    device: int
    device_name: Annotated[str | None, schema.field_label("name")]
    memory_bytes: Annotated[int | None, schema.field_label("memory")]
    compute_capability: str | None
    multiprocessor_count: Annotated[int | None, schema.field_label("SMs")]
    kernel_count: int
    utilization_ratio: float | None
    """Share of `range_ns` in which a kernel ran."""
    est_sm_efficiency_ratio: float | None
    """Mean over `range_ns`, without the time of kernels with an unknown grid, of min(1, blocks per
    multiprocessor of the running kernels)."""
    unknown_grid_ratio: Annotated[float | None, schema.field_label("grid unknown")]
    """Share of kernel time that the SM efficiency leaves out."""
    est_achieved_occupancy_ratio: Annotated[float | None, schema.field_label("est. occupancy")]
    """Mean over kernels, weighted by duration."""
    unknown_occupancy_ratio: Annotated[float | None, schema.field_label("occupancy unknown")]
    """Share of kernel time that the occupancy leaves out: not recorded, or 0 where the profiler
    could not estimate it."""
    tensor_core_ratio: Annotated[float | None, schema.field_label("on Tensor Cores")]
    """Share of the durations of its kernels, guessed from their names; a lower bound if there are
    unknown kernels."""
    unknown_tensor_core_ratio: Annotated[float | None, schema.field_label("Tensor Cores unknown")]
    """Share of the durations of kernels whose names do not show it."""
    utilization_curve_ratio: Annotated[list[float], schema.field_label("utilization over time")]
    est_sm_efficiency_curve_ratio: Annotated[
        list[float | None] | None, schema.field_label("est. SM efficiency over time")
    ]
    """Null where kernels with an unknown grid ran all the time."""


class TraceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of one trace."""

    rank: int | None
    trace: str
    sentence: str
    """How much of its time and of its multiprocessors the least used device works; empty without
    devices."""
    range_ns: int | None
    """Time from the first start of a step to the last end, each step until its device work is
    done."""
    bucket_ns: int | None
    """Width of the buckets of the curves, which cover the whole trace."""
    devices: list[DeviceMetrics]
    missing: str | None
    notes: list[str]
    quality: list[trace_data.QualityNote]


class GpuMetricsView(Ranged, frozen=True, kw_only=True):
    """Payload of `gpu-metrics`."""

    share_of: str
    traces: list[TraceMetrics]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_gpu_metrics(run: Run, options: ViewOptions = DEFAULTS) -> GpuMetricsView:
    """Show the utilization of the multiprocessors of each device."""
    return GpuMetricsView(
        share_of="range: time from the first start of a step to the last end",
        **trace_data.show_traces(run, options, lambda trace: _show_trace(run, trace, options)),
    )


def _show_trace(run: Run, trace: Trace, options: ViewOptions) -> TraceMetrics:
    work = device_work_of(trace, "keep")
    devices: list[DeviceMetrics] = []
    steps, buckets = None, trace_data.choose_buckets(trace, options)
    if len(work):
        steps = analysis.find_trace_steps(marked_steps(run, trace).steps, work, calls_of(trace))
        devices = _show_devices(trace, steps, buckets)
    return TraceMetrics(
        rank=trace.rank,
        trace=trace.name,
        sentence=_write_sentence(devices),
        range_ns=int(steps.extent.end[-1] - steps.extent.start[0]) if steps is not None else None,
        bucket_ns=buckets.width_ns if buckets is not None else None,
        devices=devices,
        missing=None if devices else trace_data.explain_no_device_work(trace),
        notes=_write_notes(devices),
        quality=trace_data.note_trace_quality(trace, "device"),
    )


def _show_devices(
    trace: Trace, steps: analysis.TraceSteps, buckets: analysis.Buckets | None
) -> list[DeviceMetrics]:
    start_ns, end_ns = int(steps.extent.start[0]), int(steps.extent.end[-1])
    facts = read_devices(trace)
    kernels = analysis.split_by_device(
        trace.columns("kernels", analysis.METRIC_KERNEL_COLUMNS), count_multiprocessors(facts)
    )
    return [
        _show_device(
            device,
            facts.get(device, DeviceFacts()),
            analysis.measure_gpu_metrics(device_kernels, start_ns, end_ns, buckets),
        )
        for device, device_kernels in kernels.items()
    ]


def _show_device(device: int, facts: DeviceFacts, metrics: analysis.GpuMetrics) -> DeviceMetrics:
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


def _write_sentence(devices: list[DeviceMetrics]) -> str:
    """Write how much of its time and of its multiprocessors the least used device works."""
    measured = [device for device in devices if device.utilization_ratio is not None]
    if not measured:
        return ""
    device = min(measured, key=lambda device: device.utilization_ratio or 0.0)
    name = f"GPU {device.device}"
    if len(devices) > 1:
        name += f", the least used of {len(devices)},"
    busy, efficiency = device.utilization_ratio or 0.0, device.est_sm_efficiency_ratio
    text = f"{name} runs kernels {quantities.percent(busy)} of the time"
    if efficiency is not None:
        text += f" and fills an estimated {quantities.percent(efficiency)} of its SMs"
    if busy < HIGH_RATIO:
        text += ": Idle time shows what it waits for"
    elif efficiency is not None and efficiency < HIGH_RATIO:
        text += ": Kernels lists those with few blocks per SM"
    return f"{text}."


def _write_notes(devices: list[DeviceMetrics]) -> list[str]:
    if any(device.utilization_ratio is None for device in devices):
        return [EMPTY_RANGE]
    unknown = [
        sentence.format(share=quantities.percent(share, 1), device=device.device)
        for device in devices
        for sentence, share in (
            (UNKNOWN_CORES, device.unknown_tensor_core_ratio),
            (UNKNOWN_GRID, device.unknown_grid_ratio),
            (UNKNOWN_OCCUPANCY, device.unknown_occupancy_ratio),
        )
        if share
    ]
    return [HEURISTIC, *unknown] if devices else []


MAX_BINS = 300
MEAN_OF_GPUS = "mean over the GPUs of a node"
MEAN_OF_CORES = "mean over the cores available to the job"
SHARE_OF_TRACES = (
    "share of the time of the traces in which a kernel runs, mean over the GPUs of a node where "
    "the traces name it"
)
_DEFINITIONS = {"gpu_busy_ratio": MEAN_OF_GPUS, "cpu_busy_ratio": MEAN_OF_CORES}


class UtilizationSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One node or device over time."""

    name: str
    """Node, or rank and GPU where a trace does not name its node."""
    busy_ratio: list[float | None]
    """Mean of each bin; null where nothing was recorded."""


class UtilizationOverTime(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes on one time axis."""

    definition: str
    start_after_ns: int
    """Start of the first bin, after the run's origin."""
    piece_ns: int
    series: list[UtilizationSeries]


def show_sampled_utilization(run: Run, metric: str) -> UtilizationOverTime | None:
    """Show a sampled metric of every node; None where it was not sampled."""
    bins = choose_bins(run, MAX_BINS)
    if bins is None:
        return None
    sampled = aggregate_samples(run.reader, bins, (metric,), over_devices=True)
    if not sampled:
        return None
    return UtilizationOverTime(
        definition=_DEFINITIONS[metric],
        start_after_ns=bins.start_ns - run.clock.origin_ns,
        piece_ns=bins.width_ns,
        series=[
            UtilizationSeries(name=series.node, busy_ratio=analysis.nan_to_none(series.mean))
            for series in sampled
        ],
    )


def show_recorded_utilization(
    run: Run, recorded: Sequence[RecordedWork]
) -> UtilizationOverTime | None:
    """Show the kernels of every node, or device, in traces; None without kernels."""
    groups = _group_devices(run, recorded)
    buckets = _cut_into_buckets([one for devices in groups.values() for one in devices])
    if buckets is None:
        return None
    return UtilizationOverTime(
        definition=SHARE_OF_TRACES,
        start_after_ns=buckets.start_ns - run.clock.origin_ns,
        piece_ns=buckets.width_ns,
        series=[
            UtilizationSeries(
                name=name, busy_ratio=analysis.measure_recorded_utilization(devices, buckets)
            )
            for name, devices in groups.items()
        ],
    )


def _group_devices(
    run: Run, recorded: Sequence[RecordedWork]
) -> dict[str, list[analysis.RecordedKernels]]:
    """Group the devices with kernels by node; alone where the trace does not name its node."""
    groups: dict[str, list[analysis.RecordedKernels]] = {}
    for one in recorded:
        if one.on_host:
            continue
        trace = one.trace
        during, shift_ns = trace_data.find_profiled_range(trace), run.clock.shift_ns(trace.trace)
        for device in one.work.kernel_devices:
            name = trace.node or f"{trace.label}, GPU {device}"
            kernels = analysis.find_recorded_kernels(one.work, device, during, shift_ns=shift_ns)
            groups.setdefault(name, []).append(kernels)
    return groups


def _cut_into_buckets(devices: Sequence[analysis.RecordedKernels]) -> analysis.Buckets | None:
    """Cut the time from the first recorded work to the last into buckets."""
    start_ns = min((int(one.recorded.start[0]) for one in devices), default=0)
    end_ns = max((int(one.recorded.end[0]) for one in devices), default=0)
    return analysis.cut_into_buckets(start_ns, end_ns, max(1, -(-(end_ns - start_ns) // MAX_BINS)))
