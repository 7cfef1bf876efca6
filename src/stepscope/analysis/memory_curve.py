"""Memory of each device in use over time.

    allocated(t)   bytes in use after the latest event at or before t, as the profiler reports;
                   without such totals: the sum of the signed sizes since the start of the trace,
                   a change instead of a level (`absolute` is false)
    at the start   allocated after the first event - the size of that event
    peak           the maximum of allocated, at the first time it is reached

The curve is a step function: a value holds until the next point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns
from stepscope.analysis.grouping import group_rows
from stepscope.intervals import Int, Intervals

CURVE_COLUMNS = (
    *("t_ns", "device_type", "device", "size_bytes"),
    *("allocated_bytes", "reserved_bytes"),
)
"""Columns of `memory_events` that `split_memory_by_device` reads."""
_POINTS_PER_BUCKET = 3


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DeviceMemory:
    """Memory events of one device, in order of time; arrays have one entry per event."""

    device_type: int
    """0 for the host, 1 for CUDA, otherwise the framework's number."""
    device: int
    rows: Int
    """Row of each event in the table."""
    t_ns: Int
    size_bytes: Int
    allocated_bytes: Int
    """Bytes in use after each event, or the change since the start."""
    reserved_bytes: Int | None
    absolute: bool
    """True if `allocated_bytes` is a level, not a change."""

    @property
    def name(self) -> str:
        """`CPU`, `GPU 0` or, for other device types, the framework's numbers."""
        if self.device_type == 0:
            return "CPU"
        if self.device_type == 1:
            return f"GPU {self.device}"
        return f"device type {self.device_type} number {self.device}"

    @property
    def peak_index(self) -> int:
        """Index of the event that reached the peak."""
        return int(self.allocated_bytes.argmax())

    @property
    def start_bytes(self) -> int:
        """Bytes in use before the first event."""
        return int(self.allocated_bytes[0] - self.size_bytes[0])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MemoryCurve:
    """Memory over time as points of a step function."""

    t_ns: Int
    allocated_bytes: Int
    reserved_bytes: Int | None


def split_memory_by_device(events: Columns) -> list[DeviceMemory]:
    """Split memory events by device, the host last.

    Args:
        events: `CURVE_COLUMNS` of the table; rows of one thread are in order.
    """
    if not len(events["t_ns"]):
        return []
    order = np.argsort(events["t_ns"], kind="stable")
    groups = group_rows(events["device_type"], events["device"])
    group = groups.group[order]
    devices = [_select_device(events, order[group == g]) for g in range(len(groups))]
    return sorted(devices, key=lambda d: (d.device_type == 0, d.device_type, d.device))


def _select_device(events: Columns, rows: Int) -> DeviceMemory:
    allocated, reserved = events["allocated_bytes"][rows], events["reserved_bytes"][rows]
    absolute = bool((allocated >= 0).all())
    size = events["size_bytes"][rows]
    is_host = int(events["device_type"][rows[0]]) == 0
    return DeviceMemory(
        device_type=int(events["device_type"][rows[0]]),
        device=int(events["device"][rows[0]]),
        rows=rows,
        t_ns=events["t_ns"][rows],
        size_bytes=size,
        allocated_bytes=allocated if absolute else np.cumsum(size),
        reserved_bytes=None if is_host or not (reserved >= 0).all() else reserved,
        absolute=absolute,
    )


def measure_step_memory(memory: DeviceMemory, extent: Intervals) -> tuple[Int, Int]:
    """Measure the least and the most bytes that are allocated in each step.

    The level at the start of a step counts too.

    Args:
        memory: events of one device, at least one.
        extent: the steps, by start.
    """
    level = np.concatenate([[memory.start_bytes], memory.allocated_bytes])
    # The index of the level that holds at a time is the count of events up to then.
    first = np.searchsorted(memory.t_ns, extent.start, side="right")
    end = np.searchsorted(memory.t_ns, extent.end) + 1
    rows = [level[i : max(j, i + 1)] for i, j in zip(first.tolist(), end.tolist(), strict=True)]
    minima = np.array([row.min() for row in rows], dtype=np.int64)
    return minima, np.array([row.max() for row in rows], dtype=np.int64)


def downsample_curve(
    device: DeviceMemory, points: int, *, bucket_ns: int | None = None
) -> MemoryCurve:
    """Downsample a curve, keeping the extremes of equal time buckets.

    A bucket keeps its lowest and highest allocated and its highest reserved value; the first and
    last events are kept too.

    Args:
        device: events of the device.
        points: approximate limit of points; a curve with fewer is not changed.
        bucket_ns: length of the buckets; by default it follows from `points`.
    """
    t, allocated, reserved = device.t_ns, device.allocated_bytes, device.reserved_bytes
    if bucket_ns or len(t) > points:
        curves = [-allocated, allocated, *([reserved] if reserved is not None else [])]
        rows = find_extremes(t, curves, points, bucket_ns=bucket_ns)
        t, allocated = t[rows], allocated[rows]
        reserved = reserved[rows] if reserved is not None else None
    return MemoryCurve(t_ns=t, allocated_bytes=allocated, reserved_bytes=reserved)


def find_extremes(
    t_ns: Int, curves: Sequence[Int], points: int, *, bucket_ns: int | None = None
) -> Int:
    """Find the rows of the first and last point, and of the maximum of each curve by bucket.

    Args:
        t_ns: times, ascending, at least one.
        curves: values at these times.
        points, bucket_ns: see `downsample_curve`.
    """
    count = max(1, points // _POINTS_PER_BUCKET)
    length = bucket_ns or -(-(int(t_ns[-1]) - int(t_ns[0]) + 1) // count)
    bucket = (t_ns - t_ns[0]) // length
    ends = np.array([0, len(t_ns) - 1], dtype=np.int64)
    maxima = [_find_bucket_maxima(bucket, curve) for curve in curves]
    return np.unique(np.concatenate([ends, *maxima]))


def _find_bucket_maxima(bucket: Int, values: NDArray[Any]) -> Int:
    """Find the index of the first largest value of each bucket; buckets ascend."""
    starts = np.flatnonzero(np.concatenate([[True], np.diff(bucket) > 0]))
    lengths = np.diff(np.append(starts, len(bucket)))
    largest = np.repeat(np.maximum.reduceat(values, starts), lengths)
    hits = np.flatnonzero(values == largest)
    first: Int = hits[np.concatenate([[True], np.diff(bucket[hits]) > 0])]
    return first
