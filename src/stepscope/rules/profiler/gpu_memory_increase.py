"""Sudden increases of GPU memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from stepscope.analysis import Series
from stepscope.quantities import count_of, number, percent
from stepscope.rules.details import BoxPlot
from stepscope.rules.inputs import RuleInputs, scan_indices
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.quantile_sketch import QuantileSketch
from stepscope.rules.rolling_window import RollingWindow
from stepscope.rules.samples import NO_GPU_MEMORY, NO_MEMORY_IN_TRACES, gpu_memory_ratio
from stepscope.rules.templates import Devices, DeviceState, GpuInTrace, PerDeviceRule
from stepscope.rules.threshold_text import fixed_beside
from stepscope.rules.traces import TracedGpu, TracedSteps
from stepscope.rules.trigger import Trigger


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


@dataclass(slots=True, kw_only=True)
class _MemoryState(DeviceState):
    window: RollingWindow
    times: RollingWindow
    """Times of the samples of the window."""
    usage: QuantileSketch = field(default_factory=QuantileSketch)
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
    samples = staticmethod(gpu_memory_ratio)
    details_type = GPUMemoryIncreaseDetails

    @property
    def patience_count(self) -> int:
        return max(self.parameters.patience, 2 * self.parameters.window - 1)

    def new_device(self) -> _MemoryState:
        length = 2 * self.parameters.window
        return _MemoryState(window=RollingWindow(length), times=RollingWindow(length))

    def update_device(
        self, device: _MemoryState, series: Series, inputs: RuleInputs, trigger: Trigger
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
            f"{percent(float(peaks.max()), 1)}.",
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
                f"{percent(float(gpu.usage.values.max()), 1)}."
            )

    def _write_points(self, points: float) -> str:
        return fixed_beside(points, self.parameters.increase)
