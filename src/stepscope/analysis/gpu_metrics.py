"""How well a device's multiprocessors were used.

For one device over a range T, the steps of the recording from the first start to the last end:

    utilization        |union of its kernels inside T| / T; copies and sets do not count,
                       kernels of collectives do
    SM efficiency      integral over T of min(1, sum of blocks per multiprocessor of the kernels
                       running at that moment) / T; idle time counts as 0, kernels whose blocks
                       per multiprocessor are unknown or not positive are left out
    occupancy          sum(occupancy * time inside T) / sum(time inside T) over the kernels whose
                       occupancy is known and not negative; not divided by T
    tensor cores       sum of the durations of kernels on tensor cores / that of all kernels, by
                       name: a heuristic

A figure that no kernel gives is None, and so are shares of a range that is empty. Efficiency and
occupancy are estimates: they come from the launch configuration, not from hardware counters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.buckets import Buckets
from stepscope.analysis.columns import Columns
from stepscope.analysis.kernel_classes import rows_where, uses_tensor_cores
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
_WHOLE = 1_000_000
"""Blocks per multiprocessor are summed as whole millionths, which is how recorders round them,
so that what is added when a kernel starts goes exactly when it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Kernels of one device."""

    start: Int
    end: Int
    blocks: NDArray[np.float64]
    """Blocks per multiprocessor, NaN when unknown."""
    occupancy_ratio: NDArray[np.float64]
    """NaN when unknown."""
    tensor_cores: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMetrics:
    """Of one device; see above."""

    kernel_count: int
    utilization_ratio: float | None
    sm_efficiency_ratio: float | None
    occupancy_ratio: float | None
    tensor_core_ratio: float | None
    utilization_curve: list[float]
    """Share of each bucket."""
    sm_efficiency_curve: list[float] | None


def kernels_by_device(columns: Columns, multiprocessors: dict[int, int]) -> dict[int, Kernels]:
    """Splits the kernels of a recording.

    Args:
        columns: `METRIC_KERNEL_COLUMNS`.
        multiprocessors: of each device, where known: where the recorder gave no blocks per
            multiprocessor they follow from the grid.
    """
    start = columns["start_ns"]
    end = start + columns["duration_ns"]
    blocks = columns["blocks_per_multiprocessor"]
    grid = [columns[f"grid_{axis}"].astype(np.int64) for axis in "xyz"]
    known_grid = (grid[0] >= 0) & (grid[1] >= 0) & (grid[2] >= 0)
    tensor_cores = rows_where(columns["name"], uses_tensor_cores)
    occupancy = columns["occupancy_percent"] / 100
    found = {}
    for device in np.unique(columns["device"]).tolist():
        own = columns["device"] == device
        its = blocks[own]
        if device in multiprocessors:
            total = (grid[0] * grid[1] * grid[2])[own] / multiprocessors[device]
            its = np.where(np.isnan(its) & known_grid[own], total, its)
        found[device] = Kernels(
            start=start[own],
            end=end[own],
            blocks=its,
            occupancy_ratio=occupancy[own],
            tensor_cores=tensor_cores[own],
        )
    return found


def measure_gpu_metrics(
    kernels: Kernels, start_ns: int, end_ns: int, cut: Buckets | None
) -> GpuMetrics:
    """The figures of one device.

    Args:
        kernels: of the device.
        start_ns, end_ns: the range T.
        cut: for the curves; they may cover another range.
    """
    whole = end_ns - start_ns
    start = np.clip(kernels.start, start_ns, end_ns)
    inside_ns = np.clip(kernels.end, start_ns, end_ns) - start
    load = Load.of(kernels)
    known = kernels.occupancy_ratio >= 0  # False for NaN
    weight = inside_ns[known].sum()
    duration = kernels.end - kernels.start
    busy = union(Intervals(kernels.start, kernels.end))
    clipped = union(Intervals(start, start + inside_ns))
    return GpuMetrics(
        kernel_count=len(start),
        utilization_ratio=clipped.total_ns / whole if whole else None,
        sm_efficiency_ratio=load.mean(np.array([start_ns, end_ns]))[0] if load and whole else None,
        occupancy_ratio=(
            float((kernels.occupancy_ratio[known] * inside_ns[known]).sum() / weight)
            if weight
            else None
        ),
        tensor_core_ratio=(
            float(duration[kernels.tensor_cores].sum() / duration.sum()) if duration.any() else None
        ),
        utilization_curve=cut.covered_ratio(busy) if cut else [],
        sm_efficiency_curve=load.mean(cut.edges) if load and cut else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How full the multiprocessors are: `level[i]` millionths from `time[i]` to `time[i + 1]`."""

    time: Int
    level: Int
    integral: Int
    """Of the level from the first time up to each."""

    @classmethod
    def of(cls, kernels: Kernels) -> Load | None:
        """None when the blocks per multiprocessor of no kernel are known."""
        known = (kernels.blocks > 0) & (kernels.end > kernels.start)
        if not known.any():
            return None
        blocks = np.rint(kernels.blocks[known] * _WHOLE).astype(np.int64)
        times = np.concatenate([kernels.start[known], kernels.end[known]])
        order = np.argsort(times, kind="stable")
        time = times[order]
        level = np.minimum(np.cumsum(np.concatenate([blocks, -blocks])[order]), _WHOLE)
        integral = np.concatenate([[0], np.cumsum(level[:-1] * np.diff(time))])
        return cls(time=time, level=level, integral=integral)

    def mean(self, edges: Int) -> list[float]:
        """Between each edge and the next."""
        place = np.searchsorted(self.time, edges, side="right") - 1
        inside = np.maximum(place, 0)
        since = np.maximum(edges - self.time[inside], 0)
        until = np.where(place >= 0, self.integral[inside] + self.level[inside] * since, 0)
        return list((np.diff(until) / np.diff(edges) / _WHOLE).tolist())
