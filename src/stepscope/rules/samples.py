"""Samples prepared for rules: in time order, without failed readings; rolling windows, sketches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, schema
from stepscope.rules.base import last_indices
from stepscope.rules.inputs import RuleInputs, RuleTrace, scan_indices
from stepscope.rules.quantile_sketch import QuantileSketch

SNAPSHOT_NS = 20_000_000
"""Maximum distance between readings of one sampling tick."""
NO_GPU = "no GPU samples: the nodes have no GPU, or its driver reports no utilization"
GPU_ADVICE = "`stepscope doctor` tells which"
NO_GPU_MEMORY = "no GPU memory samples with a known memory size"
NO_SAMPLES_IN_TRACES = "imported traces have no samples of the node's CPUs and GPUs"
NO_FETCHES_IN_TRACES = "the traces contain no fetch of a batch by a torch DataLoader"
NO_MEMORY_IN_TRACES = (
    "the traces have too few steps, or no memory events with totals of a GPU of known memory size"
)
NO_DEVICE_WORK_IN_TRACES = "the traces have no device work"
NO_STEPS = (
    "no training steps: fewer than two optimizer steps or backward passes, and no marks of steps"
)
STEP_ADVICE = "mark steps of another kind of loop with stepscope.step()"


def sort_series(series: analysis.Series) -> analysis.Series:
    """Sort by time and drop NaN and infinities."""
    finite = np.isfinite(series.value)
    if not finite.all():
        series = analysis.Series(series.t_ns[finite], series.value[finite])
    if (series.t_ns[:-1] <= series.t_ns[1:]).all():
        return series
    order = np.argsort(series.t_ns, kind="stable")
    return analysis.Series(series.t_ns[order], series.value[order])


def device_series(inputs: RuleInputs, metric: str) -> dict[analysis.Device, analysis.Series]:
    """Return the sorted samples of a metric's numbered devices; devices without any are absent."""
    return _sort_and_drop_empty({d: s for d, s in inputs.series(metric).items() if d.number})


def node_series(inputs: RuleInputs, metric: str) -> dict[str, analysis.Series]:
    """Return the sorted samples of a metric of whole nodes, by node."""
    of_nodes = {d: s for d, s in inputs.series(metric).items() if not d.number}
    return {device.node: series for device, series in _sort_and_drop_empty(of_nodes).items()}


def gpu_utilization(inputs: RuleInputs) -> dict[analysis.Device, analysis.Series]:
    """Return the utilization of each GPU, as a ratio."""
    return device_series(inputs, "gpu_busy_ratio")


def gpu_memory_ratio(inputs: RuleInputs) -> dict[analysis.Device, analysis.Series]:
    """Return the used share of each GPU's memory; GPUs of unknown memory size are absent."""
    ratios = device_series(inputs, "gpu_memory_used_ratio")
    for device, series in device_series(inputs, "gpu_memory_used_bytes").items():
        total_bytes = _gpu_memory_bytes(inputs.nodes.get(device.node), device.number)
        if total_bytes:
            ratios[device] = analysis.Series(series.t_ns, series.value / total_bytes)
    return ratios


def _gpu_memory_bytes(node: schema.NodeInfo | None, number: str) -> int | None:
    for index, gpu in enumerate(node.gpus if node else []):
        if str(gpu.get("index", index)) == number:
            return gpu.get("memory_bytes")
    return None


def _sort_and_drop_empty(
    by_device: Mapping[analysis.Device, analysis.Series],
) -> dict[analysis.Device, analysis.Series]:
    ordered = {device: sort_series(series) for device, series in by_device.items()}
    return {device: series for device, series in ordered.items() if len(series.t_ns)}


class SnapshotTimes(NamedTuple):
    """Snapshots of some series of one node."""

    t_ns: intervals.Int
    """First reading of each snapshot."""
    scan: intervals.Int
    """Index of the scan that contains each snapshot."""
    snapshot_of_sample: list[intervals.Int]
    """For each series, the index of the snapshot that contains each sample."""


def find_snapshots(inputs: RuleInputs, all_series: Sequence[analysis.Series]) -> SnapshotTimes:
    """Group the samples of some sorted series into snapshots; see `snapshot_indices`."""
    # Most series of a node have the same times: these are looked up once.
    reference = max((series.t_ns for series in all_series), key=len)
    matches = [np.array_equal(series.t_ns, reference) for series in all_series]
    different = [series.t_ns for series, same in zip(all_series, matches, strict=True) if not same]
    t_ns = reference
    if different:
        t_ns = np.sort(np.concatenate([reference, *different]), kind="stable")
    scan = scan_indices(inputs, t_ns)
    numbers = snapshot_indices(t_ns, scan)
    reference_index = numbers[np.searchsorted(t_ns, reference)] if different else numbers
    first = np.flatnonzero(np.diff(numbers, prepend=-1))
    return SnapshotTimes(
        t_ns[first],
        scan[first],
        [
            reference_index if same else numbers[np.searchsorted(t_ns, series.t_ns)]
            for series, same in zip(all_series, matches, strict=True)
        ],
    )


def snapshot_indices(t_ns: intervals.Int, scans: intervals.Int) -> intervals.Int:
    """Return the index of the snapshot that contains each time, counted from 0.

    A snapshot starts with a reading that is in another scan than the previous reading, or more
    than 20 ms after the first reading of the previous snapshot.

    Args:
        t_ns: sorted times.
        scans: index of the scan of each time.
    """
    if not len(t_ns):
        return np.empty(0, dtype=np.int64)
    starts = np.append(True, (np.diff(t_ns) > SNAPSHOT_NS) | (np.diff(scans) != 0))
    first = t_ns[np.flatnonzero(starts)][np.cumsum(starts) - 1]
    if (t_ns - first > SNAPSHOT_NS).any():  # readings without a pause: cut one by one
        starts = _snapshot_starts(t_ns, scans)
    return np.cumsum(starts) - 1


def _snapshot_starts(t_ns: intervals.Int, scans: intervals.Int) -> NDArray[np.bool_]:
    starts = np.zeros(len(t_ns), dtype=np.bool_)
    index = 0
    while index < len(t_ns):
        starts[index] = True
        limit = np.searchsorted(t_ns, t_ns[index] + SNAPSHOT_NS, side="right")
        scan_limit = np.searchsorted(scans, scans[index], side="right")
        index = int(min(limit, scan_limit))
    return starts


def sort_traces(inputs: RuleInputs) -> list[RuleTrace]:
    """Return the new traces in the order of their ends."""
    return sorted(inputs.traces, key=lambda trace: (trace.end_ns, trace.name))


Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class RollingWindow(msgspec.Struct):
    """Up to `length` latest values, and the count of all values."""

    length: int
    values: NDArray[Any] = msgspec.field(default_factory=lambda: np.empty(0))
    count: int = 0

    def extend(self, new: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """Add values.

        Returns:
            The values of the window so far followed by the new ones, and the count of the former.
        """
        previous = len(self.values)
        joined = np.concatenate([self.values, new]) if previous else new
        self.values = joined[-self.length :].copy()
        self.count += len(new)
        return joined, previous


def rolling_sums(values: NDArray[Any], ends: intervals.Int, window: int) -> NDArray[Any]:
    """Return the sums of the `window` values before each end, along the first axis.

    Args:
        values: in time order, one or two dimensions.
        ends: exclusive end indices.
        window: number of values; fewer at the start.
    """
    sums = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])
    totals: NDArray[Any] = sums[ends] - sums[np.maximum(ends - window, 0)]
    return totals


def is_in_window(count: int, ends: intervals.Int, window: int) -> Bools:
    """Return for each of *count* values whether it is among the *window* values before an end.

    >>> is_in_window(6, np.array([3, 6]), 2).tolist()
    [False, True, True, False, True, True]

    Args:
        count: number of values.
        ends: exclusive end indices.
        window: number of values; fewer at the start.
    """
    changes = np.zeros(count + 1, dtype=np.int64)
    np.add.at(changes, np.maximum(ends - window, 0), 1)
    np.add.at(changes, ends, -1)
    is_inside: Bools = np.cumsum(changes)[:count] > 0
    return is_inside


def rolling_quantiles(
    values: Floats, ends: intervals.Int, window: int, shares: Sequence[float]
) -> Floats:
    """Return quantiles of the `window` values up to and including each end index.

    Args:
        values: in time order.
        ends: indices, ascending.
        window: number of values; fewer at the start.
        shares: such as 0.95; linear interpolation, as by numpy's default.

    Returns:
        One row per end, one column per share.
    """
    quantiles = np.empty((len(ends), len(shares)))
    is_short = ends + 1 < window
    for row in np.flatnonzero(is_short):
        quantiles[row] = _quantiles(values[: ends[row] + 1], shares)
    if not is_short.all():
        windows = np.lib.stride_tricks.sliding_window_view(values, window)
        quantiles[~is_short] = _quantiles(windows[ends[~is_short] + 1 - window], shares)
    return quantiles


def _quantiles(values: Floats, shares: Sequence[float]) -> Floats:
    """Return quantiles along the last axis, equal to `np.quantile` to the last bit.

    `np.quantile` partitions, which takes several times as long as sorting for windows of some
    hundred values. Zeros are unsigned.
    """
    ordered = np.sort(values, axis=-1)
    positions = np.asarray(shares) * (values.shape[-1] - 1)
    below = np.floor(positions).astype(np.int64)
    above = np.minimum(below + 1, values.shape[-1] - 1)
    low, high, fraction = ordered[..., below], ordered[..., above], positions - below
    quantiles: Floats = np.where(
        fraction >= 0.5, high - (high - low) * (1 - fraction), low + (high - low) * fraction
    )
    return quantiles + 0.0  # sorting may put a zero before or after a negative zero


def quantiles_at_scan_ends(
    window: RollingWindow,
    values: Floats,
    scans: intervals.Int,
    shares: Sequence[float],
    *,
    patience: int,
) -> tuple[intervals.Int, Floats]:
    """Return quantiles of the latest `window.length` values at the end of each scan.

    Args:
        window: previous values; the new ones are added.
        values, scans: new values in time order, and the index of the scan of each.
        shares: quantiles to return.
        patience: scans are left out until the count of values exceeds this.

    Returns:
        Indices of the scans, and one row of quantiles for each.
    """
    previous_count = window.count
    joined, previous = window.extend(values)
    ends = last_indices(scans)
    ends = ends[previous_count + ends + 1 > patience]
    return scans[ends], rolling_quantiles(joined, ends + previous, window.length, shares)


class WindowQuantiles(NamedTuple):
    """Quantiles of the window of samples at the end of some scans; arrays have a row per scan."""

    scan: intervals.Int
    """Index of the scan."""
    quantiles: Floats
    start_ns: intervals.Int
    """First sample of the window."""
    end_ns: intervals.Int
    """Last sample of the window."""

    def where(self, condition: NDArray[np.bool_]) -> WindowQuantiles:
        """Return the scans for which a condition holds."""
        return WindowQuantiles(
            self.scan[condition],
            self.quantiles[condition],
            self.start_ns[condition],
            self.end_ns[condition],
        )


class UsageSamples(msgspec.Struct):
    """A rolling window of the latest samples, and a quantile sketch of all samples."""

    window: RollingWindow
    times: RollingWindow
    """Times of the samples of the window."""
    sketch: QuantileSketch = msgspec.field(default_factory=QuantileSketch)

    @classmethod
    def of_window(cls, length: int) -> UsageSamples:
        """Return the state before any samples."""
        return cls(RollingWindow(length), RollingWindow(length))

    @property
    def count(self) -> int:
        """Count of all samples."""
        return self.window.count

    def add(
        self, inputs: RuleInputs, series: analysis.Series, shares: Sequence[float], *, patience: int
    ) -> WindowQuantiles:
        """Add sorted samples.

        Args:
            inputs: the range, for its scans.
            series: new samples.
            shares: quantiles to return.
            patience: scans are left out until the count of samples exceeds this.
        """
        self.sketch.add(series.value)
        scans = scan_indices(inputs, series.t_ns)
        t_ns, previous = self.times.extend(series.t_ns)
        scan, quantiles = quantiles_at_scan_ends(
            self.window, series.value, scans, shares, patience=patience
        )
        latest = last_indices(scans)[-len(scan) :] if len(scan) else scan
        ends = latest + previous
        starts = np.maximum(ends + 1 - self.times.length, 0)
        return WindowQuantiles(scan, quantiles, t_ns[starts], t_ns[ends])
