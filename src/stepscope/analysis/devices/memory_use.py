"""Memory of a device over time, by category, and as operators allocate it.

    allocated(t)   bytes in use after the latest event at or before t, as the profiler reports;
                   without such totals: the sum of the signed sizes since the start of the trace,
                   a change instead of a level (`absolute` is false)
    at the start   allocated after the first event - the size of that event
    peak           the maximum of allocated, at the first time it is reached

The curve is a step function: a value holds until the next point.

Memory of one device by category, from a memory timeline of torch's memory profiler:

    level of a category at t   sum of its changes up to t, all changes at t included
    total at t                 sum of the levels of all categories
    peak                       the maximum of the total, at the first time it is reached
    share                      level of a category at the peak / total at the peak

Only memory that the profiler saw counts: memory from before the profile as far as it was used in
it, not what the allocator reserves.

Memory allocated by operators, by name. For the calls of one operator (chains merged, see
`operator_tree`), on one device:

    size increase      sum of signed bytes: the bytes that the calls left allocated
    allocation bytes   sum of the positive ones
    allocation count   number of the positive ones
    self               events inside the call but not inside an operator it calls; figures without
                       `self` include the operators below

An event belongs to the innermost operator of its thread with start <= t < end. Events outside
every operator are in no row; they are counted separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.arrays.columns import Columns, group_rows
from stepscope.analysis.operators.operator_tree import OperatorTree, sum_by_row

CURVE_COLUMNS = (
    *("t_ns", "device_type", "device", "size_bytes"),
    *("allocated_bytes", "reserved_bytes"),
)
"""Columns of `memory_events` that `split_memory_by_device` reads."""
_POINTS_PER_BUCKET = 3


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Memory events of one device, in order of time; arrays have one entry per event."""

    device_type: int
    """0 for the host, 1 for CUDA, otherwise the framework's number."""
    device: int
    rows: intervals.Int
    """Row of each event in the table."""
    t_ns: intervals.Int
    size_bytes: intervals.Int
    allocated_bytes: intervals.Int
    """Bytes in use after each event, or the change since the start."""
    reserved_bytes: intervals.Int | None
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


class MemoryCurve(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Memory over time as points of a step function."""

    t_ns: intervals.Int
    allocated_bytes: intervals.Int
    reserved_bytes: intervals.Int | None


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


def _select_device(events: Columns, rows: intervals.Int) -> DeviceMemory:
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


def measure_step_memory(
    memory: DeviceMemory, extent: intervals.Intervals
) -> tuple[intervals.Int, intervals.Int]:
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
    t_ns: intervals.Int,
    curves: Sequence[intervals.Int],
    points: int,
    *,
    bucket_ns: int | None = None,
) -> intervals.Int:
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


def _find_bucket_maxima(bucket: intervals.Int, values: NDArray[Any]) -> intervals.Int:
    """Find the index of the first largest value of each bucket; buckets ascend."""
    starts = np.flatnonzero(np.concatenate([[True], np.diff(bucket) > 0]))
    lengths = np.diff(np.append(starts, len(bucket)))
    largest = np.repeat(np.maximum.reduceat(values, starts), lengths)
    hits = np.flatnonzero(values == largest)
    first: intervals.Int = hits[np.concatenate([[True], np.diff(bucket[hits]) > 0])]
    return first


CATEGORY_COLUMNS = ("t_ns", "category", "size_bytes")
"""Columns of `memory_categories` that `measure_category_levels` reads."""


class CategoryMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one category."""

    category: str
    at_peak_bytes: Annotated[int, schema.field_label("at the peak")]
    """When all categories together reach their peak."""
    share_ratio: float | None
    largest_bytes: Annotated[int, schema.field_label("own peak")]
    end_bytes: Annotated[int, schema.field_label("at the end")]


class CategoryCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one category over time."""

    category: str
    curve_bytes: Annotated[list[int], schema.field_label("memory over time", display="curve")]


class CategoryLevels(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Memory by category after the changes of each time."""

    t_ns: intervals.Int
    """Distinct times, ascending."""
    categories: tuple[str, ...]
    """Categories with a change."""
    level_bytes: NDArray[np.int64]
    """Shape (times, categories)."""

    @property
    def total_bytes(self) -> intervals.Int:
        """Memory of all categories at each time."""
        total: intervals.Int = self.level_bytes.sum(axis=1)
        return total

    def take(self, rows: intervals.Int | NDArray[np.bool_]) -> CategoryLevels:
        """Select times by a mask or an index array."""
        return CategoryLevels(
            t_ns=self.t_ns[rows], categories=self.categories, level_bytes=self.level_bytes[rows]
        )


def measure_category_levels(changes: Columns) -> CategoryLevels:
    """Sum the changes of one timeline.

    Args:
        changes: `CATEGORY_COLUMNS`, at least one row.
    """
    order = np.argsort(changes["t_ns"], kind="stable")
    t_ns, sizes = changes["t_ns"][order], changes["size_bytes"][order]
    names, codes = changes["category"].values, changes["category"].codes[order]
    present = {names[code]: code for code in np.unique(codes).tolist()}
    categories = tuple(name for name in schema.MEMORY_CATEGORY_NAMES if name in present)
    last = np.append(np.flatnonzero(np.diff(t_ns)), len(t_ns) - 1)
    level = np.empty((len(last), len(categories)), dtype=np.int64)
    for index, category in enumerate(categories):
        level[:, index] = np.cumsum(np.where(codes == present[category], sizes, 0))[last]
    return CategoryLevels(t_ns=t_ns[last], categories=categories, level_bytes=level)


def summarize_categories(levels: CategoryLevels) -> list[CategoryMemory]:
    """Summarize the memory of each category, most at the peak first."""
    total = levels.total_bytes
    peak = int(total.argmax())
    rows = [
        CategoryMemory(
            category=category,
            at_peak_bytes=int(level[peak]),
            share_ratio=int(level[peak]) / int(total[peak]) if total[peak] > 0 else None,
            largest_bytes=int(level.max()),
            end_bytes=int(level[-1]),
        )
        for category, level in zip(levels.categories, levels.level_bytes.T, strict=True)
    ]
    return sorted(rows, key=lambda row: -row.at_peak_bytes)


def downsample_levels(
    levels: CategoryLevels, points: int, *, bucket_ns: int | None = None
) -> CategoryLevels:
    """Downsample levels, keeping the extremes of the total in equal time buckets.

    Args:
        levels: at least one time.
        points, bucket_ns: see `downsample_curve`.
    """
    if not bucket_ns and len(levels.t_ns) <= points:
        return levels
    total = levels.total_bytes
    return levels.take(find_extremes(levels.t_ns, [-total, total], points, bucket_ns=bucket_ns))


class OperatorMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory allocated by the calls of one operator on one device, including operators below them
    unless `self`."""

    name: Annotated[str, schema.field_label("operator")]
    calls: int
    """Number of all calls, including those that allocated nothing."""
    self_size_increase_bytes: Annotated[int, schema.field_label("self increase")]
    size_increase_bytes: Annotated[int, schema.field_label("increase")]
    self_allocation_count: int
    allocation_count: int
    self_allocation_bytes: Annotated[int, schema.field_label("self allocated")]
    allocation_bytes: Annotated[int, schema.field_label("allocated")]


class MemoryOperators(msgspec.Struct, frozen=True, kw_only=True):
    """Operators by descending self size increase."""

    rows: list[OperatorMemory]
    """Operators with an event whose name matches the filter."""
    operator_count: int
    """Number of operators with an event."""
    outside_count: int
    """Number of events outside every operator."""
    outside_size_increase_bytes: int


def summarize_memory_operators(
    device: DeviceMemory, events: Columns, tree: OperatorTree, *, containing: str = ""
) -> MemoryOperators:
    """Summarize the allocations of operators on one device.

    Args:
        device: events of the device.
        events: column `operator` of the table `memory_events`.
        tree: operators of the trace.
        containing: text that the operator's name must contain.
    """
    operator_row = tree.find_rows(events["operator"][device.rows])
    size = device.size_bytes
    is_allocation = (size > 0).astype(np.int64)
    event_values = (size, is_allocation, np.maximum(size, 0))
    row_sums = [sum_by_row(operator_row, values, len(tree)) for values in event_values]
    row_totals = [tree.totals(sums) for sums in row_sums]
    # A call with neither a size change nor an allocation below it has no events at all.
    calls = np.flatnonzero(tree.counted & ((row_totals[0] != 0) | (row_totals[1] != 0)))
    groups = group_rows(tree.name[calls])
    totals = [groups.sums(values[calls]) for values in row_totals]
    selves = [groups.sums(tree.sum_merged(values)[calls]) for values in row_sums]
    name = tree.name[calls[groups.first]]
    order = np.lexsort((-totals[2], -selves[0]))
    # Row -1 is the appended one.
    outside = ~np.append(tree.counted[tree.merged], False)[operator_row]
    return MemoryOperators(
        rows=[
            OperatorMemory(
                name=tree.names[name[g]],
                calls=int(tree.calls_by_name[name[g]]),
                size_increase_bytes=int(totals[0][g]),
                self_size_increase_bytes=int(selves[0][g]),
                allocation_count=int(totals[1][g]),
                self_allocation_count=int(selves[1][g]),
                allocation_bytes=int(totals[2][g]),
                self_allocation_bytes=int(selves[2][g]),
            )
            for g in order.tolist()
            if containing in tree.names[name[g]]
        ],
        operator_count=len(groups),
        outside_count=int(outside.sum()),
        outside_size_increase_bytes=int(size[outside].sum()),
    )
