"""Samples prepared for rules: in time order, without failed readings, as ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import Device, Series
from stepscope.intervals import Int
from stepscope.rules.inputs import RuleInputs, scan_indices
from stepscope.rules.traces import RuleTrace
from stepscope.schema import NodeInfo

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


def sort_series(series: Series) -> Series:
    """Sort by time and drop NaN and infinities."""
    finite = np.isfinite(series.value)
    if not finite.all():
        series = Series(series.t_ns[finite], series.value[finite])
    if (series.t_ns[:-1] <= series.t_ns[1:]).all():
        return series
    order = np.argsort(series.t_ns, kind="stable")
    return Series(series.t_ns[order], series.value[order])


def device_series(inputs: RuleInputs, metric: str) -> dict[Device, Series]:
    """Return the sorted samples of a metric's numbered devices; devices without any are absent."""
    return _sort_and_drop_empty({d: s for d, s in inputs.series(metric).items() if d.number})


def node_series(inputs: RuleInputs, metric: str) -> dict[str, Series]:
    """Return the sorted samples of a metric of whole nodes, by node."""
    of_nodes = {d: s for d, s in inputs.series(metric).items() if not d.number}
    return {device.node: series for device, series in _sort_and_drop_empty(of_nodes).items()}


def gpu_utilization(inputs: RuleInputs) -> dict[Device, Series]:
    """Return the utilization of each GPU, as a ratio."""
    return device_series(inputs, "gpu_busy_ratio")


def gpu_memory_ratio(inputs: RuleInputs) -> dict[Device, Series]:
    """Return the used share of each GPU's memory; GPUs of unknown memory size are absent."""
    ratios = device_series(inputs, "gpu_memory_used_ratio")
    for device, series in device_series(inputs, "gpu_memory_used_bytes").items():
        total_bytes = _gpu_memory_bytes(inputs.nodes.get(device.node), device.number)
        if total_bytes:
            ratios[device] = Series(series.t_ns, series.value / total_bytes)
    return ratios


def _gpu_memory_bytes(node: NodeInfo | None, number: str) -> int | None:
    for index, gpu in enumerate(node.gpus if node else []):
        if str(gpu.get("index", index)) == number:
            return gpu.get("memory_bytes")
    return None


def _sort_and_drop_empty(by_device: Mapping[Device, Series]) -> dict[Device, Series]:
    ordered = {device: sort_series(series) for device, series in by_device.items()}
    return {device: series for device, series in ordered.items() if len(series.t_ns)}


class SnapshotTimes(NamedTuple):
    """Snapshots of some series of one node."""

    t_ns: Int
    """First reading of each snapshot."""
    scan: Int
    """Index of the scan that contains each snapshot."""
    snapshot_of_sample: list[Int]
    """For each series, the index of the snapshot that contains each sample."""


def find_snapshots(inputs: RuleInputs, all_series: Sequence[Series]) -> SnapshotTimes:
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


def snapshot_indices(t_ns: Int, scans: Int) -> Int:
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


def _snapshot_starts(t_ns: Int, scans: Int) -> NDArray[np.bool_]:
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
