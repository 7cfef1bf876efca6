"""What a node was doing: statistics of its sampled metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.statistics import Distribution, distribution
from stepscope.intervals import Int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Samples of one node, sorted by time. `metric`, `device` are positions in their lists."""

    t_ns: Int
    metric: NDArray[np.int32]
    metrics: Sequence[str]
    device: NDArray[np.int32]
    devices: Sequence[str]
    value: NDArray[np.float64]

    def series(self, metric: str, device: str = "") -> NDArray[np.float64]:
        """Values of one metric of one device, in time order; empty when never sampled."""
        if metric not in self.metrics or device not in self.devices:
            return np.empty(0)
        chosen = (self.metric == list(self.metrics).index(metric)) & (
            self.device == list(self.devices).index(device)
        )
        values: NDArray[np.float64] = self.value[chosen]
        return values

    def devices_of(self, metric: str) -> list[str]:
        """Devices that a metric was sampled of, numbers in numerical order."""
        if metric not in self.metrics:
            return []
        codes = np.unique(self.device[self.metric == list(self.metrics).index(metric)])
        return sorted((self.devices[code] for code in codes), key=numerically)


def numerically(device: str) -> tuple[int, str]:
    """A key that sorts devices: names first, then numbers by value."""
    return (int(device), "") if device.isdecimal() else (-1, device)


def metric_distributions(metrics: Metrics) -> dict[tuple[str, str], Distribution]:
    """The distribution of every metric of every device, by (metric, device)."""
    found = {}
    for name in metrics.metrics:
        for device in metrics.devices_of(name):
            summary = distribution(metrics.series(name, device))
            if summary is not None:
                found[name, device] = summary
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """Whether others took the CPU that the job wanted."""

    outside_cores: float
    """Mean number of cores kept busy by others, other virtual machines among them."""
    waiting_ratio: float | None
    """Share of the time in which the training process's main thread was ready to run but had no
    core. Denominator: the sampled time. None on kernels that do not count it."""
    job_cores: float
    stolen_cores: float = 0.0
    """Part of `outside_cores` that the hypervisor gave to other virtual machines."""
    stolen_ratio: float = 0.0
    """Part of `waiting_ratio` for which it did."""
    throttled_ratio: float
    """Share of the time in which the job's cgroup had used up its quota."""

    @property
    def without_core_ratio(self) -> float:
        """The waiting; the throttling on kernels that do not count the waiting of a thread, but
        that of a group."""
        return self.throttled_ratio if self.waiting_ratio is None else self.waiting_ratio


class Means(Protocol):
    """Means of sampled metrics."""

    def mean(self, metric: str, device: str = "") -> float | None:
        """Mean value, None when it was never sampled: missing is not zero."""


def contention(metrics: Means, training_pids: Sequence[int]) -> Contention | None:
    """None when the CPU was not sampled. Ratios are means over the training processes.

    The kernel does not count as waiting what the hypervisor takes from a thread that runs. It takes
    from all that run alike: from one that runs for the share r of the time r x stolen / running
    cores.
    """
    outside = metrics.mean("outside_cpu_cores")
    if outside is None:
        return None
    job_cores = metrics.mean("job_cpu_cores") or 0.0
    stolen_cores = min(outside, metrics.mean("stolen_cpu_cores") or 0.0)
    running = job_cores + outside + (metrics.mean("own_cpu_cores") or 0.0) - stolen_cores
    waiting, stolen = [], []
    for pid in training_pids:
        waited = metrics.mean("process_runqueue_ratio", str(pid))
        if waited is not None:
            runs = min(1.0, metrics.mean("process_cpu_cores", str(pid)) or 0.0)
            stolen.append(runs * stolen_cores / running if running else 0.0)
            waiting.append(min(1.0, waited + stolen[-1]))
    return Contention(
        outside_cores=outside,
        waiting_ratio=float(np.mean(waiting)) if waiting else None,
        job_cores=job_cores,
        throttled_ratio=metrics.mean("cgroup_throttled_ratio") or 0.0,
        stolen_cores=stolen_cores,
        stolen_ratio=float(np.mean(stolen)) if stolen else 0.0,
    )
