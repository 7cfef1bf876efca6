"""Statistics of the sampled metrics of a node, and CPU contention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.series import Series


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageShares:
    """Shares of samples below, within and above a range; within includes both limits."""

    count: int
    low_ratio: float
    middle_ratio: float
    high_ratio: float


def measure_usage(values: NDArray[np.float64], *, low: float, high: float) -> UsageShares:
    """Measure the shares of at least one sample below, within and above a range."""
    return UsageShares(
        count=len(values),
        low_ratio=float((values < low).mean()),
        middle_ratio=float(((values >= low) & (values <= high)).mean()),
        high_ratio=float((values > high).mean()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LowUse:
    """Time of consecutive samples below a limit."""

    start_ns: int
    """Time of the sample before, from which on the first of them counts."""
    end_ns: int
    mean: float
    minimum: float


def find_low_use(series: Series, below: float) -> list[LowUse]:
    """Find the runs of samples below a limit, in order of time; failed readings end a run."""
    is_low = series.value < below  # not a failed reading, which is NaN
    borders = np.flatnonzero(np.diff(np.concatenate([[False], is_low, [False]]).astype(np.int8)))
    return [
        LowUse(
            start_ns=int(series.t_ns[max(0, first - 1)]),
            end_ns=int(series.t_ns[end - 1]),
            mean=float(series.value[first:end].mean()),
            minimum=float(series.value[first:end].min()),
        )
        for first, end in borders.reshape(-1, 2).tolist()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """CPU contention: competition for the cores that the job needs."""

    outside_cores: float
    """Mean number of cores kept busy by other processes and other virtual machines."""
    waiting_ratio: float | None
    """Share of the sampled time in which the main thread of the training process was runnable but
    had no core. None on kernels that do not count it."""
    job_cores: float
    """Mean number of cores kept busy by the job."""
    stolen_cores: float = 0.0
    """Portion of `outside_cores` that the hypervisor gave to other virtual machines."""
    stolen_ratio: float = 0.0
    """Portion of `waiting_ratio` caused by the hypervisor."""
    throttled_ratio: float
    """Share of the time in which the job's cgroup had used up its quota."""

    @property
    def without_core_ratio(self) -> float:
        """Share of time without a core: `waiting_ratio`, or the throttling of the cgroup on
        kernels that do not count the waiting of a thread."""
        return self.throttled_ratio if self.waiting_ratio is None else self.waiting_ratio


class Means(Protocol):
    """Means of sampled metrics."""

    def mean(self, metric: str, device: str = "") -> float | None:
        """Mean value; None if never sampled: missing is not zero."""


def measure_contention(metrics: Means, training_pids: Sequence[int]) -> Contention | None:
    """Measure CPU contention; None if the CPU was not sampled.

    Ratios are means over the training processes. The kernel does not count time that the
    hypervisor takes from a running thread as waiting. It takes from all running threads alike: a
    thread that runs for the share r of the time loses r x stolen cores / running cores.
    """
    outside = metrics.mean("outside_cpu_cores")
    if outside is None:
        return None
    job_cores = metrics.mean("job_cpu_cores") or 0.0
    stolen_cores = min(outside, metrics.mean("stolen_cpu_cores") or 0.0)
    running = job_cores + outside + (metrics.mean("own_cpu_cores") or 0.0) - stolen_cores
    waiting, stolen = [], []
    for pid in training_pids:
        runqueue_ratio = metrics.mean("process_runqueue_ratio", str(pid))
        if runqueue_ratio is not None:
            running_ratio = min(1.0, metrics.mean("process_cpu_cores", str(pid)) or 0.0)
            stolen.append(running_ratio * stolen_cores / running if running else 0.0)
            waiting.append(min(1.0, runqueue_ratio + stolen[-1]))
    return Contention(
        outside_cores=outside,
        waiting_ratio=float(np.mean(waiting)) if waiting else None,
        job_cores=job_cores,
        throttled_ratio=metrics.mean("cgroup_throttled_ratio") or 0.0,
        stolen_cores=stolen_cores,
        stolen_ratio=float(np.mean(stolen)) if stolen else 0.0,
    )
