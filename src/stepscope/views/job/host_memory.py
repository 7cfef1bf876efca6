"""`host-memory`: what the memory of the machines goes to, how it grows and when it is full."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from stepscope import analysis, diagnosis, schema
from stepscope.run import (
    NO_MEMORY_SAMPLES,
    Bins,
    Holder,
    NodeMemory,
    ProcessMemory,
    Run,
    aggregate_samples,
    choose_bins,
    read_host_memory,
    read_memory_holders,
)
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions

MAX_POINTS = 400
MAX_PROCESSES = 64


class GrowthRate(msgspec.Struct, frozen=True, kw_only=True):
    """Rate of growth with its 95% interval."""

    bytes_per_step: Annotated[float | None, schema.field_label("per step", unit="bytes")]
    """Null without steps."""
    low_bytes_per_step: Annotated[
        float | None, schema.field_label("at least, per step", unit="bytes")
    ]
    high_bytes_per_step: Annotated[
        float | None, schema.field_label("at most, per step", unit="bytes")
    ]
    bytes_per_hour: Annotated[float, schema.field_label("per hour", unit="bytes")]
    low_bytes_per_hour: Annotated[float, schema.field_label("at least, per hour", unit="bytes")]
    high_bytes_per_hour: Annotated[float, schema.field_label("at most, per hour", unit="bytes")]


class MemoryForecast(msgspec.Struct, frozen=True, kw_only=True):
    """Time at which the limit is full if memory goes on growing, with the 95% interval."""

    full_in_ns: Annotated[float, schema.field_label("full in")]
    """Time from the latest sample on."""
    low_in_ns: Annotated[float, schema.field_label("at the earliest")]
    high_in_ns: Annotated[float | None, schema.field_label("at the latest")]
    """Null if the interval has no end."""
    full_at_step: Annotated[float | None, schema.field_label("at step", unit="count")]
    """Null without steps."""
    trend_end_after_ns: Annotated[int, schema.field_label("end of the trend")]
    """Latest evaluated sample, after the run's origin."""
    trend_end_bytes: Annotated[float, schema.field_label("memory at the end of the trend")]


class ProcessUse(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one process, at its latest sample unless it says otherwise."""

    name: str
    pid: Annotated[int, schema.field_label(display="identifier")]
    has_ended: bool
    """True if it ended before the latest sample of its node."""
    anonymous_bytes: float
    """Heap and other memory that is no part of a file, swapped pages included."""
    peak_bytes: float
    """Largest anonymous memory."""
    private_bytes: float | None
    """Mapped by no other process; null if it ended before it was read."""
    shared_bytes: float | None
    """Mapped by other processes, too."""
    file_bytes: float | None
    """Pages of mapped files, which the kernel can drop."""
    shared_memory_bytes: float | None
    """Pages of /dev/shm."""
    swap_bytes: float | None
    growth: GrowthRate | None
    """Null if it does not grow steadily, or not by a share that matters."""
    growth_share_ratio: Annotated[float | None, schema.field_label("share of growth")]
    """Share of the growth of the job on the node."""


class MemorySeries(msgspec.Struct, frozen=True, kw_only=True):
    """Memory over time by bin; null where nothing was sampled."""

    name: str
    largest: Annotated[list[float | None], schema.field_label(unit="bytes")]


class NodeMemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the job on one node."""

    node: str
    lines: list[str]
    """Growth and forecast, or the peak, one sentence each."""
    is_growing: bool
    used_bytes: float
    """Memory of the job at the latest sample."""
    peak_bytes: float
    limit_bytes: int | None
    limit: Annotated[str | None, schema.field_label("kind of limit")]
    """Kind of the limit with the least left: `container`, `machine` or `address_space`."""
    free_bytes: float | None
    """What is left of it at the end of the evaluated steps."""
    growth: GrowthRate | None
    """Null unless memory grows steadily."""
    forecast: MemoryForecast | None
    shared_memory_used_bytes: Annotated[float | None, schema.field_label("shared memory in use")]
    shared_memory_limit_bytes: Annotated[float | None, schema.field_label("size of shared memory")]
    """Of /dev/shm."""
    oom_kill_count: Annotated[int | None, schema.field_label("ended by the kernel")]
    """Processes that the kernel ended because memory was full; null where it does not tell."""
    processes: list[ProcessUse]
    """The processes that used most, largest first."""
    left_out_count: Annotated[int, schema.field_label("omitted processes")]
    series: list[MemorySeries]
    """The job, then the processes that grow."""


class HostMemoryView(Ranged, frozen=True, kw_only=True):
    """Payload of `host-memory`."""

    start_after_ns: int
    """Start of the first bin, after the run's origin."""
    piece_ns: int
    """Width of the bins."""
    nodes: list[NodeMemoryUse]
    holders: list[Holder]
    """Containers that hold what grows, from two censuses of a process; empty without them."""
    missing: str | None


def show_host_memory(run: Run, _options: ViewOptions = DEFAULTS) -> HostMemoryView:
    """Show what the memory of the machines goes to."""
    nodes = read_host_memory(run)
    bins = choose_bins(run, MAX_POINTS) if nodes else None
    return HostMemoryView(
        start_after_ns=0 if bins is None else bins.start_ns - run.clock.origin_ns,
        piece_ns=0 if bins is None else bins.width_ns,
        nodes=[_show_node(run, memory, bins) for memory in nodes],
        holders=read_memory_holders(run),
        missing=None if nodes else NO_MEMORY_SAMPLES,
    )


def _show_node(run: Run, memory: NodeMemory, bins: Bins | None) -> NodeMemoryUse:
    growth = memory.growth
    growing = {process.pid: process for process in growth.processes}
    shown = memory.processes[:MAX_PROCESSES]
    return NodeMemoryUse(
        node=memory.node,
        lines=diagnosis.describe_node_memory(memory),
        is_growing=growth.is_growing,
        used_bytes=growth.use_bytes,
        peak_bytes=growth.peak_bytes,
        limit_bytes=None if growth.limit is None else growth.limit.limit_bytes,
        limit=None if growth.limit is None else growth.limit.kind,
        free_bytes=None if growth.limit is None else growth.limit.free_bytes,
        growth=_show_rate(growth.trend) if growth.is_growing and growth.trend else None,
        forecast=_show_forecast(run, growth),
        shared_memory_used_bytes=memory.latest.get("shared_memory_used_bytes"),
        shared_memory_limit_bytes=memory.latest.get("shared_memory_limit_bytes"),
        oom_kill_count=memory.oom_kill_count,
        processes=[
            _show_process(process, growing.get(process.pid), growth.latest_ns) for process in shown
        ],
        left_out_count=len(memory.processes) - len(shown),
        series=[] if bins is None else _show_series(run, memory, bins),
    )


def _show_process(
    process: ProcessMemory, growth: analysis.ProcessGrowth | None, latest_ns: int
) -> ProcessUse:
    latest = process.latest_bytes
    return ProcessUse(
        name=process.name,
        pid=process.pid,
        has_ended=process.end_ns < latest_ns,
        anonymous_bytes=latest["process_anonymous_bytes"],
        peak_bytes=process.peak_bytes,
        private_bytes=latest.get("process_private_bytes"),
        shared_bytes=latest.get("process_shared_bytes"),
        file_bytes=latest.get("process_file_bytes"),
        shared_memory_bytes=latest.get("process_shared_memory_bytes"),
        swap_bytes=latest.get("process_swap_bytes"),
        growth=None if growth is None else _show_rate(growth.trend),
        growth_share_ratio=None if growth is None else growth.share_ratio,
    )


def _show_rate(trend: analysis.MemoryTrend) -> GrowthRate:
    step = trend.per_step
    return GrowthRate(
        bytes_per_step=None if step is None else step.value,
        low_bytes_per_step=None if step is None else step.low,
        high_bytes_per_step=None if step is None else step.high,
        bytes_per_hour=trend.per_hour.value,
        low_bytes_per_hour=trend.per_hour.low,
        high_bytes_per_hour=trend.per_hour.high,
    )


def _show_forecast(run: Run, growth: analysis.HostGrowth) -> MemoryForecast | None:
    forecast, trend = growth.forecast, growth.trend
    if forecast is None or trend is None:
        return None
    in_ns = forecast.in_ns
    return MemoryForecast(
        full_in_ns=in_ns.value,
        low_in_ns=in_ns.low,
        high_in_ns=None if math.isinf(in_ns.high) else in_ns.high,
        full_at_step=None if forecast.step is None else forecast.step.value,
        trend_end_after_ns=trend.end_ns - run.clock.origin_ns,
        trend_end_bytes=trend.start_bytes + trend.growth_bytes,
    )


def _show_series(run: Run, memory: NodeMemory, bins: Bins) -> list[MemorySeries]:
    pids = {str(process.pid): process.pid for process in memory.growth.processes}
    metrics = ["job_memory_bytes", "process_anonymous_bytes"]
    by_device = {
        series.device: series
        for series in aggregate_samples(run.reader, bins, metrics, nodes=[memory.node])
        if series.device in pids or not series.device
    }
    return [
        MemorySeries(
            name="job" if not device else memory.names[pids[device]],
            largest=analysis.nan_to_none(by_device[device].maximum),
        )
        for device in ("", *pids)
        if device in by_device
    ]
