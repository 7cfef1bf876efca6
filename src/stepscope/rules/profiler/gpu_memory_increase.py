"""Sudden rises of GPU memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stepscope.rules.base import IncrementalRule, NotApplicable, require_more
from stepscope.rules.firing import Firing
from stepscope.rules.inputs import NO_GPU_MEMORY, gpu_memory, scan_ends, scans_of
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.signals import Device, Series, Signals
from stepscope.rules.tally import Tally, box
from stepscope.rules.trailing import Tail
from stepscope.schema import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUMemoryIncreaseParameters:
    """What counts as a rise."""

    increase: Percentage = 5.0
    """Percentage points of the GPU's memory by which the mean has to rise."""
    patience: Count = 1000
    """No decision until a GPU has more samples than this."""
    window: Count = 10
    """Samples in each of the two means."""


@dataclass(slots=True)
class _Gpu:
    tail: Tail
    usage: Tally = field(default_factory=Tally)
    rise_count: int = 0
    rising: bool = False
    """The latest sample was part of a rise."""
    largest: float = 0.0


@dataclass(slots=True)
class _State:
    gpus: dict[Device, _Gpu] = field(default_factory=dict)
    firing: Firing = field(default_factory=Firing)


class GPUMemoryIncrease(IncrementalRule[GPUMemoryIncreaseParameters, _State]):
    """Checks whether GPU memory rose suddenly.

    ## What it checks
    At each sample, the mean of the last `window` samples of a GPU's memory against the mean of the
    `window` samples before them, both as a share of its memory. A difference above `increase`
    percentage points is a rise; samples in a row that say so are one rise, and one violation.
    Datapoints are the samples of the GPU that has most.

    ## Why it matters
    Memory that grows in leaps, such as with longer inputs, ends in an out-of-memory error hours
    later. For slow growth see GPUMemoryLeak.

    ## What to do
    Find out what the job began at that moment (a longer sequence, a validation pass, another
    shape); where usage is near its maximum take a GPU with more memory.

    ## Where the numbers differ from SageMaker Debugger's
    The two windows do not overlap. Debugger's previous window shares all but one of its samples
    with the current one, so that its default of 5 needs a leap of more than 25 points; here, as
    its report says, a mean that goes from 10 % to 16 % fires. A rise counts once and not once per
    sample.
    """

    parameters_type = GPUMemoryIncreaseParameters
    recommendation = (
        "Find what needs the memory from then on; take a GPU with more memory if usage is near "
        "its maximum."
    )
    evidence = ("system", "memory")
    plots = ("gpu_memory_used_bytes", "gpu_memory_used_ratio")

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        for device, series in gpu_memory(signals).items():
            gpu = state.gpus.setdefault(device, _Gpu(Tail(2 * self.parameters.window)))
            state.firing.add(self._look_at(gpu, signals, series))
        return state

    def _look_at(self, gpu: _Gpu, signals: Signals, series: Series) -> list[int]:
        p = self.parameters
        gpu.usage.add(series.value)
        before = gpu.tail.seen
        joined, kept = gpu.tail.extend(series.value)
        if len(joined) < 2 * p.window:
            return []
        means = np.lib.stride_tricks.sliding_window_view(joined, p.window).mean(axis=1)
        # Rounded, so that sums of the same readings are the same: the comparison is strict.
        points = np.round(100 * (means[p.window :] - means[: -p.window]), 9)
        place = np.arange(2 * p.window - 1, len(joined)) - kept
        fresh = (place >= 0) & (before + place + 1 > p.patience)
        rises, place = points[fresh] > p.increase, place[fresh]
        if not len(rises):
            return []
        gpu.largest = max(gpu.largest, float(points[fresh].max()))
        begins = rises & ~np.append(gpu.rising, rises[:-1])
        gpu.rise_count += int(begins.sum())
        gpu.rising = bool(rises[-1])
        return scan_ends(signals, np.unique(scans_of(signals, series)[place[rises]]))

    def decide(self, state: _State) -> Finding | None:
        if not state.gpus:
            raise NotApplicable(NO_GPU_MEMORY)
        p = self.parameters
        seen = max(gpu.tail.seen for gpu in state.gpus.values())
        require_more(seen, max(p.patience, 2 * p.window - 1), "samples of a GPU")
        wrong = {device: gpu for device, gpu in state.gpus.items() if gpu.rise_count}
        count = sum(gpu.rise_count for gpu in wrong.values())
        return self.finding(
            triggered=state.firing,
            violations=count,
            datapoints=seen,
            details={
                "gpus": {
                    str(device): {
                        "memory_percent": box(gpu.usage, 100),
                        "rise_count": gpu.rise_count,
                        "largest_rise_percent": round(gpu.largest, 6),
                    }
                    for device, gpu in sorted(state.gpus.items())
                }
            },
            sentences=[
                f"The mean of GPU memory over {p.window} samples rose by more than {p.increase:g} "
                f"percentage points against the {p.window} samples before {count} times.",
                *(
                    f"GPU {device.number} of {device.node}: {gpu.rise_count} rises, the largest "
                    f"by {gpu.largest:.1f} points; at most "
                    f"{100 * float(gpu.usage.values.max()):.1f} % of its memory was in use."
                    for device, gpu in sorted(wrong.items())
                ),
            ],
            devices=wrong,
        )
