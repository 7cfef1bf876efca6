"""GPUs that are used differently."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int
from stepscope.rules.base import IncrementalRule, NotApplicable, require_more
from stepscope.rules.firing import Firing, last_of_each
from stepscope.rules.inputs import gpu_busy, scan_ends, scans_of
from stepscope.rules.parameters import Count, Ratio
from stepscope.rules.signals import Device, Series, Signals
from stepscope.schema import Finding

BINS = 50
"""Of width 2 % each; 100 % lies in the last."""
ROUNDING = 1e-6
"""Far more than what rounding adds to a distance or takes from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancingParameters:
    """When two GPUs differ."""

    threshold: Ratio = 0.2
    """Distance above which two GPUs carry different loads; the largest possible is 0.83255."""
    patience: Count = 1000
    """A GPU is compared once it has more samples than this."""


@dataclass(slots=True)
class _State:
    histograms: dict[Device, Int] = field(default_factory=dict)
    case_count: int = 0
    pairs: set[tuple[Device, Device]] = field(default_factory=set)
    firing: Firing = field(default_factory=Firing)


class LoadBalancing(IncrementalRule[LoadBalancingParameters, _State]):
    """Checks whether GPUs carry different loads.

    ## What it checks
    The histogram of each GPU's utilisation since the beginning, in bins of 2 %. At the end of
    each scan all GPUs with more than `patience` samples are compared in pairs, within nodes and
    across them: the distance of two normalised histograms is the square root of their
    Jensen-Shannon divergence (natural logarithm), 0 for equal ones and 0.83255 for disjoint ones.
    A pair above `threshold` in one scan is a violation. Datapoints are the samples of the GPU that
    has most.

    ## Why it matters
    Ranks of a data-parallel job wait for the slowest. GPUs that are used differently do not share
    the work evenly, as when gradients are gathered on one of them (torch.nn.DataParallel).

    ## What to do
    Choose another strategy of distribution, such as DistributedDataParallel, and give every rank
    the same amount of work.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger's last public version compares no two different GPUs and never fires, and drops
    samples above 98 %. The default threshold is that of its reports, 0.2; its documentation says
    0.5.
    """

    parameters_type = LoadBalancingParameters
    recommendation = "Choose a different distributed training strategy or framework."
    evidence = ("system",)
    plots = ("gpu_busy_ratio",)

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        series = gpu_busy(signals)
        if not series:
            return state
        scans_by = {device: scans_of(signals, each) for device, each in series.items()}
        scans = np.unique(np.concatenate([each[last_of_each(each)] for each in scans_by.values()]))
        for device in series:
            state.histograms.setdefault(device, np.zeros(BINS, dtype=np.int64))
        new = {
            device: _counts_by_scan(each, np.searchsorted(scans, scans_by[device]), len(scans))
            for device, each in series.items()
        }
        for place, scan in enumerate(scans.tolist()):
            for device, counts in new.items():
                state.histograms[device] = state.histograms[device] + counts[place]
            apart = self._apart(state.histograms)
            if apart:
                state.case_count += len(apart)
                state.pairs.update(apart)
                state.firing.add(scan_ends(signals, np.array([scan])))
        return state

    def _apart(self, histograms: dict[Device, Int]) -> list[tuple[Device, Device]]:
        """Pairs of GPUs whose distance is above the threshold now."""
        devices, counts = sorted(histograms), np.stack([histograms[d] for d in sorted(histograms)])
        ready = np.flatnonzero(counts.sum(axis=1) > self.parameters.patience)
        ready = ready[_may_be_apart(counts[ready], self.parameters.threshold)]
        if len(ready) < 2:
            return []
        far = distances(counts[ready]) > self.parameters.threshold
        return [
            (devices[ready[a]], devices[ready[b]]) for a, b in np.argwhere(np.triu(far, 1)).tolist()
        ]

    def decide(self, state: _State) -> Finding | None:
        devices = sorted(state.histograms)
        if len(devices) < 2:
            raise NotApplicable("fewer than two GPUs were sampled, so there is nothing to balance")
        seen = max(int(counts.sum()) for counts in state.histograms.values())
        require_more(seen, self.parameters.patience, "samples of a GPU")
        between = distances(np.stack([state.histograms[d] for d in devices]))
        p = self.parameters
        return self.finding(
            triggered=state.firing,
            violations=state.case_count,
            datapoints=seen,
            details={
                "bin_percent": 100 // BINS,
                "workloads_count": {str(d): state.histograms[d].tolist() for d in devices},
                "distances": {
                    str(a): {
                        str(b): round(float(between[i, j]), 6)
                        for j, b in enumerate(devices)
                        if j > i
                    }
                    for i, a in enumerate(devices[:-1])
                },
            },
            sentences=[
                f"Distances between histograms of GPU utilisation were above {p.threshold:g} in "
                f"{state.case_count} cases; a case is one pair of GPUs in one scan.",
                *(
                    f"{a} and {b} are {between[devices.index(a), devices.index(b)]:.5f} apart."
                    for a, b in sorted(state.pairs)[:20]
                ),
            ],
            devices={device for pair in state.pairs for device in pair},
        )


def _counts_by_scan(series: Series, row: Int, count: int) -> Int:
    """Histogram of the samples of each scan, one row per scan.

    Args:
        series: samples.
        row: of each sample, that of its scan.
        count: rows.
    """
    # In hundredths of a per cent, so that 0.58 lies in the bin that begins there.
    hundredths = np.rint(series.value * 10_000).astype(np.int64)
    column = np.clip(hundredths // (10_000 // BINS), 0, BINS - 1)
    flat = np.bincount(row * BINS + column, minlength=count * BINS)
    return flat.reshape(count, BINS)


def distances(histograms: Int) -> NDArray[np.float64]:
    """Square root of the Jensen-Shannon divergence of every two rows, natural logarithm.

    With m = (P + Q) / 2 the divergence is (KL(P|m) + KL(Q|m)) / 2 = H(m) - (H(P) + H(Q)) / 2.
    """
    shares = _shares(histograms)
    entropy = _entropy(shares)
    one, other = np.triu_indices(len(shares), 1)
    divergence = _entropy((shares[one] + shares[other]) / 2) - (entropy[one] + entropy[other]) / 2
    found = np.zeros((len(shares), len(shares)))
    # Rounding leaves some 1e-17 between equal histograms, whose root would be no zero.
    found[one, other] = np.sqrt(np.where(divergence < 1e-15, 0, divergence))
    return found + found.T


def _may_be_apart(histograms: Int, threshold: float) -> NDArray[np.bool_]:
    """Which rows may be further than a threshold from another one.

    The distance is a metric, so two rows are no further apart than their distances to the mean of
    all rows add up to. Of GPUs that carry the same load that says at once that no two are apart,
    and pairs need not be compared.
    """
    if not len(histograms):
        return np.zeros(0, dtype=np.bool_)
    shares = _shares(histograms)
    mean = shares.mean(axis=0)
    divergence = _entropy((shares + mean) / 2) - (_entropy(shares) + _entropy(mean)) / 2
    off = np.sqrt(np.maximum(divergence, 0))
    may: NDArray[np.bool_] = off + off.max() > threshold - ROUNDING
    return may


def _shares(histograms: Int) -> NDArray[np.float64]:
    found: NDArray[np.float64] = histograms / np.maximum(histograms.sum(axis=1, keepdims=True), 1)
    return found


def _entropy(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    logs = np.log(np.where(shares > 0, shares, 1))  # of nothing, the share of the log is nothing
    found: NDArray[np.float64] = -(shares * logs).sum(axis=-1)
    return found
