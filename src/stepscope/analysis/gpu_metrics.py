"""Utilization of a device's multiprocessors.

For one device over a range T, the steps of the trace from the first start to the last end:

    utilization        |union of its kernels inside T| / T; copies and sets do not count,
                       kernels of collectives do
    SM efficiency      integral over T of min(1, sum of blocks per multiprocessor of the kernels
                       running at that moment) / T; idle time counts as 0, kernels whose blocks
                       per multiprocessor are unknown or not positive are ignored
    occupancy          sum(occupancy * time inside T) / sum(time inside T) over the kernels whose
                       occupancy is known and not negative; not divided by T
    tensor cores       sum of the durations of kernels on tensor cores / that of all kernels, by
                       name: a heuristic

A figure without data is None, and so is a share of an empty range. Efficiency and occupancy are
estimates: they come from the launch configuration, not from hardware counters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.buckets import Buckets
from stepscope.analysis.columns import Columns
from stepscope.analysis.kernel_classes import match_rows, uses_tensor_cores
from stepscope.intervals import Int, Intervals, union

METRIC_KERNEL_COLUMNS = (
    "device",
    "name",
    "start_ns",
    "duration_ns",
    "grid_x",
    "grid_y",
    "grid_z",
    "blocks_per_multiprocessor",
    "occupancy_percent",
)
"""Columns of `kernels` that are read here."""
_MILLIONTHS = 1_000_000
"""Blocks per multiprocessor are summed as integer millionths, the precision of profilers, so that
the amount added at a kernel's start is exactly the amount removed at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKernels:
    """Kernels of one device."""

    start: Int
    end: Int
    blocks: NDArray[np.float64]
    """Blocks per multiprocessor, NaN if unknown."""
    occupancy_ratio: NDArray[np.float64]
    """Occupancy, NaN if unknown."""
    tensor_cores: NDArray[np.bool_]
    """True for kernels on tensor cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMetrics:
    """Figures of one device; the module's docstring has their definitions."""

    kernel_count: int
    utilization_ratio: float | None
    sm_efficiency_ratio: float | None
    occupancy_ratio: float | None
    tensor_core_ratio: float | None
    utilization_curve: list[float]
    """Utilization in each bucket."""
    sm_efficiency_curve: list[float] | None


def split_by_device(columns: Columns, multiprocessors: dict[int, int]) -> dict[int, DeviceKernels]:
    """Split the kernels of a trace by device.

    Args:
        columns: `METRIC_KERNEL_COLUMNS`.
        multiprocessors: multiprocessor count of each device, if known; the blocks per
            multiprocessor are computed from the grid if the profiler did not record them.
    """
    start = columns["start_ns"]
    end = start + columns["duration_ns"]
    blocks = columns["blocks_per_multiprocessor"]
    grid = [columns[f"grid_{axis}"].astype(np.int64) for axis in "xyz"]
    has_grid = (grid[0] >= 0) & (grid[1] >= 0) & (grid[2] >= 0)
    tensor_cores = match_rows(columns["name"], uses_tensor_cores)
    occupancy = columns["occupancy_percent"] / 100
    kernels = {}
    for device in np.unique(columns["device"]).tolist():
        rows = columns["device"] == device
        device_blocks = blocks[rows]
        if device in multiprocessors:
            from_grid = (grid[0] * grid[1] * grid[2])[rows] / multiprocessors[device]
            device_blocks = np.where(
                np.isnan(device_blocks) & has_grid[rows], from_grid, device_blocks
            )
        kernels[device] = DeviceKernels(
            start=start[rows],
            end=end[rows],
            blocks=device_blocks,
            occupancy_ratio=occupancy[rows],
            tensor_cores=tensor_cores[rows],
        )
    return kernels


def measure_gpu_metrics(
    kernels: DeviceKernels, start_ns: int, end_ns: int, buckets: Buckets | None
) -> GpuMetrics:
    """Measure the utilization of one device.

    Args:
        kernels: kernels of the device.
        start_ns, end_ns: the range T.
        buckets: buckets of the curves; they may cover another range.
    """
    range_ns = end_ns - start_ns
    start = np.clip(kernels.start, start_ns, end_ns)
    inside_ns = np.clip(kernels.end, start_ns, end_ns) - start
    load = MultiprocessorLoad.from_kernels(kernels)
    has_occupancy = kernels.occupancy_ratio >= 0  # False for NaN
    weight = inside_ns[has_occupancy].sum()
    duration = kernels.end - kernels.start
    busy = union(Intervals(kernels.start, kernels.end))
    clipped = union(Intervals(start, start + inside_ns))
    return GpuMetrics(
        kernel_count=len(start),
        utilization_ratio=clipped.total_ns / range_ns if range_ns else None,
        sm_efficiency_ratio=(
            load.mean(np.array([start_ns, end_ns]))[0] if load and range_ns else None
        ),
        occupancy_ratio=(
            float(
                (kernels.occupancy_ratio[has_occupancy] * inside_ns[has_occupancy]).sum() / weight
            )
            if weight
            else None
        ),
        tensor_core_ratio=(
            float(duration[kernels.tensor_cores].sum() / duration.sum()) if duration.any() else None
        ),
        utilization_curve=buckets.covered_ratio(busy) if buckets else [],
        sm_efficiency_curve=load.mean(buckets.edges) if load and buckets else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiprocessorLoad:
    """Load of the multiprocessors: `level[i]` millionths from `time[i]` to `time[i + 1]`."""

    time: Int
    level: Int
    integral: Int
    """Integral of the level from `time[0]` to each time."""

    @classmethod
    def from_kernels(cls, kernels: DeviceKernels) -> MultiprocessorLoad | None:
        """Sum the blocks of running kernels; None without known blocks per multiprocessor."""
        usable = (kernels.blocks > 0) & (kernels.end > kernels.start)
        if not usable.any():
            return None
        blocks = np.rint(kernels.blocks[usable] * _MILLIONTHS).astype(np.int64)
        times = np.concatenate([kernels.start[usable], kernels.end[usable]])
        order = np.argsort(times, kind="stable")
        time = times[order]
        level = np.minimum(np.cumsum(np.concatenate([blocks, -blocks])[order]), _MILLIONTHS)
        integral = np.concatenate([[0], np.cumsum(level[:-1] * np.diff(time))])
        return cls(time=time, level=level, integral=integral)

    def mean(self, edges: Int) -> list[float]:
        """Mean load between each edge and the next, as a ratio."""
        index = np.searchsorted(self.time, edges, side="right") - 1
        clipped = np.maximum(index, 0)
        since = np.maximum(edges - self.time[clipped], 0)
        integral = np.where(index >= 0, self.integral[clipped] + self.level[clipped] * since, 0)
        return list((np.diff(integral) / np.diff(edges) / _MILLIONTHS).tolist())
