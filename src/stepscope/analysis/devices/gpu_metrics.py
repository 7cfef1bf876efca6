"""Utilization of a device's multiprocessors, as a whole and over time.

For one device over a range T, the steps of the trace from the first start to the last end:

    utilization        |union of its kernels inside T| / T; copies and sets do not count,
                       kernels of collectives do
    SM efficiency      integral over K of min(1, sum of blocks per multiprocessor of the kernels
                       running at that moment) / |K|, with K = T without the time in which a kernel
                       runs whose blocks per multiprocessor are unknown; idle time counts as 0
    occupancy          sum(occupancy * time inside T) / sum(time inside T) over the kernels whose
                       occupancy is known; not divided by T
    tensor cores       sum of the durations of kernels on tensor cores / that of all kernels, by
                       name: a heuristic, and a lower bound if names do not show it
    unknown            share of kernel time that a figure does not cover: of the time inside T for
                       efficiency and occupancy, of all durations for tensor cores

Profilers write whole percents of occupancy, and 0 also where they could not estimate it. A kernel
with W warps per multiprocessor, of at most 64, has an occupancy of about W / 64: 0 is rounded if
that is below half a percent, else it is unknown.

A figure without data is None, and so is a share of an empty range. Efficiency and occupancy are
estimates: they come from the launch configuration, not from hardware counters.

Utilization of devices over time, from the kernels of several traces. Of each bucket, over the
devices d of one group,

    utilization = sum |U(kernels of d) in the recorded time of d| / sum |recorded time of d|

with U(x) for the time covered by any of x. Copies and sets do not count, as in `gpu_metrics` and
in the samples of the driver. A bucket in which nothing was recorded has no utilization.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.arrays.columns import Columns, nan_to_none
from stepscope.analysis.arrays.histograms import Buckets
from stepscope.analysis.devices.device_work import KERNEL, DeviceWork
from stepscope.analysis.kernel_classes import hides_tensor_cores, match_rows, uses_tensor_cores
from stepscope.intervals import Int, Intervals, contains, overlap, union

OCCUPANCY_COLUMNS = ("occupancy_percent", "warps_per_multiprocessor")
"""Columns of `kernels` that `read_occupancy` reads."""
METRIC_KERNEL_COLUMNS = (
    "device",
    "name",
    "start_ns",
    "duration_ns",
    "grid_x",
    "grid_y",
    "grid_z",
    "blocks_per_multiprocessor",
    *OCCUPANCY_COLUMNS,
)
"""Columns of `kernels` that are read here."""
_MAX_WARPS = 64
"""Warps that fit on a multiprocessor: the most of any device, so that no possible 0 is dropped."""
_MILLIONTHS = 1_000_000
"""Blocks per multiprocessor are summed as integer millionths, the precision of profilers, so that
the amount added at a kernel's start is exactly the amount removed at its end."""


class DeviceKernels(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one device."""

    start: Int
    end: Int
    blocks: NDArray[np.float64]
    """Blocks per multiprocessor, NaN if unknown."""
    occupancy_ratio: NDArray[np.float64]
    """Occupancy, NaN if unknown."""
    tensor_cores: NDArray[np.bool_]
    """True for kernels on tensor cores."""
    hidden_cores: NDArray[np.bool_]
    """True for kernels whose names do not show whether they run on tensor cores."""


class GpuMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one device; the module's docstring has their definitions."""

    kernel_count: int
    utilization_ratio: float | None
    sm_efficiency_ratio: float | None
    occupancy_ratio: float | None
    tensor_core_ratio: float | None
    unknown_grid_ratio: float | None
    unknown_occupancy_ratio: float | None
    unknown_tensor_core_ratio: float | None
    utilization_curve: list[float]
    """Utilization in each bucket."""
    sm_efficiency_curve: list[float | None] | None
    """None in buckets in which kernels with unknown blocks ran all the time."""


def read_occupancy(kernels: Columns) -> NDArray[np.float64]:
    """Read the occupancy of kernels in percent; NaN where the profiler could not estimate it.

    Args:
        kernels: `OCCUPANCY_COLUMNS`.
    """
    percent: NDArray[np.float64] = kernels["occupancy_percent"]
    warps = kernels["warps_per_multiprocessor"]
    is_rounded = warps / _MAX_WARPS < 0.005  # False for NaN
    return np.where((percent > 0) | ((percent == 0) & is_rounded), percent, np.nan)


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
    hidden_cores = match_rows(columns["name"], hides_tensor_cores)
    occupancy = read_occupancy(columns) / 100
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
            hidden_cores=hidden_cores[rows],
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
    has_occupancy = ~np.isnan(kernels.occupancy_ratio)
    has_blocks = kernels.blocks > 0  # False for NaN
    weight = inside_ns[has_occupancy].sum()
    duration = kernels.end - kernels.start
    busy = union(Intervals(kernels.start, kernels.end))
    clipped = union(Intervals(start, start + inside_ns))

    def share_of(kernel_ns: Int, rows: NDArray[np.bool_]) -> float | None:
        return float(kernel_ns[rows].sum() / kernel_ns.sum()) if kernel_ns.any() else None

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
        tensor_core_ratio=share_of(duration, kernels.tensor_cores),
        unknown_grid_ratio=share_of(inside_ns, ~has_blocks),
        unknown_occupancy_ratio=share_of(inside_ns, ~has_occupancy),
        unknown_tensor_core_ratio=share_of(duration, kernels.hidden_cores),
        utilization_curve=buckets.covered_ratio(busy) if buckets else [],
        sm_efficiency_curve=load.mean(buckets.edges) if load and buckets else None,
    )


class MultiprocessorLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Load of the multiprocessors: `level[i]` millionths from `time[i]` to `time[i + 1]`."""

    time: Int
    level: Int
    integral: Int
    """Integral of the level from `time[0]` to each time."""
    unknown: Intervals
    """Time in which kernels run whose blocks are unknown, merged: it does not count."""

    @classmethod
    def from_kernels(cls, kernels: DeviceKernels) -> MultiprocessorLoad | None:
        """Sum the blocks of running kernels; None without known blocks per multiprocessor."""
        has_blocks = kernels.blocks > 0  # False for NaN
        usable = has_blocks & (kernels.end > kernels.start)
        if not usable.any():
            return None
        blocks = np.rint(kernels.blocks[usable] * _MILLIONTHS).astype(np.int64)
        times = np.concatenate([kernels.start[usable], kernels.end[usable]])
        order = np.argsort(times, kind="stable")
        time = times[order]
        level = np.minimum(np.cumsum(np.concatenate([blocks, -blocks])[order]), _MILLIONTHS)
        integral = np.concatenate([[0], np.cumsum(level[:-1] * np.diff(time))])
        unknown = union(Intervals(kernels.start[~has_blocks], kernels.end[~has_blocks]))
        return cls(time=time, level=level, integral=integral, unknown=unknown)

    def mean(self, edges: Int) -> list[float | None]:
        """Mean load between each edge and the next, as a ratio; None where no time counts."""
        load = np.diff(self._integrate(edges))
        # Unknown time may extend over several edges: it is cut at each of them.
        cuts = np.unique(np.concatenate([edges, *self.unknown]))
        is_unknown = contains(self.unknown, cuts[:-1])
        piece = np.searchsorted(edges, cuts[:-1], side="right") - 1
        inside = is_unknown & (piece >= 0) & (piece < len(edges) - 1)
        count = len(edges) - 1
        lost = np.diff(self._integrate(cuts))[inside]
        load = load - np.bincount(piece[inside], weights=lost, minlength=count)
        time = np.diff(edges) - np.bincount(
            piece[inside], weights=np.diff(cuts)[inside], minlength=count
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            return nan_to_none(np.where(time > 0, load / time / _MILLIONTHS, np.nan))

    def _integrate(self, times: Int) -> Int:
        """Integral of the level from the first change to each time."""
        index = np.searchsorted(self.time, times, side="right") - 1
        clipped = np.maximum(index, 0)
        since = np.maximum(times - self.time[clipped], 0)
        integral: Int = np.where(
            index >= 0, self.integral[clipped] + self.level[clipped] * since, 0
        )
        return integral


class RecordedKernels(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one device in one trace, and the time in which the trace recorded them."""

    busy: Intervals
    """Time covered by kernels, merged."""
    recorded: Intervals
    """One interval."""


def find_recorded_kernels(
    work: DeviceWork, device: int, recorded: tuple[int, int], *, shift_ns: int
) -> RecordedKernels:
    """Find the time covered by the kernels of a device while a trace recorded it.

    Args:
        work: work of all devices of the trace.
        device: the device.
        recorded: start and end of the recorded time, on the clock of the trace.
        shift_ns: converts times of the trace to the clock of the result.
    """
    kernels = work.take((work.kind == KERNEL) & (work.device == device)).clip(recorded)
    start_ns, end_ns = recorded
    return RecordedKernels(
        busy=union(Intervals(kernels.start + shift_ns, kernels.end + shift_ns)),
        recorded=Intervals(np.array([start_ns + shift_ns]), np.array([end_ns + shift_ns])),
    )


def measure_recorded_utilization(
    devices: Sequence[RecordedKernels], buckets: Buckets
) -> list[float | None]:
    """Measure the utilization of a group of devices in each bucket; None where nothing was
    recorded."""
    intervals = buckets.intervals
    busy_ns, recorded_ns = (
        np.sum([overlap(intervals, part) for part in parts], axis=0)
        for parts in zip(*((one.busy, one.recorded) for one in devices), strict=True)
    )
    with np.errstate(invalid="ignore"):
        return nan_to_none(busy_ns / recorded_ns)
