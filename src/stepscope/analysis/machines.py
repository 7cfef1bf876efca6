"""Samples of the metrics of a node: series, ticks, statistics, contention for cores.

Time without a core of a training thread, by phase. The kernel counts how long a thread was runnable
without a core; the stack sampler reads that at each sample. The delay between two samples is
divided between the phases in proportion to the time in which the thread wanted a core: not while it
waits for a batch that is not ready, unless it did nothing else between the samples. The delay of a
host that runs ahead of its device costs nothing.

An operator that runs in several threads ends with the last of them, so the compute phases are also
delayed by the other threads. Only the mean number of those without a core is recorded. If delays of
threads are independent of each other, one of them at least has no core for the share

    1 - exp(-mean number)

of the time, which delays the phases where the training thread has a core itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.steps.phases import COMPUTE_PHASES, PhaseSpans, find_device_busy
from stepscope.analysis.steps.spans import Spans
from stepscope.analysis.steps.steps import Steps, find_step_at


class Device(NamedTuple):
    """A device of a node; `number` is empty for the node itself."""

    node: str
    number: str

    def __str__(self) -> str:
        return f"{self.node}/{self.number}"

    @property
    def gpu_label(self) -> str:
        """Label of a GPU in sentences."""
        return f"GPU {self.number} of node {self.node}"


class Series(NamedTuple):
    """Values by time; NaN for a failed reading."""

    t_ns: intervals.Int
    value: NDArray[np.float64]

    def sort(self) -> Series:
        """Sort by time; samples of the same time keep their order."""
        if (self.t_ns[:-1] <= self.t_ns[1:]).all():
            return self
        order = np.argsort(self.t_ns, kind="stable")
        return Series(self.t_ns[order], self.value[order])

    def mean_between(self, start_ns: int, end_ns: int) -> float | None:
        """Compute the mean of the values in a range of time, the end exclusive; None without any.

        The series is sorted.
        """
        first, last = np.searchsorted(self.t_ns, [start_ns, end_ns])
        values = self.value[first:last]
        return float(values.mean()) if len(values) else None


NO_SAMPLES = Series(np.empty(0, dtype=np.int64), np.empty(0))


def merge_series(series: Iterable[Series]) -> Series:
    """Merge the samples of several series, sorted by time."""
    parts = [NO_SAMPLES, *series]
    return Series(
        np.concatenate([part.t_ns for part in parts]),
        np.concatenate([part.value for part in parts]),
    ).sort()


def numeric_sort_key(device: str) -> tuple[int, str]:
    """Return a key that sorts devices: names first, then numbers by value."""
    return (int(device), "") if device.isdecimal() else (-1, device)


TICK_NS = 20_000_000
"""Maximum gap between consecutive samples of one tick."""
HEATMAP_TICKS = 1000
HEATMAP_METRICS = (
    "gpu_busy_ratio",
    "gpu_memory_used_ratio",
    "gpu_memory_used_bytes",
    "cpu_busy_ratio",
    "core_busy_ratio",
    "memory_used_ratio",
    "memory_used_bytes",
    "cpu_iowait_ratio",
    "network_received_bytes_per_s",
    "network_sent_bytes_per_s",
    "network_bytes",
)
"""Metrics of a heat map, from top to bottom."""


def group_into_ticks(times: intervals.Int) -> tuple[intervals.Int, intervals.Int]:
    """Group sorted sample times into ticks.

    Returns:
        The index of each tick's first sample, and the tick of each sample.
    """
    first = np.diff(times, prepend=times[:1] - TICK_NS - 1) > TICK_NS
    return np.flatnonzero(first), np.cumsum(first) - 1


def average_devices(devices: Mapping[str, Series]) -> Series:
    """Average a metric over its numbered devices in each tick; times are the ticks' starts."""
    samples = merge_series(series for number, series in devices.items() if number)
    first, tick = group_into_ticks(samples.t_ns)
    return Series(samples.t_ns[first], np.bincount(tick, weights=samples.value) / np.bincount(tick))


class HeatmapRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a heat map."""

    node: str
    metric: str
    device: str
    scale: float
    """Value drawn in full color: 1 for a ratio, otherwise the largest value of the row."""


class Heatmap(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics of nodes over their last sampling ticks."""

    t_ns: intervals.Int
    """Start of each tick: the columns of `values`. Of several nodes, the ticks of the one with most
    samples."""
    rows: list[HeatmapRow]
    """By node; GPUs first, then cores, memory, I/O wait, network."""
    values: NDArray[np.float64]
    """Rows by ticks, in the unit of each row's metric; NaN where nothing was sampled."""

    @property
    def shades(self) -> NDArray[np.float64]:
        """`values` as shares of each row's `scale`: 0 to 1."""
        scales = np.array([row.scale for row in self.rows]).reshape(-1, 1)
        shades: NDArray[np.float64] = self.values / scales
        return shades


def build_heatmap(
    samples: Mapping[str, Mapping[str, Mapping[str, Series]]], last: int = HEATMAP_TICKS
) -> Heatmap:
    """Build the heat map of nodes over their last ticks.

    Of two samples of a metric in one tick, the later one counts.

    Args:
        samples: by node, metric and device.
        last: number of ticks at most.
    """
    lines = [
        (node, name, device, series)
        for node, metrics in samples.items()
        for name in HEATMAP_METRICS
        for device, series in metrics.get(name, {}).items()
    ]
    times_by_node = [
        merge_series(series for owner, *_, series in lines if owner == node).t_ns
        for node in samples
    ]
    starts_by_node = [times[group_into_ticks(times)[0]] for times in times_by_node]
    starts = max(starts_by_node, key=len, default=intervals.EMPTY.start)
    starts = starts[max(0, len(starts) - last) :]
    values = np.full((len(lines), len(starts)), np.nan)
    for row, (*_, series) in enumerate(lines):
        tick = np.searchsorted(starts, series.t_ns, side="right") - 1
        values[row, tick[tick >= 0]] = series.value[tick >= 0]
    return Heatmap(
        t_ns=starts,
        rows=[
            HeatmapRow(
                node=node, metric=name, device=device, scale=find_full_scale(name, values[row])
            )
            for row, (node, name, device, _) in enumerate(lines)
        ],
        values=values,
    )


def find_full_scale(metric: str, values: NDArray[np.float64]) -> float:
    """Find the value that is drawn in full color: 1 for a ratio, otherwise the largest value."""
    if metric.endswith("_ratio"):
        return 1.0
    sampled = values[~np.isnan(values)]
    return float(sampled.max()) if len(sampled) and sampled.max() > 0 else 1.0


class UsageShares(msgspec.Struct, frozen=True, kw_only=True):
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


class LowUse(msgspec.Struct, frozen=True, kw_only=True):
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


class Contention(msgspec.Struct, frozen=True, kw_only=True):
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


class CoreDelays(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds without a core in the measured steps of a process."""

    phase_ns: Mapping[str, float]
    """By phase, those included in which other threads that the training thread waits for have no
    core: an estimate."""
    own_ns: float
    """Those of the training thread itself, as the kernel has counted them."""


def measure_core_delays(
    spans: Spans, delays: Spans, steps: Steps, waiting_threads: float = 0.0
) -> CoreDelays:
    """Measure the nanoseconds without a core of each phase, in the measured steps.

    Args:
        spans: spans of the process.
        delays: spans of its kind `run_queue`: the extent of each is the time between two samples,
            its value the time without a core.
        steps: steps of the process.
        waiting_threads: mean number of its other threads that share the operators of the training
            thread but have no core. Where a device computes, they do not matter.
    """
    device_busy = find_device_busy(spans.on_thread(steps.thread))
    measured = steps.measured()
    own_delays = all_delays = _measure_own_delays(spans, delays, steps, device_busy)
    if waiting_threads and not len(device_busy.start):
        phase_ns = {phase: float(times[measured].sum()) for phase, times in steps.phase_ns.items()}
        all_delays = _add_thread_delays(own_delays, phase_ns, waiting_threads)
    return CoreDelays(phase_ns=all_delays, own_ns=sum(own_delays.values()))


def _measure_own_delays(
    spans: Spans, delays: Spans, steps: Steps, device_busy: intervals.Intervals
) -> dict[str, float]:
    """Measure the delays of the training thread itself."""
    step = find_step_at((delays.start + delays.end) // 2, steps)
    delays = delays.take((step >= 0) & steps.measured()[np.maximum(step, 0)])
    if not len(delays):
        return {}
    borders = _make_disjoint(delays)
    free = intervals.unite(steps.evaluation, device_busy)
    phases = PhaseSpans.of_thread(spans, steps.thread).measure_host_phases(borders, free)
    spans = spans.on_thread(steps.thread)
    times = {phase: values[::2].astype(np.float64) for phase, values in phases.items()}
    extent_ns = np.maximum(1, borders[1::2] - borders[::2])
    delay_ns = np.minimum(delays.value, extent_ns)
    waits = spans.take(spans.is_kind("data_wait", "loader_start"))
    is_blocked = waits.is_kind("loader_start") | (waits.value == 0)
    blocked = waits.take(is_blocked)
    blocked_ns = np.zeros(len(delays))
    if len(blocked):
        extents = intervals.Intervals(borders[::2], borders[1::2])
        blocked_ns = np.minimum(
            times["data_wait"], intervals.overlap(extents, intervals.union(blocked.intervals))
        )
    wanted_ns = extent_ns - blocked_ns
    is_only_blocked = wanted_ns < delay_ns
    times["data_wait"] = times["data_wait"] - np.where(is_only_blocked, 0, blocked_ns)
    share = delay_ns / np.where(is_only_blocked, extent_ns, np.maximum(1, wanted_ns))
    return {phase: float((values * share).sum()) for phase, values in times.items()}


def _add_thread_delays(
    delays: Mapping[str, float], phase_ns: Mapping[str, float], waiting_threads: float
) -> dict[str, float]:
    """Add the delays of the threads that compute beside the training thread to its own.

    Args:
        delays: nanoseconds without a core of the training thread, by phase.
        phase_ns: wall time of each phase.
        waiting_threads: mean number of other threads without a core, over all of that time.
    """
    left_ns = {
        phase: max(0.0, phase_ns[phase] - delays.get(phase, 0.0)) for phase in COMPUTE_PHASES
    }
    compute_ns, all_ns = sum(left_ns.values()), sum(phase_ns.values())
    if not compute_ns or not all_ns:
        return dict(delays)
    has_core_ratio = 1 - sum(delays.values()) / all_ns
    delayed_ns = (1 - math.exp(-waiting_threads)) * max(0.0, has_core_ratio) * all_ns
    ratio = min(1.0, delayed_ns / compute_ns)
    return {**delays, **{p: delays.get(p, 0.0) + ratio * ns for p, ns in left_ns.items()}}


def _make_disjoint(delays: Spans) -> intervals.Int:
    """Return start and end of each delay in turn, without overlaps. Delays end in order."""
    start = delays.start.copy()
    start[1:] = np.clip(start[1:], delays.end[:-1], delays.end[1:])
    return np.stack([start, delays.end], axis=1).ravel()
