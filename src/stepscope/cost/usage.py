"""Utilization of a job's machines: means, 95th percentiles and peaks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import average_present
from stepscope.run import NodeMetrics, Run
from stepscope.schema import NodeInfo

MIN_SAMPLES = 100
"""A 95th percentile of fewer samples has less than five samples above it."""
_GPU_METRICS = ("gpu_busy_ratio", "gpu_memory_used_bytes", "gpu_memory_used_ratio")
_NODE_METRICS = ("cpu_busy_ratio", "memory_used_bytes", "memory_used_ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLevel:
    """Distribution of a utilization over time."""

    mean: float
    p95: float
    peak: float
    count: int
    """Number of samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUsage:
    """Utilization of one machine; None or empty where not sampled."""

    node: str
    cores: float
    """Cores available to the job."""
    cpu: UsageLevel | None
    """Busy share of these cores."""
    memory_bytes: float | None
    """Peak."""
    memory_ratio: float | None
    """Peak share of the machine's memory, for importers that do not know its size."""
    gpus: dict[str, UsageLevel]
    """Share of the time with a running kernel, by GPU."""
    gpu_memory_bytes: dict[str, float]
    """Peak by GPU."""
    gpu_memory_ratio: dict[str, float]
    """Peak share of the GPU's memory, for importers that do not know its size."""


def measure_node_usage(run: Run) -> list[MachineUsage]:
    """Measure the utilization of the machines by name: during training, or over all samples where
    no steps were recorded."""
    start = min((int(rank.steps.start[0]) for rank in run.ranks), default=None)
    end = max((int(rank.steps.end[-1]) for rank in run.ranks), default=None)
    return [
        _measure_node(run.nodes[node], metrics.between(start, end))
        for node, metrics in sorted(run.metrics.items())
    ]


def average_p95(levels: list[UsageLevel]) -> float | None:
    """Average the 95th percentiles of machines or GPUs; None where one has too few samples."""
    if any(level.count < MIN_SAMPLES for level in levels):
        return None
    return average_present(level.p95 for level in levels)


def _measure_node(info: NodeInfo, metrics: NodeMetrics) -> MachineUsage:
    samples = metrics.load(*_GPU_METRICS, *_NODE_METRICS)

    def measure_levels(metric: str) -> dict[str, UsageLevel]:
        levels = {
            device: _summarize_samples(series.value, metrics.repeat_by_time(series))
            for device, series in samples[metric].items()
        }
        return {device: level for device, level in levels.items() if level is not None}

    def measure_peaks(metric: str) -> dict[str, float]:
        return {device: level.peak for device, level in measure_levels(metric).items()}

    return MachineUsage(
        node=info.node,
        cores=info.cores_available,
        cpu=measure_levels("cpu_busy_ratio").get(""),
        memory_bytes=measure_peaks("memory_used_bytes").get(""),
        memory_ratio=measure_peaks("memory_used_ratio").get(""),
        gpus=measure_levels("gpu_busy_ratio"),
        gpu_memory_bytes=measure_peaks("gpu_memory_used_bytes"),
        gpu_memory_ratio=measure_peaks("gpu_memory_used_ratio"),
    )


def _summarize_samples(
    samples: NDArray[np.float64], over_time: NDArray[np.float64]
) -> UsageLevel | None:
    """Summarize samples; their values over time are those repeated by their interval."""
    count = int(np.count_nonzero(np.isfinite(samples)))
    if not count:
        return None
    present = over_time[np.isfinite(over_time)]
    return UsageLevel(
        mean=float(present.mean()),
        p95=float(np.percentile(present, 95)),
        peak=float(present.max()),
        count=count,
    )
