"""Breakdown of device time into compute, exposed communication, exposed copies and idle.

Over the kernels, copies and sets of one rank, or of one of its devices, with U(x) for the time
covered by any of x, in integer nanoseconds:

    total          last end - first start; clipped to the range of time, if there is one
    busy           |U(all)|
    idle           total - busy
    compute        |U(kernels that do not communicate, sets)|
    memset         |U(sets)|, included in compute
    comm           |U(kernels of collectives)|
    exposed_comm   |U(comm) minus U(compute)|
    exposed_memcpy |U(copies) minus U(compute) minus U(comm)|

so that compute + exposed_comm + exposed_memcpy + idle = total.

Nothing is rounded. Work on one stream may overlap; it counts once. Work launched before the
window counts unless the caller has removed it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.device_work import MEMCPY, MEMSET, DeviceWork
from stepscope.intervals import Intervals, union


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTime:
    """Breakdown of device time; the module's docstring has the formulas."""

    total_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    memset_ns: int
    comm_ns: int
    exposed_comm_ns: int
    exposed_memcpy_ns: int
    same_stream_overlap_count: int
    gpu_event_count: int

    def __post_init__(self) -> None:
        parts = self.compute_ns + self.exposed_comm_ns + self.exposed_memcpy_ns + self.idle_ns
        if parts != self.total_ns or self.busy_ns + self.idle_ns != self.total_ns:
            raise ArithmeticError(f"GPU time is not conserved: {self}")


def measure_gpu_time(work: DeviceWork, within: tuple[int, int] | None = None) -> GpuTime | None:
    """Break down the time of all devices together; None without device work.

    Args:
        work: all device work.
        within: range of time to restrict the breakdown to.
    """
    if not len(work):
        return None
    first, last = int(work.start.min()), int(work.end.max())
    if within is not None:
        first, last, work = max(first, within[0]), min(last, within[1]), work.clip(within)
        if first > last:
            return None
    memcpy = work.kind == MEMCPY
    compute = work.compute | (work.kind == MEMSET)
    compute_ns = _measure_covered(work, compute)
    with_comm_ns = _measure_covered(work, ~memcpy)
    busy_ns = _measure_covered(work, np.ones(len(work), dtype=np.bool_))
    total_ns = last - first
    return GpuTime(
        total_ns=total_ns,
        busy_ns=busy_ns,
        idle_ns=total_ns - busy_ns,
        compute_ns=compute_ns,
        memset_ns=_measure_covered(work, work.kind == MEMSET),
        comm_ns=_measure_covered(work, work.communication),
        exposed_comm_ns=with_comm_ns - compute_ns,
        exposed_memcpy_ns=busy_ns - with_comm_ns,
        same_stream_overlap_count=count_same_stream_overlaps(work),
        gpu_event_count=len(work),
    )


def measure_gpu_time_by_device(
    work: DeviceWork, within: tuple[int, int] | None = None
) -> dict[int, GpuTime]:
    """Break down the time of each device, from its first start to its last end."""
    times = {}
    for device in np.unique(work.device).tolist():
        time = measure_gpu_time(work.take(work.device == device), within)
        if time is not None:
            times[device] = time
    return times


def count_same_stream_overlaps(work: DeviceWork) -> int:
    """Count the work that starts before earlier work of its stream has ended."""
    order = np.lexsort((work.end, work.start, work.track))
    track, start = work.track[order], work.start[order]
    # Streams are shifted to follow each other, so that one running maximum works for all.
    number = np.cumsum(np.diff(track, prepend=track[:1]) != 0)
    first = int(work.start.min()) if len(work) else 0
    shift = number * (int(work.end.max()) - first + 1) if len(work) else number
    reach = np.maximum.accumulate(work.end[order] - first + shift)
    return int((start[1:] - first + shift[1:] < reach[:-1]).sum())


def _measure_covered(work: DeviceWork, rows: NDArray[np.bool_]) -> int:
    return union(Intervals(work.start[rows], work.end[rows])).total_ns
