"""Utilization of devices over time, from the kernels of several traces.

Of each bucket, over the devices d of one group,

    utilization = sum |U(kernels of d) in the recorded time of d| / sum |recorded time of d|

with U(x) for the time covered by any of x. Copies and sets do not count, as in `gpu_metrics` and
in the samples of the driver. A bucket in which nothing was recorded has no utilization.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.buckets import Buckets
from stepscope.analysis.columns import nan_to_none
from stepscope.analysis.device_work import KERNEL, DeviceWork
from stepscope.intervals import Intervals, overlap, union


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedKernels:
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
