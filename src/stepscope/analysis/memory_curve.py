"""How much memory of each device was in use over time.

    allocated(t)   what the recorder says was in use after the latest event at or before t
                   without such totals: the sum of the signed sizes since the recording began, so
                   a change and no level (`absolute` is false)
    at the start   allocated after the first event - the size of that event
    peak           the largest allocated; the first time it was reached

The curve is a step function: a value holds until the next point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns
from stepscope.analysis.grouping import group_rows
from stepscope.intervals import Int

CURVE_COLUMNS = (
    *("t_ns", "device_type", "device", "size_bytes"),
    *("allocated_bytes", "reserved_bytes"),
)
"""What `memory_devices` needs of the table `memory_events`."""
_POINTS_PER_BUCKET = 3


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DeviceMemory:
    """The memory events of one device in the order of time."""

    device_type: int
    """0 the host, 1 CUDA, otherwise the framework's number."""
    device: int
    rows: Int
    """Rows of the table, in the order of time; all arrays below follow it."""
    t_ns: Int
    size_bytes: Int
    allocated_bytes: Int
    """In use after each event, or the change since the start."""
    reserved_bytes: Int | None
    absolute: bool
    """Whether `allocated_bytes` is a level, not a change."""

    @property
    def name(self) -> str:
        """`CPU`, `GPU 0` or, for other kinds of device, the framework's numbers."""
        if self.device_type == 0:
            return "CPU"
        if self.device_type == 1:
            return f"GPU {self.device}"
        return f"device type {self.device_type} number {self.device}"

    @property
    def peak(self) -> int:
        """Place of the event that reached the peak."""
        return int(self.allocated_bytes.argmax())

    @property
    def start_bytes(self) -> int:
        """In use before the first event."""
        return int(self.allocated_bytes[0] - self.size_bytes[0])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Curve:
    """Points of a step function."""

    t_ns: Int
    allocated_bytes: Int
    reserved_bytes: Int | None


def memory_devices(events: Columns) -> list[DeviceMemory]:
    """Memory events by device, the host last.

    Args:
        events: `CURVE_COLUMNS` of the table; rows of one thread are in order.
    """
    if not len(events["t_ns"]):
        return []
    order = np.argsort(events["t_ns"], kind="stable")
    devices = group_rows(events["device_type"], events["device"])
    by_time = devices.group[order]
    found = [_device(events, order[by_time == each]) for each in range(len(devices))]
    return sorted(found, key=lambda d: (d.device_type == 0, d.device_type, d.device))


def _device(events: Columns, rows: Int) -> DeviceMemory:
    allocated, reserved = events["allocated_bytes"][rows], events["reserved_bytes"][rows]
    absolute = bool((allocated >= 0).all())
    size = events["size_bytes"][rows]
    host = int(events["device_type"][rows[0]]) == 0
    return DeviceMemory(
        device_type=int(events["device_type"][rows[0]]),
        device=int(events["device"][rows[0]]),
        rows=rows,
        t_ns=events["t_ns"][rows],
        size_bytes=size,
        allocated_bytes=allocated if absolute else np.cumsum(size),
        reserved_bytes=None if host or not (reserved >= 0).all() else reserved,
        absolute=absolute,
    )


def down_sample(device: DeviceMemory, points: int, *, bucket_ns: int | None = None) -> Curve:
    """At most about so many points, every peak and valley of a bucket among them.

    Time is cut into buckets of equal length; of each one the lowest and highest allocated and
    the highest reserved are kept, and the first and last event of all.

    Args:
        device: its events.
        points: how many a curve may have; one with fewer is left as it is.
        bucket_ns: length of the buckets instead of what `points` asks for.
    """
    t, allocated, reserved = device.t_ns, device.allocated_bytes, device.reserved_bytes
    if bucket_ns or len(t) > points:
        count = max(1, points // _POINTS_PER_BUCKET)
        length = bucket_ns or -(-(int(t[-1]) - int(t[0]) + 1) // count)
        bucket = (t - t[0]) // length
        curves = [-allocated, allocated, *([reserved] if reserved is not None else [])]
        ends = np.array([0, len(t) - 1], dtype=np.int64)
        chosen = np.unique(np.concatenate([ends, *(_extremes(bucket, each) for each in curves)]))
        t, allocated = t[chosen], allocated[chosen]
        reserved = reserved[chosen] if reserved is not None else None
    return Curve(t_ns=t, allocated_bytes=allocated, reserved_bytes=reserved)


def _extremes(bucket: Int, values: NDArray[Any]) -> Int:
    """Place of the first largest value of each bucket; buckets ascend."""
    starts = np.flatnonzero(np.concatenate([[True], np.diff(bucket) > 0]))
    lengths = np.diff(np.append(starts, len(bucket)))
    largest = np.repeat(np.maximum.reduceat(values, starts), lengths)
    hits = np.flatnonzero(values == largest)
    first: Int = hits[np.concatenate([[True], np.diff(bucket[hits]) > 0])]
    return first
