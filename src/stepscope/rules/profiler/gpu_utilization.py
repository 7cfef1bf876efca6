"""LowGPUUtilization and LoadBalancing: GPUs with low, fluctuating or different utilization."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, schema
from stepscope.quantities import count_of, number
from stepscope.rules import base
from stepscope.rules.inputs import RuleInputs, TracedGpu, TracedSteps, scan_indices
from stepscope.rules.parameters import Count, Percentage, Ratio, fixed_beside, percent_beside
from stepscope.rules.quantile_sketch import QuantileSketch
from stepscope.rules.samples import (
    GPU_ADVICE,
    NO_DEVICE_WORK_IN_TRACES,
    NO_GPU,
    NO_SAMPLES_IN_TRACES,
    UsageSamples,
    gpu_utilization,
)
from stepscope.rules.templates import Devices, DeviceState, GpuInTrace, PerDeviceRule

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

    busy_percent: base.BoxPlot = base.BoxPlot()
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


class _UsageState(DeviceState, kw_only=True):
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
    rests_on_devices = True
    missing_in_traces = NO_DEVICE_WORK_IN_TRACES
    samples = staticmethod(gpu_utilization)
    details_type = LowGPUUtilizationDetails

    @property
    def patience_count(self) -> int:
        return self.parameters.patience

    def new_device(self) -> _UsageState:
        return _UsageState(usage=UsageSamples.of_window(self.parameters.window))

    def update_device(
        self,
        device: _UsageState,
        series: analysis.Series,
        inputs: RuleInputs,
        trigger: base.Trigger,
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


BINS = 50
"""Bins of width 2%; 100% belongs to the last one."""
ROUNDING = 1e-6
"""Upper bound of the rounding error of a distance."""
MAX_LISTED_PAIRS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancingParameters:
    """Threshold of the distance of two GPUs."""

    threshold: Ratio = 0.2
    """Distance above which two GPUs carry different loads; the maximum is 0.83255."""
    patience: Count = 1000
    """A GPU is compared once it has more samples than this."""


class LoadBalancingDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Histograms of GPU utilization and their distances."""

    bin_percent: int = 100 // BINS
    """Width of a bin."""
    workloads_count: dict[str, list[int]] = {}
    """Samples per bin by GPU, as `node/number`."""
    distances: dict[str, dict[str, float]] = {}
    """Distance of each pair of GPUs, once per pair."""


class _State(msgspec.Struct):
    histograms: dict[analysis.Device, intervals.Int] = msgspec.field(default_factory=dict)
    case_count: int = 0
    pairs: set[tuple[analysis.Device, analysis.Device]] = msgspec.field(default_factory=set)
    """Pairs above the threshold in some scan."""
    first_ns: int | None = None
    """First sample of all GPUs."""
    trigger: base.Trigger = msgspec.field(default_factory=base.Trigger)


class LoadBalancing(base.IncrementalRule[LoadBalancingParameters, _State]):
    """Checks whether GPUs carry different loads.

    ## What it checks
    The histogram of each GPU's utilization since the start of the run, in bins of 2%. At the end
    of each scan, all GPUs with more than `patience` samples are compared in pairs, within nodes and
    across them: the distance of two normalized histograms is the square root of their
    Jensen-Shannon divergence (natural logarithm), 0 for equal and 0.83255 for disjoint histograms.
    A pair above `threshold` in one scan is a violation. Datapoints are the samples of the GPU that
    has most.

    ## Why it matters
    Ranks of a data-parallel job wait for the slowest rank. GPUs with different utilization do not
    share the work evenly, for example when gradients are gathered on one of them
    (torch.nn.DataParallel).

    ## What to do
    Use another distribution strategy, such as DistributedDataParallel, and give each rank the same
    amount of work.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger's last public version never compares two different GPUs and never fires, and drops
    samples above 98%. The default threshold is that of its reports, 0.2; its documentation says
    0.5.
    """

    topic = "GPU utilization"
    parameters_type = LoadBalancingParameters
    recommendation = "Use another distribution strategy or framework."
    metrics = ("gpu_busy_ratio",)
    evidence = ("system",)
    plots = ("gpu_busy_ratio",)
    missing_in_traces = NO_SAMPLES_IN_TRACES
    run_state = _State

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        by_device = gpu_utilization(inputs)
        if not by_device:
            return state
        scans_of = {d: scan_indices(inputs, series.t_ns) for d, series in by_device.items()}
        scans = np.unique(np.concatenate([s[base.last_indices(s)] for s in scans_of.values()]))
        t_ns = np.sort(np.concatenate([series.t_ns for series in by_device.values()]))
        last_sample = np.searchsorted(scan_indices(inputs, t_ns), scans, side="right") - 1
        if state.first_ns is None:
            state.first_ns = int(t_ns[0])
        new_counts = {
            device: _counts_by_scan(series, np.searchsorted(scans, scans_of[device]), len(scans))
            for device, series in by_device.items()
        }
        for device in by_device:
            state.histograms.setdefault(device, np.zeros(BINS, dtype=np.int64))
        for row in range(len(scans)):
            for device, counts in new_counts.items():
                state.histograms[device] = state.histograms[device] + counts[row]
            pairs = self._distant_pairs(state.histograms)
            if pairs:
                state.case_count += len(pairs)
                state.pairs.update(pairs)
                state.trigger.add_scans(inputs, scans[row : row + 1])
                state.trigger.cover(state.first_ns, int(t_ns[last_sample[row]]))
        return state

    def _distant_pairs(
        self, histograms: dict[analysis.Device, intervals.Int]
    ) -> list[tuple[analysis.Device, analysis.Device]]:
        """Return the pairs of GPUs whose distance is above the threshold now."""
        devices = sorted(histograms)
        counts = np.stack([histograms[device] for device in devices])
        rows = np.flatnonzero(counts.sum(axis=1) > self.parameters.patience)
        rows = rows[_may_be_distant(counts[rows], self.parameters.threshold)]
        if len(rows) < 2:
            return []
        distant = histogram_distances(counts[rows]) > self.parameters.threshold
        return [
            (devices[rows[i]], devices[rows[j]])
            for i, j in np.argwhere(np.triu(distant, 1)).tolist()
        ]

    def decide(self, state: _State) -> schema.Finding | None:
        devices = sorted(state.histograms)
        if not devices:
            raise base.NotApplicable(NO_GPU, advice=GPU_ADVICE)
        if len(devices) < 2:
            raise base.NotApplicable("fewer than two GPUs were sampled")
        sample_count = max(int(counts.sum()) for counts in state.histograms.values())
        base.require_more_than(self.parameters.patience, sample_count, "samples per GPU")
        matrix = histogram_distances(np.stack([state.histograms[d] for d in devices]))
        details = LoadBalancingDetails(
            workloads_count={str(d): state.histograms[d].tolist() for d in devices},
            distances={
                str(first): {
                    str(second): round(float(matrix[i, j]), 6)
                    for j, second in enumerate(devices)
                    if j > i
                }
                for i, first in enumerate(devices[:-1])
            },
        )
        return self.finding(
            triggered=state.trigger,
            violations=state.case_count,
            datapoints=sample_count,
            details=details,
            sentences=self._sentences(state, details),
            devices={device for pair in state.pairs for device in pair},
        )

    def _sentences(self, state: _State, details: LoadBalancingDetails) -> Iterable[str]:
        yield (
            f"{count_of(state.case_count, 'case')} with a distance between histograms of GPU "
            f"utilization above {number(self.parameters.threshold)}. A case is one pair of GPUs in "
            "one scan."
        )
        for first, second in sorted(state.pairs)[:MAX_LISTED_PAIRS]:
            distance = details.distances[str(first)][str(second)]
            final = fixed_beside(distance, self.parameters.threshold, 2)
            yield f"{first} and {second}: final distance {final}."


def _counts_by_scan(series: analysis.Series, row: intervals.Int, row_count: int) -> intervals.Int:
    """Return the histogram of the samples of each scan, one row per scan.

    Args:
        series: samples.
        row: row of the scan of each sample.
        row_count: number of rows.
    """
    # In hundredths of a percent, so that 0.58 belongs to the bin that starts there.
    hundredths = np.rint(series.value * 10_000).astype(np.int64)
    column = np.clip(hundredths // (10_000 // BINS), 0, BINS - 1)
    flat = np.bincount(row * BINS + column, minlength=row_count * BINS)
    return flat.reshape(row_count, BINS)


def histogram_distances(histograms: intervals.Int) -> NDArray[np.float64]:
    """Return the square root of the Jensen-Shannon divergence of each two rows.

    With m = (P + Q) / 2 the divergence is (KL(P|m) + KL(Q|m)) / 2 = H(m) - (H(P) + H(Q)) / 2, with
    natural logarithms.
    """
    shares = _normalize(histograms)
    entropy = _entropy(shares)
    i, j = np.triu_indices(len(shares), 1)
    divergence = _entropy((shares[i] + shares[j]) / 2) - (entropy[i] + entropy[j]) / 2
    matrix = np.zeros((len(shares), len(shares)))
    # Rounding leaves about 1e-17 between equal histograms; the root of that is not zero.
    matrix[i, j] = np.sqrt(np.where(divergence < 1e-15, 0, divergence))
    return matrix + matrix.T


def _may_be_distant(histograms: intervals.Int, threshold: float) -> NDArray[np.bool_]:
    """Return which rows may be further than a threshold from another row.

    The distance is a metric, so the distance of two rows is at most the sum of their distances to
    the mean of all rows. For GPUs with equal loads this excludes all pairs without comparing them.
    """
    if not len(histograms):
        return np.zeros(0, dtype=np.bool_)
    shares = _normalize(histograms)
    mean = shares.mean(axis=0)
    divergence = _entropy((shares + mean) / 2) - (_entropy(shares) + _entropy(mean)) / 2
    distance = np.sqrt(np.maximum(divergence, 0))
    may_be_distant: NDArray[np.bool_] = distance + distance.max() > threshold - ROUNDING
    return may_be_distant


def _normalize(histograms: intervals.Int) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = histograms / np.maximum(histograms.sum(axis=1, keepdims=True), 1)
    return shares


def _entropy(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    logs = np.log(np.where(shares > 0, shares, 1))  # zero shares contribute nothing
    entropy: NDArray[np.float64] = -(shares * logs).sum(axis=-1)
    return entropy
