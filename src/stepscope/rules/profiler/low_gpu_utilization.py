"""GPUs that are used little, or by fits and starts."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepscope.rules.base import IncrementalRule, NotApplicable, require_more
from stepscope.rules.firing import Firing
from stepscope.rules.inputs import NO_GPU, gpu_busy, scan_ends, scans_of
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.signals import Device, Series, Signals
from stepscope.rules.tally import Tally, box
from stepscope.rules.trailing import Tail, quantiles_at_scans
from stepscope.schema import Finding

FLUCTUATES_ABOVE = 50.0
"""Percentage points between p95 and p5 beyond which usage fluctuates heavily."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowGPUUtilizationParameters:
    """When a GPU is underused."""

    threshold_p95: Percentage = 70.0
    """Usage is low when its 95th percentile (%) is below this."""
    threshold_p5: Percentage = 10.0
    """Usage fluctuates when its 95th percentile is above threshold_p95 and its 5th (%) below
    this."""
    window: Count = 500
    """Samples that the percentiles are of: the latest ones."""
    patience: Count = 1000
    """No decision until a GPU has more samples than this."""


@dataclass(slots=True)
class _Gpu:
    tail: Tail
    usage: Tally = field(default_factory=Tally)
    low_count: int = 0
    fluctuating_count: int = 0
    p95: float = 0.0
    p5: float = 0.0
    """When it was last in violation."""
    last_ns: int | None = None


@dataclass(slots=True)
class _State:
    gpus: dict[Device, _Gpu] = field(default_factory=dict)
    firing: Firing = field(default_factory=Firing)


class LowGPUUtilization(IncrementalRule[LowGPUUtilizationParameters, _State]):
    """Checks whether GPUs are used little, or by fits and starts.

    ## What it checks
    For each GPU, at the end of each scan, the 95th and the 5th percentile of its utilisation over
    the last `window` samples. *Low*: p95 is below `threshold_p95`. *Fluctuating*: p95 is above it
    and p5 is below `threshold_p5`. Datapoints are the samples of the GPU that has most; a
    violation is one GPU in one scan.

    ## Why it matters
    A GPU that is idle is paid for all the same. Low usage points to a bottleneck elsewhere or to
    too little work per step; fluctuating usage to calls that block, or to waiting for data.

    ## What to do
    Look for bottlenecks, have fewer calls that wait for the device, choose another strategy of
    distribution, or make the batch larger.

    ## Where the numbers differ from SageMaker Debugger's
    Low and fluctuating GPUs are counted apart; Debugger's report speaks of fluctuation for both.
    RuleTriggered counts scans; Debugger's counts scans times GPUs. A reading that failed is no
    sample.
    """

    parameters_type = LowGPUUtilizationParameters
    aliases = {"threshold": "threshold_p95"}  # noqa: RUF012 - read only, as declared in the base
    recommendation = (
        "Check for bottlenecks, have fewer calls that wait for the GPU, change the distribution "
        "strategy, or increase the batch size."
    )
    evidence = ("system",)
    plots = ("gpu_busy_ratio",)

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        for device, series in gpu_busy(signals).items():
            gpu = state.gpus.setdefault(device, _Gpu(Tail(self.parameters.window)))
            state.firing.add(self._look_at(gpu, signals, series))
        return state

    def _look_at(self, gpu: _Gpu, signals: Signals, series: Series) -> list[int]:
        """Ends of the scans in which one GPU was in violation."""
        p = self.parameters
        gpu.usage.add(series.value)
        scans, quantiles = quantiles_at_scans(
            gpu.tail, series.value, scans_of(signals, series), (0.95, 0.05), patience=p.patience
        )
        p95, p5 = quantiles[:, 0], quantiles[:, 1]
        low = p95 < p.threshold_p95 / 100
        fluctuating = ~low & (p95 > p.threshold_p95 / 100) & (p5 < p.threshold_p5 / 100)
        gpu.low_count += int(low.sum())
        gpu.fluctuating_count += int(fluctuating.sum())
        wrong = low | fluctuating
        ends = scan_ends(signals, scans[wrong])
        if ends:
            gpu.last_ns = ends[-1]
            gpu.p95, gpu.p5 = float(p95[wrong][-1]), float(p5[wrong][-1])
        return ends

    def decide(self, state: _State) -> Finding | None:
        if not state.gpus:
            raise NotApplicable(NO_GPU)
        seen = max(gpu.tail.seen for gpu in state.gpus.values())
        require_more(seen, self.parameters.patience, "samples of a GPU")
        low = sum(gpu.low_count for gpu in state.gpus.values())
        fluctuating = sum(gpu.fluctuating_count for gpu in state.gpus.values())
        wrong = {d: gpu for d, gpu in state.gpus.items() if gpu.last_ns is not None}
        return self.finding(
            triggered=state.firing,
            violations=low + fluctuating,
            datapoints=seen,
            details={
                "low_count": low,
                "fluctuating_count": fluctuating,
                "gpus": {str(d): _details(gpu) for d, gpu in sorted(state.gpus.items())},
            },
            sentences=self._sentences(low, fluctuating, wrong, state),
            devices=wrong,
        )

    def _sentences(
        self, low: int, fluctuating: int, wrong: dict[Device, _Gpu], state: _State
    ) -> list[str]:
        p = self.parameters
        said = [
            f"Over {p.window} samples, p95 of GPU utilisation was below {p.threshold_p95:g} % in "
            f"{low} cases, and above it with p5 below {p.threshold_p5:g} % in {fluctuating}; a "
            "case is one GPU in one scan."
        ]
        for device, gpu in sorted(wrong.items()):
            spread = 100 * (gpu.p95 - gpu.p5)
            how = "fluctuates heavily" if spread > FLUCTUATES_ABOVE else "is underused"
            said.append(
                f"GPU {device.number} of {device.node} {how}: p95 {100 * gpu.p95:.1f} %, p5 "
                f"{100 * gpu.p5:.1f} %."
            )
        unused = [d for d, gpu in state.gpus.items() if not gpu.usage.values.max()]
        said += [f"GPU {d.number} of {d.node} was not used at all." for d in sorted(unused)]
        return said


def _details(gpu: _Gpu) -> dict[str, object]:
    return {
        "busy_percent": box(gpu.usage, 100),
        "low_count": gpu.low_count,
        "fluctuating_count": gpu.fluctuating_count,
        "window_p95_percent": round(100 * gpu.p95, 6) if gpu.last_ns is not None else None,
        "window_p5_percent": round(100 * gpu.p5, 6) if gpu.last_ns is not None else None,
        "last_ns": gpu.last_ns,
    }
