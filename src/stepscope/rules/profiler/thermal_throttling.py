"""GPUs that are held back because they are hot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stepscope.rules.base import IncrementalRule, NotApplicable, require_more
from stepscope.rules.firing import Firing, last_of_each
from stepscope.rules.inputs import samples, scan_ends, scans_of
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.signals import Device, Series, Signals
from stepscope.rules.trailing import Tail
from stepscope.schema import Finding

THERMAL = 0x20 | 0x40
"""NVML's bits for slowdowns because of temperature: by software and by hardware."""
POWER = 0x4 | 0x80
"""Its bits for the power cap and the external power brake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalThrottlingParameters:
    """When heat costs speed."""

    threshold: Percentage = 10.0
    """Share of the samples (%) with clocks held down by temperature above which it fires."""
    window: Count = 120
    """Samples that the share is of: the latest ones."""


@dataclass(slots=True)
class _Gpu:
    tail: Tail
    hot_count: int = 0
    capped_count: int = 0
    fired: bool = False


@dataclass(slots=True)
class _State:
    gpus: dict[Device, _Gpu] = field(default_factory=dict)
    firing: Firing = field(default_factory=Firing)


class ThermalThrottling(IncrementalRule[ThermalThrottlingParameters, _State]):
    """Checks whether GPUs are slowed down because they are hot.

    ## What it checks
    The driver's reasons for holding clocks down. At the end of each scan, the share of the last
    `window` samples of a GPU that name its temperature. Datapoints are samples of the GPU that has
    most, violations are hot samples of all. The power cap is counted too but does not fire: large
    GPUs run at it as a matter of course.

    ## Why it matters
    A hot GPU computes more slowly, and in a distributed job all others wait for it.

    ## What to do
    Have the cooling of the node looked at, move the job to another one, or lower the power limit
    so that clocks are at least steady.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    parameters_type = ThermalThrottlingParameters
    recommendation = "Have the node's cooling checked, or move the job to another node."
    evidence = ("system",)
    plots = ("gpu_temperature_celsius", "gpu_sm_clock_megahertz")

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        for device, series in samples(signals, "gpu_throttle_reasons").items():
            gpu = state.gpus.setdefault(device, _Gpu(Tail(self.parameters.window)))
            state.firing.add(self._look_at(gpu, signals, series))
        return state

    def _look_at(self, gpu: _Gpu, signals: Signals, series: Series) -> list[int]:
        p = self.parameters
        reasons = series.value.astype(np.int64)
        hot = (reasons & THERMAL) != 0
        gpu.hot_count += int(hot.sum())
        gpu.capped_count += int(((reasons & POWER) != 0).sum())
        joined, kept = gpu.tail.extend(hot.astype(np.int64))
        sums = np.concatenate([[0], np.cumsum(joined)]).astype(np.int64)
        scans = scans_of(signals, series)
        last = last_of_each(scans)
        ends = last + kept + 1
        hot_in = sums[ends] - sums[np.maximum(ends - p.window, 0)]
        fires = (ends >= p.window) & (100 * hot_in > p.threshold * p.window)
        gpu.fired |= bool(fires.any())
        return scan_ends(signals, scans[last[fires]])

    def decide(self, state: _State) -> Finding | None:
        if not state.gpus:
            raise NotApplicable("no GPU says why its clocks are held down (gpu_throttle_reasons)")
        seen = max(gpu.tail.seen for gpu in state.gpus.values())
        require_more(seen, self.parameters.window - 1, "samples of a GPU")
        wrong = {device: gpu for device, gpu in state.gpus.items() if gpu.fired}
        return self.finding(
            triggered=state.firing,
            violations=sum(gpu.hot_count for gpu in state.gpus.values()),
            datapoints=seen,
            details={
                "gpus": {
                    str(device): {
                        "sample_count": gpu.tail.seen,
                        "thermal_percent_of_samples": 100 * gpu.hot_count / gpu.tail.seen,
                        "power_percent_of_samples": 100 * gpu.capped_count / gpu.tail.seen,
                    }
                    for device, gpu in sorted(state.gpus.items())
                }
            },
            sentences=[
                f"GPU {device.number} of {device.node} was slowed down by its temperature in "
                f"{gpu.hot_count / gpu.tail.seen:.1%} of its samples."
                for device, gpu in sorted(wrong.items())
            ],
            devices=wrong,
        )
