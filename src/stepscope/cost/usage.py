"""What each machine of a job used of itself, as means, 95th percentiles and peaks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import average_present
from stepscope.run import NodeMetrics, Run
from stepscope.schema import NodeInfo

FEWEST_SAMPLES = 100
"""A 95th percentile of fewer has less than five samples above it."""
_GPU = ("gpu_busy_ratio", "gpu_memory_used_bytes", "gpu_memory_used_ratio")
_NODE = ("cpu_busy_ratio", "memory_used_bytes", "memory_used_ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How much of something was used over time."""

    mean: float
    p95: float
    peak: float
    count: int
    """Samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """One machine; None, and nothing, for what was not sampled."""

    node: str
    cores: float
    """Available to the job."""
    cpu: Level | None
    """Share of them that ran anything."""
    memory_bytes: float | None
    """The most that was in use."""
    memory_ratio: float | None
    """The same of the machine's memory, where nobody says how much that is."""
    gpus: dict[str, Level]
    """Share of the time with a kernel running, by GPU."""
    gpu_memory_bytes: dict[str, float]
    """The most that was in use, by GPU."""
    gpu_memory_ratio: dict[str, float]
    """The same of the GPU's memory, where nobody says how much that is."""


def node_usage(run: Run) -> list[NodeUsage]:
    """What the machines used, by name: while the job trained, where steps were seen, else in all
    the time that was sampled."""
    begin = min((int(rank.steps.start[0]) for rank in run.ranks), default=None)
    end = max((int(rank.steps.end[-1]) for rank in run.ranks), default=None)
    return [
        _of_node(run.nodes[node], metrics.between(begin, end))
        for node, metrics in sorted(run.metrics.items())
    ]


def mean_p95(levels: list[Level]) -> float | None:
    """The mean of the 95th percentiles of machines or GPUs; None where one has too few samples."""
    if any(level.count < FEWEST_SAMPLES for level in levels):
        return None
    return average_present(level.p95 for level in levels)


def _of_node(info: NodeInfo, metrics: NodeMetrics) -> NodeUsage:
    samples = metrics.load(*_GPU, *_NODE)

    def peaks(metric: str) -> dict[str, float]:
        levels = (
            (each, _level(samples.series(metric, each))) for each in samples.devices_of(metric)
        )
        return {device: level.peak for device, level in levels if level is not None}

    busy = ((each, _level(samples.series(_GPU[0], each))) for each in samples.devices_of(_GPU[0]))
    return NodeUsage(
        node=info.node,
        cores=info.cores_available,
        cpu=_level(samples.series("cpu_busy_ratio")),
        memory_bytes=peaks("memory_used_bytes").get(""),
        memory_ratio=peaks("memory_used_ratio").get(""),
        gpus={gpu: level for gpu, level in busy if level is not None},
        gpu_memory_bytes=peaks("gpu_memory_used_bytes"),
        gpu_memory_ratio=peaks("gpu_memory_used_ratio"),
    )


def _level(values: NDArray[np.float64]) -> Level | None:
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    return Level(
        mean=float(known.mean()),
        p95=float(np.percentile(known, 95)),
        peak=float(known.max()),
        count=len(known),
    )
