"""GPUs that lower their clocks because of temperature."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np

from stepscope import analysis, quantities
from stepscope.rules.base import Trigger, last_indices
from stepscope.rules.inputs import RuleInputs, scan_indices
from stepscope.rules.parameters import Count, Percentage, share_beside
from stepscope.rules.samples import (
    NO_SAMPLES_IN_TRACES,
    RollingWindow,
    device_series,
    is_in_window,
    rolling_sums,
)
from stepscope.rules.templates import Devices, DeviceState, PerDeviceRule

THERMAL = 0x20 | 0x40
"""NVML's throttle reasons for temperature: software and hardware slowdown."""
POWER = 0x4 | 0x80
"""NVML's throttle reasons for power: power cap and external power brake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalThrottlingParameters:
    """Threshold of thermal throttling."""

    threshold: Percentage = 10.0
    """The rule fires if more of the samples (%) than this are thermally throttled."""
    window: Count = 120
    """Latest samples over which the share is computed."""


class ThrottlingDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Throttling of one GPU over the whole run."""

    sample_count: int = 0
    thermal_percent_of_samples: float = 0.0
    """Samples throttled by temperature."""
    power_percent_of_samples: float = 0.0
    """Samples throttled by the power cap."""


class ThermalThrottlingDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Throttling by GPU."""

    gpus: dict[str, ThrottlingDetails] = {}
    """By GPU, as `node/number`."""


class _ThrottlingState(DeviceState, kw_only=True):
    window: RollingWindow
    highest_ratio: float = 0.0
    """Highest throttled share among the windows in which the rule fired."""
    capped_count: int = 0
    """Samples throttled by the power cap; those by temperature are the violations."""


class ThermalThrottling(PerDeviceRule[ThermalThrottlingParameters, _ThrottlingState]):
    """Checks whether GPUs are throttled because of their temperature.

    ## What it checks
    The throttle reasons that the driver reports. At the end of each scan, the share of the last
    `window` samples of a GPU that name its temperature. Datapoints are samples of the GPU that has
    most, violations are thermally throttled samples of all GPUs. The power cap is counted but does
    not fire the rule: large GPUs normally run at it.

    ## Why it matters
    A hot GPU computes more slowly, and in a distributed job all other GPUs wait for it.

    ## What to do
    Have the cooling of the node checked, move the job to another node, or lower the power limit so
    that clocks are at least steady.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "GPU utilization"
    parameters_type = ThermalThrottlingParameters
    recommendation = "Have the node's cooling checked, or move the job to another node."
    metrics = ("gpu_throttle_reasons",)
    evidence = ("system",)
    plots = ("gpu_temperature_celsius", "gpu_sm_clock_megahertz")
    missing_in_traces = NO_SAMPLES_IN_TRACES
    missing = "no GPU reports throttle reasons (gpu_throttle_reasons)"
    samples = staticmethod(partial(device_series, metric="gpu_throttle_reasons"))
    details_type = ThermalThrottlingDetails

    @property
    def patience_count(self) -> int:
        return self.parameters.window - 1

    def new_device(self) -> _ThrottlingState:
        return _ThrottlingState(window=RollingWindow(self.parameters.window))

    def update_device(
        self,
        device: _ThrottlingState,
        series: analysis.Series,
        inputs: RuleInputs,
        trigger: Trigger,
    ) -> None:
        p = self.parameters
        reasons = series.value.astype(np.int64)
        thermal = (reasons & THERMAL) != 0
        device.datapoint_count += len(reasons)
        device.violation_count += int(thermal.sum())
        device.capped_count += int(((reasons & POWER) != 0).sum())
        joined, previous = device.window.extend(np.stack([thermal, series.t_ns], axis=1))
        scans = scan_indices(inputs, series.t_ns)
        last = last_indices(scans)
        ends = last + previous + 1
        thermal_count = rolling_sums(joined[:, 0], ends, p.window)
        fires = (ends >= p.window) & (100 * thermal_count > p.threshold * p.window)
        if fires.any():
            device.triggered = True
            highest = float(thermal_count[fires].max()) / p.window
            device.highest_ratio = max(device.highest_ratio, highest)
        trigger.add_scans(inputs, scans[last[fires]])
        in_window = joined[is_in_window(len(joined), ends[fires], p.window)]
        t_ns = in_window[in_window[:, 0] > 0, 1]
        trigger.cover(t_ns, t_ns)

    def details_of(self, device: _ThrottlingState) -> ThrottlingDetails:
        return ThrottlingDetails(
            sample_count=device.datapoint_count,
            thermal_percent_of_samples=100 * device.violation_count / device.datapoint_count,
            power_percent_of_samples=100 * device.capped_count / device.datapoint_count,
        )

    def sentences(
        self, devices: Devices[_ThrottlingState], triggered: Devices[_ThrottlingState]
    ) -> Iterable[str]:
        p = self.parameters
        for name, gpu in triggered.items():
            share = quantities.percent(gpu.violation_count / gpu.datapoint_count, 1)
            samples = f"{p.window} consecutive samples"
            yield (
                f"{name.gpu_label}: thermally throttled in up to "
                f"{share_beside(gpu.highest_ratio, samples, p.threshold)}, {share} of all samples."
            )
