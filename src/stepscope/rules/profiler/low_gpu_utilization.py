"""Low or fluctuating GPU utilization."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from stepscope.analysis import Series
from stepscope.quantities import count_of, number
from stepscope.rules.details import BoxPlot
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.quantile_sketch import QuantileSketch
from stepscope.rules.samples import (
    GPU_ADVICE,
    NO_DEVICE_WORK_IN_TRACES,
    NO_GPU,
    gpu_utilization,
)
from stepscope.rules.templates import Devices, DeviceState, GpuInTrace, PerDeviceRule
from stepscope.rules.threshold_text import percent_beside
from stepscope.rules.traces import TracedGpu, TracedSteps
from stepscope.rules.trigger import Trigger
from stepscope.rules.usage import UsageSamples

MIN_FLUCTUATION_PERCENT = 50.0
"""Difference of p95 and p5, in percentage points, above which utilization fluctuates heavily."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowGPUUtilizationParameters:
    """Thresholds of GPU utilization."""

    threshold_p95: Percentage = 70.0
    """Utilization is low if its 95th percentile (%) is below this."""
    threshold_p5: Percentage = 10.0
    """Utilization fluctuates if its 95th percentile is above threshold_p95 and its 5th (%) is
    below this."""
    window: Count = 500
    """Latest samples over which the percentiles are computed."""
    patience: Count = 1000
    """No decision until a GPU has more samples than this."""


class GPUUsageDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Utilization of one GPU."""

    busy_percent: BoxPlot = BoxPlot()
    """Utilization over the whole run."""
    low_count: int = 0
    """Scans with low utilization."""
    fluctuating_count: int = 0
    """Scans with fluctuating utilization."""
    window_p95_percent: float | None = None
    """p95 of the last window in violation; None without a violation."""
    window_p5_percent: float | None = None
    """p5 of the last window in violation; None without a violation."""
    last_ns: int | None = None
    """Last sample of the last window in violation, epoch nanoseconds."""


class LowGPUUtilizationDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Utilization by GPU."""

    low_count: int = 0
    """Low utilization: one count per GPU and scan."""
    fluctuating_count: int = 0
    """Fluctuating utilization: one count per GPU and scan."""
    gpus: dict[str, GPUUsageDetails] = {}
    """By GPU, as `node/number`."""


@dataclass(slots=True, kw_only=True)
class _UsageState(DeviceState):
    usage: UsageSamples
    low_count: int = 0
    fluctuating_count: int = 0
    p95: float = 0.0
    """Of the last window in violation."""
    p5: float = 0.0
    last_ns: int | None = None
    """Last sample of the last window in violation."""


class LowGPUUtilization(PerDeviceRule[LowGPUUtilizationParameters, _UsageState]):
    """Checks for low or fluctuating GPU utilization.

    ## What it checks
    For each GPU, at the end of each scan, the 95th and 5th percentile of its utilization over the
    last `window` samples. *Low*: p95 is below `threshold_p95`. *Fluctuating*: p95 is above it and
    p5 is below `threshold_p5`. Datapoints are the samples of the GPU that has most; a violation is
    one GPU in one scan. Of an imported trace, the share of each step in which a kernel runs takes
    the place of the samples.

    ## Why it matters
    An idle GPU costs as much as a busy one. Low utilization indicates a bottleneck elsewhere or
    too little work per step; fluctuating utilization indicates blocking calls or waits for data.

    ## What to do
    Look for bottlenecks, remove calls that wait for the device, try another distribution strategy,
    or increase the batch size.

    ## Where the numbers differ from SageMaker Debugger's
    Low and fluctuating GPUs are counted separately; Debugger's report calls both fluctuation.
    RuleTriggered counts scans; Debugger's counts scans times GPUs. A failed reading is not a
    sample.
    """

    topic = "GPU utilization"
    parameters_type = LowGPUUtilizationParameters
    aliases = {"threshold": "threshold_p95"}  # noqa: RUF012 - read only, as declared in the base
    recommendation = (
        "Check for bottlenecks, remove calls that wait for the GPU, try another distribution "
        "strategy, or increase the batch size."
    )
    metrics = ("gpu_busy_ratio",)
    evidence = ("system",)
    plots = ("gpu_busy_ratio",)
    missing = NO_GPU
    advice = GPU_ADVICE
    missing_in_traces = NO_DEVICE_WORK_IN_TRACES
    samples = staticmethod(gpu_utilization)
    details_type = LowGPUUtilizationDetails

    @property
    def patience_count(self) -> int:
        return self.parameters.patience

    def new_device(self) -> _UsageState:
        return _UsageState(usage=UsageSamples.of_window(self.parameters.window))

    def update_device(
        self, device: _UsageState, series: Series, inputs: RuleInputs, trigger: Trigger
    ) -> None:
        p = self.parameters
        windows = device.usage.add(inputs, series, (0.95, 0.05), patience=p.patience)
        p95, p5 = windows.quantiles[:, 0], windows.quantiles[:, 1]
        low = p95 < p.threshold_p95 / 100
        fluctuating = (p95 > p.threshold_p95 / 100) & (p5 < p.threshold_p5 / 100)
        violation = low | fluctuating
        device.datapoint_count = device.usage.count
        device.low_count += int(low.sum())
        device.fluctuating_count += int(fluctuating.sum())
        device.violation_count = device.low_count + device.fluctuating_count
        trigger.add_scans(inputs, windows.scan[violation])
        covered = windows.where(violation)
        trigger.cover(covered.start_ns, covered.end_ns)
        if violation.any():
            device.triggered = True
            device.last_ns = int(windows.end_ns[violation][-1])
            device.p95, device.p5 = float(p95[violation][-1]), float(p5[violation][-1])

    def evaluate_in_trace(self, gpu: TracedGpu, steps: TracedSteps) -> GpuInTrace | None:
        p, usage = self.parameters, QuantileSketch()
        usage.add(gpu.busy_ratio)
        p95, p5 = usage.quantiles([0.95, 0.05])
        low = 100 * p95 < p.threshold_p95
        fluctuating = 100 * p95 > p.threshold_p95 and 100 * p5 < p.threshold_p5
        state = "underutilized" if low else "fluctuating" if fluctuating else "well used"
        return GpuInTrace(
            details=GPUUsageDetails(
                busy_percent=usage.box_plot(100),
                low_count=int(low),
                fluctuating_count=int(fluctuating),
                window_p95_percent=round(100 * p95, 6) if low or fluctuating else None,
                window_p5_percent=round(100 * p5, 6) if low or fluctuating else None,
                last_ns=int(steps.times.end_ns[-1]) if low or fluctuating else None,
            ),
            datapoint_count=len(usage),
            violation_count=int(low or fluctuating),
            sentence=f"{state}. Share of a step in which a kernel runs: "
            f"{self._describe_quantiles(p95, p5)}, over {count_of(len(usage), 'step')}.",
        )

    def details_of(self, device: _UsageState) -> GPUUsageDetails:
        return GPUUsageDetails(
            busy_percent=device.usage.sketch.box_plot(100),
            low_count=device.low_count,
            fluctuating_count=device.fluctuating_count,
            window_p95_percent=round(100 * device.p95, 6) if device.triggered else None,
            window_p5_percent=round(100 * device.p5, 6) if device.triggered else None,
            last_ns=device.last_ns,
        )

    def details(self, devices: Devices[_UsageState]) -> LowGPUUtilizationDetails:
        return LowGPUUtilizationDetails(
            low_count=sum(device.low_count for device in devices.values()),
            fluctuating_count=sum(device.fluctuating_count for device in devices.values()),
            gpus={str(name): self.details_of(device) for name, device in devices.items()},
        )

    def sentences(
        self, devices: Devices[_UsageState], triggered: Devices[_UsageState]
    ) -> Iterable[str]:
        p, details = self.parameters, self.details(devices)
        low, fluctuating = (
            count_of(cases, "case") for cases in (details.low_count, details.fluctuating_count)
        )
        yield (
            f"GPU utilization over {p.window} samples: low in {low} (p95 below "
            f"{number(p.threshold_p95)}%), fluctuating in {fluctuating} (p5 below "
            f"{number(p.threshold_p5)}%). A case is one GPU in one scan."
        )
        for name, gpu in triggered.items():
            fluctuates = 100 * (gpu.p95 - gpu.p5) > MIN_FLUCTUATION_PERCENT
            yield (
                f"{name.gpu_label}: {'fluctuating' if fluctuates else 'underutilized'}, "
                f"{self._describe_quantiles(gpu.p95, gpu.p5)}."
            )
        for name, gpu in devices.items():
            if not gpu.usage.sketch.values.max():
                yield f"{name.gpu_label}: never used."

    def _describe_quantiles(self, p95: float, p5: float) -> str:
        p = self.parameters
        return (
            f"p95 {percent_beside(p95, p.threshold_p95)}, p5 {percent_beside(p5, p.threshold_p5)}"
        )
