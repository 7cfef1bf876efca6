"""GPU memory that grows and grows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int
from stepscope.rules.base import IncrementalRule, NotApplicable, require_more
from stepscope.rules.firing import Firing
from stepscope.rules.inputs import NO_GPU_MEMORY, gpu_memory, scan_ends
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.signals import Device, Series, Signals, scan_numbers
from stepscope.schema import Finding

MINUTE_NS = 60_000_000_000
FALLS_BELOW = 0.001
"""Share of the memory by which the least usage of a minute may be below the one before."""
LARGEST_RISE = 0.5
"""Share of the growth that a single minute may bring; more is a leap and not a leak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUMemoryLeakParameters:
    """What counts as a leak."""

    increase: Percentage = 1.0
    """Percentage points of the GPU's memory by which usage has to grow within the window."""
    window: Count = 30
    """Minutes."""
    rises: Count = 5
    """The least number of minutes in which it grew."""


@dataclass(slots=True)
class _Gpu:
    minutes: Int
    """Minutes with samples, ascending; the last one may go on."""
    least: NDArray[np.float64]
    """Least usage in each."""
    seen: int = 0
    case_count: int = 0
    growth: float = 0.0
    """Within the window that ended last in violation."""
    slope_per_hour: float = 0.0


@dataclass(slots=True)
class _State:
    gpus: dict[Device, _Gpu] = field(default_factory=dict)
    firing: Firing = field(default_factory=Firing)


class GPUMemoryLeak(IncrementalRule[GPUMemoryLeakParameters, _State]):
    """Checks whether GPU memory grows slowly and without end.

    ## What it checks
    The least memory in use on each GPU in each minute. Over the last `window` minutes it never
    fell, rose in at least `rises` of them, by at least `increase` percentage points in all, and no
    single minute brought more than half of that. A GPU of which that is true at the end of a
    minute is a violation. Datapoints are minutes of the GPU that has most.

    ## Why it matters
    Tensors that stay referenced (losses that keep their graph, growing lists, caches without a
    limit) end in an out-of-memory error hours or days later.

    ## What to do
    Record a window with memory and look at `stepscope show RUN memory`; store loss.item() or
    loss.detach() instead of loss; bound caches.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule; its GPUMemoryIncrease only notices growth as fast as a leap.
    """

    parameters_type = GPUMemoryLeakParameters
    recommendation = (
        "Record a window with memory (`stepscope show RUN memory`); detach what is kept of each "
        "step."
    )
    evidence = ("system", "memory")
    plots = ("gpu_memory_used_bytes", "gpu_memory_used_ratio")

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        for device, series in gpu_memory(signals).items():
            gpu = state.gpus.setdefault(
                device, _Gpu(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64))
            )
            state.firing.add(self._take_in(gpu, signals, series))
        return state

    def _take_in(self, gpu: _Gpu, signals: Signals, series: Series) -> list[int]:
        """Ends of the scans in which minutes ended that complete a leak."""
        minute = series.t_ns // MINUTE_NS
        known = len(gpu.minutes)
        first = np.flatnonzero(np.diff(minute, prepend=minute[0] - 1))
        minutes, least = minute[first], np.minimum.reduceat(series.value, first)
        if known and minutes[0] == gpu.minutes[-1]:
            gpu.least[-1] = min(gpu.least[-1], least[0])
            minutes, least = minutes[1:], least[1:]
        gpu.seen += len(minutes)
        gpu.minutes = np.concatenate([gpu.minutes, minutes])
        gpu.least = np.concatenate([gpu.least, least])
        ended = []
        # A minute has ended when a later one has begun.
        for last in range(max(known - 1, 0), len(gpu.minutes) - 1):
            if self._leaks(gpu, last):
                gpu.case_count += 1
                ended.append((int(gpu.minutes[last]) + 1) * MINUTE_NS - 1)
        gpu.minutes = gpu.minutes[-self.parameters.window - 1 :]
        gpu.least = gpu.least[-self.parameters.window - 1 :]
        scans = scan_numbers(signals, np.array(ended, dtype=np.int64))
        return scan_ends(signals, np.unique(scans))

    def _leaks(self, gpu: _Gpu, last: int) -> bool:
        p = self.parameters
        if last + 1 < p.window:
            return False
        window = gpu.least[last + 1 - p.window : last + 1]
        changes = np.diff(window)
        growth = float(window[-1] - window[0])
        leaks = bool(
            100 * growth >= p.increase
            and (changes >= -FALLS_BELOW).all()
            and (changes > 0).sum() >= p.rises
            and changes.max() <= LARGEST_RISE * growth
        )
        if leaks:
            gpu.growth = growth
            minutes = gpu.minutes[last] - gpu.minutes[last + 1 - p.window]
            gpu.slope_per_hour = growth / float(minutes) * 60
        return leaks

    def decide(self, state: _State) -> Finding | None:
        if not state.gpus:
            raise NotApplicable(NO_GPU_MEMORY)
        p = self.parameters
        seen = max(gpu.seen for gpu in state.gpus.values())
        require_more(seen, p.window, "minutes with samples of a GPU")
        wrong = {device: gpu for device, gpu in state.gpus.items() if gpu.case_count}
        return self.finding(
            triggered=state.firing,
            violations=sum(gpu.case_count for gpu in wrong.values()),
            datapoints=seen,
            details={
                "gpus": {
                    str(device): {
                        "growth_percent": round(100 * gpu.growth, 6),
                        "growth_percent_per_hour": round(100 * gpu.slope_per_hour, 6),
                        "least_use_percent": round(100 * float(gpu.least[-1]), 6),
                    }
                    for device, gpu in sorted(state.gpus.items())
                }
            },
            sentences=[
                f"GPU {device.number} of {device.node}: memory in use grew by "
                f"{100 * gpu.growth:.1f} points in {p.window} minutes and never fell"
                f"{_full_in(gpu)}."
                for device, gpu in sorted(wrong.items())
            ],
            devices=wrong,
        )


def _full_in(gpu: _Gpu) -> str:
    left = 1 - float(gpu.least[-1])
    return f"; at this pace it is full in {left / gpu.slope_per_hour:.1f} hours"
