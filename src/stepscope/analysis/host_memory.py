"""Host memory of the job on one node: its trend, those of its processes, limit and forecast.

Samples and steps are added range by range; the result does not depend on the ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from stepscope import intervals
from stepscope.analysis.machines import Series
from stepscope.analysis.memory_growth import (
    MAX_BLOCKS,
    TAIL_RATIO,
    Forecast,
    LeastSamples,
    MemoryTrend,
    StepCurve,
    forecast_full,
    measure_memory_trend,
)

HOST_MEMORY_METRICS = (
    "job_memory_bytes",
    "process_anonymous_bytes",
    "memory_available_bytes",
    "cgroup_memory_used_bytes",
    "cgroup_memory_limit_bytes",
    "address_space_free_bytes",
    "address_space_limit_bytes",
)
"""Metrics that the growth of host memory and its forecast rest on."""
MIN_PROCESS_SHARE = 0.05
"""Share of the growth of the job from which a process is named."""
MAX_PROCESSES = 512
"""Processes whose samples are held: those sampled last."""

LimitKind = Literal["container", "machine", "address_space"]


class MemoryLimit(NamedTuple):
    """The limit that growth reaches first."""

    kind: LimitKind
    limit_bytes: int
    free_bytes: int


class ProcessGrowth(NamedTuple):
    """Growth of one process."""

    pid: int
    trend: MemoryTrend
    share_ratio: float
    """Share of the growth of the job."""


class HostGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the job on one node up to its latest sample."""

    trend: MemoryTrend | None
    """None with too few samples."""
    processes: list[ProcessGrowth]
    """Processes that grow, the largest first; empty unless the job grows."""
    limit: MemoryLimit | None
    """None where no limit was recorded."""
    forecast: Forecast | None
    """When the limit is full, from the latest sample on; None unless the job grows."""
    latest_ns: int
    use_bytes: int
    """Memory of the job at the latest sample."""
    peak_bytes: int

    @property
    def is_growing(self) -> bool:
        """Return True if memory of the job grows steadily, for another reason than its inputs."""
        return self.trend is not None and self.trend.is_growing


class HostMemory(msgspec.Struct):
    """Samples and steps of one node, of bounded size."""

    machine_bytes: int | None
    """Memory of the node; None if not recorded."""
    job: LeastSamples = msgspec.field(default_factory=LeastSamples)
    processes: dict[int, LeastSamples] = msgspec.field(default_factory=dict)
    free: dict[LimitKind, LeastSamples] = msgspec.field(default_factory=dict)
    """What is left of each limit."""
    limits: dict[LimitKind, int] = msgspec.field(default_factory=dict)
    curves: dict[str, StepCurve] = msgspec.field(default_factory=dict)
    """Steps by rank."""
    latest_ns: int = 0
    use_bytes: float = 0.0
    peak_bytes: float = 0.0

    def add_steps(self, rank: str, end_ns: intervals.Int, wall_ns: intervals.Int) -> None:
        """Add consecutive steps of a rank on the node."""
        self.curves.setdefault(rank, StepCurve()).add(end_ns, wall_ns)

    def add(self, metrics: Mapping[str, Mapping[str, Series]]) -> None:
        """Add later samples, by metric and device, sorted by time."""
        job = metrics["job_memory_bytes"].get("")
        if job is not None and len(job.t_ns):
            self.job.add(job)
            self.latest_ns, self.use_bytes = int(job.t_ns[-1]), float(job.value[-1])
            self.peak_bytes = max(self.peak_bytes, float(job.value.max()))
        for number, series in metrics["process_anonymous_bytes"].items():
            # Moved to the end: the first ones have been silent for the longest time.
            samples = self.processes.pop(int(number), None) or LeastSamples()
            samples.add(series)
            self.processes[int(number)] = samples
        while len(self.processes) > MAX_PROCESSES:
            del self.processes[next(iter(self.processes))]
        if self.machine_bytes is not None:
            self._add_free("machine", metrics["memory_available_bytes"].get(""), None)
            self.limits["machine"] = self.machine_bytes
        used = metrics["cgroup_memory_used_bytes"].get("")
        limit = metrics["cgroup_memory_limit_bytes"].get("")
        if used is not None and limit is not None and len(used.t_ns) == len(limit.t_ns):
            self._add_free("container", Series(used.t_ns, limit.value - used.value), limit)
        self._add_free(
            "address_space",
            metrics["address_space_free_bytes"].get(""),
            metrics["address_space_limit_bytes"].get(""),
        )

    def _add_free(self, kind: LimitKind, free: Series | None, limit: Series | None) -> None:
        if free is None or not len(free.t_ns):
            return
        self.free.setdefault(kind, LeastSamples()).add(free)
        if limit is not None and len(limit.t_ns):
            self.limits[kind] = int(limit.value[-1])

    @property
    def steps(self) -> StepCurve | None:
        """Steps of the first rank on the node; None without any."""
        return self.curves[min(self.curves)] if self.curves else None

    def measure(self) -> HostGrowth:
        """Measure the growth so far."""
        trend = measure_memory_trend(self.job.series, self.steps)
        is_growing = trend is not None and trend.is_growing
        limit = self._find_limit(trend)
        forecast = None
        if trend is not None and is_growing and limit is not None:
            forecast = forecast_full(trend, limit.free_bytes, self.steps)
        if forecast is not None and trend is not None:
            elapsed_ns = self.latest_ns - trend.end_ns
            forecast = forecast._replace(in_ns=forecast.in_ns.shift(-elapsed_ns))
        return HostGrowth(
            trend=trend,
            processes=self._find_growing(trend) if trend is not None and is_growing else [],
            limit=limit,
            forecast=forecast,
            latest_ns=self.latest_ns,
            use_bytes=round(self.use_bytes),
            peak_bytes=round(self.peak_bytes),
        )

    def _find_growing(self, trend: MemoryTrend) -> list[ProcessGrowth]:
        growing = []
        for pid, samples in self.processes.items():
            process_trend = measure_memory_trend(samples.series, self.steps)
            # A process that has ended holds nothing.
            has_ended = samples.series.t_ns[-1] < trend.end_ns
            if process_trend is None or not process_trend.is_steady or has_ended:
                continue
            share = process_trend.per_hour.value / trend.per_hour.value
            if share >= MIN_PROCESS_SHARE:
                growing.append(ProcessGrowth(pid, process_trend, min(1.0, share)))
        return sorted(growing, key=lambda process: (-process.share_ratio, process.pid))

    def _find_limit(self, trend: MemoryTrend | None) -> MemoryLimit | None:
        """Return the limit with the least left: at the end of the trend, or at the latest
        sample."""
        limits = []
        for kind, samples in self.free.items():
            if kind not in self.limits:
                continue
            t_ns, free = samples.series
            rows = np.zeros(len(t_ns), dtype=np.bool_)
            if trend is not None:
                width = (trend.end_ns - trend.start_ns) * max(TAIL_RATIO, 1 / MAX_BLOCKS)
                rows = (t_ns >= trend.end_ns - width) & (t_ns <= trend.end_ns)
            free_bytes = float(free[rows].min()) if rows.any() else float(free[-1])
            limits.append(MemoryLimit(kind, self.limits[kind], max(0, round(free_bytes))))
        return min(limits, key=lambda limit: limit.free_bytes, default=None)
