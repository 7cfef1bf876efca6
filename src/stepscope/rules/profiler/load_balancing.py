"""GPUs with different utilization."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import Device, Series
from stepscope.intervals import Int
from stepscope.quantities import count_of, number
from stepscope.rules.base import IncrementalRule, NotApplicable, require_more_than
from stepscope.rules.inputs import RuleInputs, scan_indices
from stepscope.rules.parameters import Count, Ratio
from stepscope.rules.samples import NO_SAMPLES_IN_TRACES, gpu_utilization
from stepscope.rules.threshold_text import fixed_beside
from stepscope.rules.trigger import Trigger, last_indices
from stepscope.schema import Finding

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


@dataclass(slots=True)
class _State:
    histograms: dict[Device, Int] = field(default_factory=dict)
    case_count: int = 0
    pairs: set[tuple[Device, Device]] = field(default_factory=set)
    """Pairs above the threshold in some scan."""
    first_ns: int | None = None
    """First sample of all GPUs."""
    trigger: Trigger = field(default_factory=Trigger)


class LoadBalancing(IncrementalRule[LoadBalancingParameters, _State]):
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
        scans = np.unique(np.concatenate([s[last_indices(s)] for s in scans_of.values()]))
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

    def _distant_pairs(self, histograms: dict[Device, Int]) -> list[tuple[Device, Device]]:
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

    def decide(self, state: _State) -> Finding | None:
        devices = sorted(state.histograms)
        if len(devices) < 2:
            raise NotApplicable("fewer than two GPUs were sampled")
        sample_count = max(int(counts.sum()) for counts in state.histograms.values())
        require_more_than(self.parameters.patience, sample_count, "samples per GPU")
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


def _counts_by_scan(series: Series, row: Int, row_count: int) -> Int:
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


def histogram_distances(histograms: Int) -> NDArray[np.float64]:
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


def _may_be_distant(histograms: Int, threshold: float) -> NDArray[np.bool_]:
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


def _normalize(histograms: Int) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = histograms / np.maximum(histograms.sum(axis=1, keepdims=True), 1)
    return shares


def _entropy(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    logs = np.log(np.where(shares > 0, shares, 1))  # zero shares contribute nothing
    entropy: NDArray[np.float64] = -(shares * logs).sum(axis=-1)
    return entropy
