"""Utilization over time: of the samples of a job, else of the kernels in traces."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stepscope.analysis import (
    Buckets,
    RecordedKernels,
    cut_into_buckets,
    find_recorded_kernels,
    measure_recorded_utilization,
    nan_to_none,
)
from stepscope.run import RecordedWork, Run, aggregate_samples, choose_bins
from stepscope.views.curves import find_profiled_range

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
            UtilizationSeries(name=series.node, busy_ratio=nan_to_none(series.mean))
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
            UtilizationSeries(name=name, busy_ratio=measure_recorded_utilization(devices, buckets))
            for name, devices in groups.items()
        ],
    )


def _group_devices(run: Run, recorded: Sequence[RecordedWork]) -> dict[str, list[RecordedKernels]]:
    """Group the devices with kernels by node; alone where the trace does not name its node."""
    groups: dict[str, list[RecordedKernels]] = {}
    for one in recorded:
        if one.on_host:
            continue
        trace = one.trace
        during, shift_ns = find_profiled_range(trace), run.clock.shift_ns(trace.trace)
        for device in one.work.kernel_devices:
            name = trace.node or f"{trace.label}, GPU {device}"
            kernels = find_recorded_kernels(one.work, device, during, shift_ns=shift_ns)
            groups.setdefault(name, []).append(kernels)
    return groups


def _cut_into_buckets(devices: Sequence[RecordedKernels]) -> Buckets | None:
    """Cut the time from the first recorded work to the last into buckets."""
    start_ns = min((int(one.recorded.start[0]) for one in devices), default=0)
    end_ns = max((int(one.recorded.end[0]) for one in devices), default=0)
    return cut_into_buckets(start_ns, end_ns, max(1, -(-(end_ns - start_ns) // MAX_BINS)))
