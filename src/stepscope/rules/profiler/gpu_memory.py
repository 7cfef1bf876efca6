"""GPUMemoryIncrease and GPUMemoryLeak: sudden increases and slow growth of GPU memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, quantities
from stepscope.quantities import count_of, fixed, number
from stepscope.rules.base import BoxPlot, Trigger
from stepscope.rules.inputs import RuleInputs, TracedGpu, TracedSteps, scan_indices
from stepscope.rules.parameters import Count, Percentage, fixed_beside
from stepscope.rules.quantile_sketch import QuantileSketch
from stepscope.rules.samples import (
    NO_GPU_MEMORY,
    NO_MEMORY_IN_TRACES,
    RollingWindow,
    gpu_memory_ratio,
)
from stepscope.rules.templates import Devices, DeviceState, GpuInTrace, PerDeviceRule


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUMemoryIncreaseParameters:
    """Definition of an increase."""

    increase: Percentage = 5.0
    """Increase of the mean, in percentage points of the GPU's memory."""
    patience: Count = 1000
    """No decision until a GPU has more samples than this."""
    window: Count = 10
    """Samples in each of the two means."""


class MemoryIncreaseDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one GPU."""

    memory_percent: BoxPlot = BoxPlot()
    """Used memory over the whole run."""
    rise_count: int = 0
    """Increases."""
    largest_rise_percent: float = 0.0
    """Largest increase, in percentage points of the memory."""


class GPUMemoryIncreaseDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Memory by GPU."""

    gpus: dict[str, MemoryIncreaseDetails] = {}
    """By GPU, as `node/number`."""


class _MemoryState(DeviceState, kw_only=True):
    window: RollingWindow
    times: RollingWindow
    """Times of the samples of the window."""
    usage: QuantileSketch = msgspec.field(default_factory=QuantileSketch)
    increasing: bool = False
    """True if the latest sample belongs to an increase."""
    largest_points: float = 0.0


class GPUMemoryIncrease(PerDeviceRule[GPUMemoryIncreaseParameters, _MemoryState]):
    """Checks for sudden increases of GPU memory.

    ## What it checks
    At each sample, the mean of the last `window` samples of a GPU's memory against the mean of the
    `window` samples before them, both as a share of its memory. A difference above `increase`
    percentage points is an increase; consecutive samples that show it are one increase, and one
    violation. Datapoints are the samples of the GPU that has most. In an imported trace with memory
    events, the peak of each step is compared with that of the step before.

    ## Why it matters
    Memory that grows in jumps, for example with longer inputs, ends in an out-of-memory error
    hours later. For slow growth see GPUMemoryLeak.

    ## What to do
    Find out what the job started at that time (a longer sequence, a validation pass, another
    shape). If usage is near its maximum, use a GPU with more memory.

    ## Where the numbers differ from SageMaker Debugger's
    The two windows do not overlap. Debugger's previous window shares all but one of its samples
    with the current one, so its default of 5 needs a jump of more than 25 points; here, as its
    report says, a mean that goes from 10% to 16% fires. An increase counts once, not once per
    sample.
    """

    topic = "GPU memory"
    parameters_type = GPUMemoryIncreaseParameters
    recommendation = (
        "Find what needs the memory from then on. If usage is near its maximum, use a GPU with "
        "more memory."
    )
    metrics = ("gpu_memory_used_bytes", "gpu_memory_used_ratio")
    evidence = ("system", "memory")
    plots = ("gpu_memory_used_bytes", "gpu_memory_used_ratio")
    missing = NO_GPU_MEMORY
    missing_in_traces = NO_MEMORY_IN_TRACES
    rests_on_devices = True
    samples = staticmethod(gpu_memory_ratio)
    details_type = GPUMemoryIncreaseDetails

    @property
    def patience_count(self) -> int:
        return max(self.parameters.patience, 2 * self.parameters.window - 1)

    def new_device(self) -> _MemoryState:
        length = 2 * self.parameters.window
        return _MemoryState(window=RollingWindow(length), times=RollingWindow(length))

    def update_device(
        self, device: _MemoryState, series: analysis.Series, inputs: RuleInputs, trigger: Trigger
    ) -> None:
        p = self.parameters
        device.usage.add(series.value)
        previous_count = device.datapoint_count
        device.datapoint_count += len(series.value)
        joined, previous = device.window.extend(series.value)
        t_ns, _ = device.times.extend(series.t_ns)
        if len(joined) < 2 * p.window:
            return
        means = np.lib.stride_tricks.sliding_window_view(joined, p.window).mean(axis=1)
        # Rounded, so that equal readings give equal sums: the comparison is strict.
        points = np.round(100 * (means[p.window :] - means[: -p.window]), 9)
        index = np.arange(2 * p.window - 1, len(joined)) - previous
        is_new = (index >= 0) & (previous_count + index + 1 > p.patience)
        points, index = points[is_new], index[is_new]
        if not len(points):
            return
        increases = points > p.increase
        starts = increases & ~np.append(device.increasing, increases[:-1])
        device.largest_points = max(device.largest_points, float(points.max()))
        device.violation_count += int(starts.sum())
        device.triggered = device.violation_count > 0
        device.increasing = bool(increases[-1])
        increase_ends = index[increases]
        trigger.add_scans(inputs, np.unique(scan_indices(inputs, series.t_ns[increase_ends])))
        ends = increase_ends + previous
        trigger.cover(t_ns[ends + 1 - p.window], t_ns[ends])

    def evaluate_in_trace(self, gpu: TracedGpu, steps: TracedSteps) -> GpuInTrace | None:
        peaks = gpu.ratio_of_memory(gpu.peak_bytes)
        if peaks is None or len(peaks) < 2:
            return None
        points = np.round(100 * np.diff(peaks), 9)
        rises = points > self.parameters.increase
        usage = QuantileSketch()
        usage.add(peaks)
        largest = max(0.0, float(points.max()))
        return GpuInTrace(
            details=MemoryIncreaseDetails(
                memory_percent=usage.box_plot(100),
                rise_count=int(rises.sum()),
                largest_rise_percent=round(largest, 6),
            ),
            datapoint_count=len(peaks),
            violation_count=int(rises.sum()),
            sentence=f"{count_of(int(rises.sum()), 'increase')} of peak memory from one step to "
            f"the next, at most {self._write_points(largest)} points; peak memory use "
            f"{quantities.percent(float(peaks.max()), 1)}.",
        )

    def details_of(self, device: _MemoryState) -> MemoryIncreaseDetails:
        return MemoryIncreaseDetails(
            memory_percent=device.usage.box_plot(100),
            rise_count=device.violation_count,
            largest_rise_percent=round(device.largest_points, 6),
        )

    def sentences(
        self, devices: Devices[_MemoryState], triggered: Devices[_MemoryState]
    ) -> Iterable[str]:
        p, total = self.parameters, sum(device.violation_count for device in devices.values())
        yield (
            f"{count_of(total, 'increase')} of mean GPU memory by more than {number(p.increase)} "
            f"percentage points from one window of {p.window} samples to the next."
        )
        for name, gpu in triggered.items():
            yield (
                f"{name.gpu_label}: {count_of(gpu.violation_count, 'increase')}, at most "
                f"{self._write_points(gpu.largest_points)} points; peak memory use "
                f"{quantities.percent(float(gpu.usage.values.max()), 1)}."
            )

    def _write_points(self, points: float) -> str:
        return fixed_beside(points, self.parameters.increase)


MINUTE_NS = 60_000_000_000
HOUR_NS = 60 * MINUTE_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUMemoryLeakParameters:
    """Definition of a leak."""

    increase: Percentage = 1.0
    """Minimum growth within the window, in percentage points of the GPU's memory."""
    window: Count = 30
    """Length of the window in minutes."""
    rises: Count = 5
    """Minimum number of minutes in which usage grew."""


class MemoryGrowthDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Memory growth of one GPU."""

    growth_percent: float = 0.0
    """Growth within the last window in violation, in percentage points of the memory."""
    growth_percent_per_hour: float = 0.0
    least_use_percent: float = 0.0
    """Minimum usage in the latest minute."""


class GPUMemoryLeakDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Memory growth by GPU."""

    gpus: dict[str, MemoryGrowthDetails] = {}
    """By GPU, as `node/number`."""


class _GrowthState(DeviceState, kw_only=True):
    minutes: intervals.Int = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Minutes with samples, ascending; the last one may not be complete."""
    minima: NDArray[np.float64] = msgspec.field(
        default_factory=lambda: np.empty(0, dtype=np.float64)
    )
    """Minimum usage of each minute."""
    growth: float = 0.0
    """Within the last window in violation."""
    growth_per_hour: float = 0.0


class GPUMemoryLeak(PerDeviceRule[GPUMemoryLeakParameters, _GrowthState]):
    """Checks for slow, steady growth of GPU memory.

    ## What it checks
    The minimum memory use of each GPU in each minute, and of it what no later minute of the last
    `window` undercuts. It grew in at least `rises` of the minutes, by at least `increase`
    percentage points in total, and as HostMemoryGrowth requires: in 7 of 8 sections of the window
    and in the last two. A GPU for which this holds at
    the end of a minute is a violation. Datapoints are minutes of the GPU that has most. In an
    imported trace with memory events, all of its steps take the place of the minutes, if there are
    more than `rises`.

    ## Why it matters
    Tensors that stay referenced (losses that keep their graph, growing lists, unbounded caches)
    end in an out-of-memory error hours or days later.

    ## What to do
    Record a window with memory and see `stepscope show RUN memory`. Store loss.item() or
    loss.detach() instead of loss, and bound caches.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule; its GPUMemoryIncrease only detects growth as fast as a jump.
    """

    topic = "GPU memory"
    parameters_type = GPUMemoryLeakParameters
    recommendation = (
        "Find the allocations that stay (`stepscope show RUN memory`, of a trace with memory), and "
        "detach tensors that are kept across steps."
    )
    metrics = ("gpu_memory_used_bytes", "gpu_memory_used_ratio")
    evidence = ("system", "memory")
    plots = ("gpu_memory_used_bytes", "gpu_memory_used_ratio")
    missing = NO_GPU_MEMORY
    missing_in_traces = NO_MEMORY_IN_TRACES
    rests_on_devices = True
    unit = "minutes with samples per GPU"
    samples = staticmethod(gpu_memory_ratio)
    details_type = GPUMemoryLeakDetails

    @property
    def patience_count(self) -> int:
        return self.parameters.window

    def new_device(self) -> _GrowthState:
        return _GrowthState()

    def update_device(
        self, device: _GrowthState, series: analysis.Series, inputs: RuleInputs, trigger: Trigger
    ) -> None:
        previous = len(device.minutes)
        _add_minutes(device, series)
        leak_ends = []
        # A minute is complete once a later one has samples.
        for last in range(max(previous - 1, 0), len(device.minutes) - 1):
            if self._is_leak(device, last):
                device.violation_count += 1
                end_ns = (int(device.minutes[last]) + 1) * MINUTE_NS - 1
                start_ns = int(device.minutes[last + 1 - self.parameters.window]) * MINUTE_NS
                leak_ends.append(end_ns)
                trigger.cover(max(start_ns, inputs.origin_ns), end_ns)
        device.triggered = device.violation_count > 0
        device.minutes = device.minutes[-self.parameters.window - 1 :]
        device.minima = device.minima[-self.parameters.window - 1 :]
        trigger.add_times(inputs, leak_ends)

    def _is_leak(self, device: _GrowthState, last: int) -> bool:
        p = self.parameters
        if last + 1 < p.window:
            return False
        minima = device.minima[last + 1 - p.window : last + 1]
        is_leak = self._grows(minima)
        if is_leak:
            device.growth = growth = float(minima[-1] - minima[0])
            minutes = device.minutes[last] - device.minutes[last + 1 - p.window]
            device.growth_per_hour = growth / float(minutes) * 60
        return is_leak

    def _grows(self, minima: NDArray[np.float64]) -> bool:
        """Return True if least use grows steadily."""
        p, floor = self.parameters, analysis.find_floor(minima)
        return bool(
            100 * float(floor[-1] - floor[0]) >= p.increase
            and (np.diff(floor) > 0).sum() >= p.rises
            and analysis.rises_steadily(floor)
        )

    def evaluate_in_trace(self, gpu: TracedGpu, steps: TracedSteps) -> GpuInTrace | None:
        minima = gpu.ratio_of_memory(gpu.min_bytes)
        if minima is None or len(minima) <= self.parameters.rises:
            return None
        grows = self._grows(minima)
        growth = float(minima[-1] - minima[0])
        hours = int(steps.times.end_ns[-1] - steps.times.end_ns[0]) / HOUR_NS
        change = "grew steadily" if grows else "did not grow steadily"
        return GpuInTrace(
            details=MemoryGrowthDetails(
                growth_percent=round(100 * growth, 6) if grows else 0.0,
                growth_percent_per_hour=round(100 * growth / hours, 6) if grows else 0.0,
                least_use_percent=round(100 * float(minima[-1]), 6),
            ),
            datapoint_count=len(minima),
            violation_count=int(grows),
            sentence=f"least memory use of a step {change}, by {fixed(100 * growth, 1)} percentage "
            f"points in {len(minima)} steps.",
        )

    def details_of(self, device: _GrowthState) -> MemoryGrowthDetails:
        return MemoryGrowthDetails(
            growth_percent=round(100 * device.growth, 6),
            growth_percent_per_hour=round(100 * device.growth_per_hour, 6),
            least_use_percent=round(100 * float(device.minima[-1]), 6),
        )

    def sentences(
        self, devices: Devices[_GrowthState], triggered: Devices[_GrowthState]
    ) -> Iterable[str]:
        for name, gpu in triggered.items():
            hours_left = (1 - float(gpu.minima[-1])) / gpu.growth_per_hour
            yield (
                f"{name.gpu_label}: memory grew by {fixed(100 * gpu.growth, 1)} percentage points "
                f"in {self.parameters.window} min without decreasing. At this rate it is full in "
                f"{quantities.duration(hours_left * HOUR_NS)}."
            )


def _add_minutes(device: _GrowthState, series: analysis.Series) -> None:
    minute = series.t_ns // MINUTE_NS
    first = np.flatnonzero(np.diff(minute, prepend=minute[0] - 1))
    minutes, minima = minute[first], np.minimum.reduceat(series.value, first)
    if len(device.minutes) and minutes[0] == device.minutes[-1]:
        device.minima[-1] = min(device.minima[-1], minima[0])
        minutes, minima = minutes[1:], minima[1:]
    device.datapoint_count += len(minutes)
    device.minutes = np.concatenate([device.minutes, minutes])
    device.minima = np.concatenate([device.minima, minima])
