"""Device work of a trace, the runtime calls that launched it, and activity by kind.

Activity by kind: kernels, memory operations, and synchronization calls of the host. Durations are
summed without removing overlap: simultaneous work on several streams counts several times, which is
what a share of activity means. `gpu_time` has times without overlap.

    bandwidth of a copy kind = bytes / durations, both summed over the copies whose size is known
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import fields, replace
from numpy.typing import NDArray

from stepscope import schema
from stepscope.analysis.arrays.columns import Columns, Strings
from stepscope.analysis.arrays.histograms import Buckets
from stepscope.analysis.kernel_classes import is_communication, match_rows
from stepscope.intervals import Int, Intervals

KERNEL, MEMCPY, MEMSET = range(3)
"""Kinds of device work: kernels, copies, sets."""
KERNEL_COLUMNS = ("track", "device", "name", "start_ns", "duration_ns", "launch", "carry_over")
COPY_COLUMNS = ("track", "device", "kind", "start_ns", "duration_ns", "launch", "carry_over")
"""Columns of `kernels` and `copies` that `combine_device_work` reads."""


class DeviceWork(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels, copies and sets; arrays have one entry per piece of work, kernels first."""

    track: Int
    """Number of the stream."""
    device: Int
    start: Int
    end: Int
    kind: NDArray[np.int8]
    """`KERNEL`, `MEMCPY` or `MEMSET`."""
    communication: NDArray[np.bool_]
    """True for kernels of collectives."""
    carry_over: NDArray[np.bool_]
    """True for work launched before the window."""
    launch: Int
    """Id of the runtime call that launched the work, -1 if unknown."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def intervals(self) -> Intervals:
        """Start and end of the work."""
        return Intervals(self.start, self.end)

    @property
    def compute(self) -> NDArray[np.bool_]:
        """Mask of the kernels that do not communicate."""
        mask: NDArray[np.bool_] = (self.kind == KERNEL) & ~self.communication
        return mask

    @property
    def kernel_devices(self) -> list[int]:
        """Devices that ran kernels, ascending; -1 for that of all kernels if none states it."""
        devices: list[int] = np.unique(self.device[self.kind == KERNEL]).tolist()
        return [device for device in devices if device >= 0] or devices

    @property
    def extent(self) -> tuple[int, int] | None:
        """First start and last end; None without work."""
        return (int(self.start.min()), int(self.end.max())) if len(self) else None

    def take(self, rows: NDArray[np.bool_] | Int) -> DeviceWork:
        """Select work by a mask or an index array."""
        return DeviceWork(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def clip(self, within: tuple[int, int]) -> DeviceWork:
        """Select the work that overlaps a range of time, clipped to the range."""
        start, end = within
        work = self.take((self.start < end) & ((self.end > start) | (self.start >= start)))
        return replace(work, start=np.maximum(work.start, start), end=np.minimum(work.end, end))


def combine_device_work(
    kernels: Columns, copies: Columns, is_collective: Callable[[str], bool] = is_communication
) -> DeviceWork:
    """Combine the tables of kernels and of copies.

    Args:
        kernels: `KERNEL_COLUMNS` of the table `kernels`.
        copies: `COPY_COLUMNS` of the table `copies`.
        is_collective: true for the name of a kernel of a collective.
    """
    sets = match_rows(copies["kind"], lambda kind: kind == "memset")
    count = len(kernels["start_ns"])

    def concatenate(name: str) -> Int:
        return np.concatenate([kernels[name], copies[name]]).astype(np.int64, copy=False)

    start = concatenate("start_ns")
    kind = np.zeros(len(start), dtype=np.int8)
    kind[count:] = np.where(sets, MEMSET, MEMCPY)
    communication = np.zeros(len(start), dtype=np.bool_)
    communication[:count] = match_rows(kernels["name"], is_collective)
    return DeviceWork(
        track=concatenate("track"),
        device=concatenate("device"),
        start=start,
        end=start + concatenate("duration_ns"),
        kind=kind,
        communication=communication,
        carry_over=concatenate("carry_over") == 1,
        launch=concatenate("launch"),
    )


class RuntimeCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Times of runtime calls, ordered by id."""

    id: Int
    row: Int
    """Row of each call in the columns it was read from."""
    start: Int
    end: Int

    @classmethod
    def from_columns(cls, runtime_calls: Columns) -> RuntimeCalls:
        """Read the columns `id`, `start_ns` and `duration_ns`."""
        order = np.argsort(runtime_calls["id"], kind="stable")
        start = runtime_calls["start_ns"][order]
        return cls(
            id=runtime_calls["id"][order],
            row=order,
            start=start,
            end=start + runtime_calls["duration_ns"][order],
        )

    def find_rows(self, ids: Int) -> Int:
        """Find the indices of the calls with these ids, -1 for an unknown id."""
        if not len(self.id):
            return np.full(len(ids), -1, dtype=np.int64)
        index = np.minimum(np.searchsorted(self.id, ids), len(self.id) - 1)
        return np.where(self.id[index] == ids, index, -1)


ACTIVITY_COPY_COLUMNS = ("device", "kind", "name", "duration_ns", "bytes")
"""Columns of `copies` that are read here."""
ACTIVITIES = ("compute", "communication", "memcpy", "memset", "synchronization")
_SYNCHRONIZATION = re.compile("|".join(schema.WAIT_CALLS), re.IGNORECASE)
_PLACE = r"(host|device|peer|array|memory|shared|[hdpams])"
_ROUTE = re.compile(
    rf"{_PLACE}[\s_]*to[\s_]*{_PLACE}"
    r"|(?-i:([HDPAMS])2([HDPAMS])(?![0-9a-z]))|(?<![a-z])([hdpams])2([hdpams])(?![0-9a-z])",
    re.IGNORECASE,
)
"""As in `HtoD`, `CopyHostToDevice`, `MEMORY_COPY_HOST_TO_DEVICE` and, of Intel's profiler, `M2D`
(https://github.com/intel/pti-gpu/blob/master/sdk/src/view_handler.cc: M is memory that the driver
did not allocate, S is shared)."""
_MEMORIES = re.compile(r"\((.+?)\s*->\s*(.+?)\)(?!\))")
_MEMORY_SYNONYMS = {"memory(unknown)": "pageable", "memory": "pageable"}
_PLACE_OF_MEMORY = {
    **dict.fromkeys(("host", "pageable", "pinned", "system"), "H"),
    "device": "D", "array": "A", "peer": "P", "shared": "S", "managed": "S", "unified": "S",
}  # fmt: skip


class ActivityKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of activity."""

    kind: str
    """compute, communication, memcpy, memset: work on devices; synchronization: runtime calls
    in which the host waits for a device."""
    count: int
    total_ns: int
    """Sum of the durations: simultaneous work on several streams counts several times."""
    share_ratio: float | None
    """Share of the durations of all kinds."""
    mean_ns: float | None


class CopyKind(msgspec.Struct, frozen=True, kw_only=True):
    """Copies between the same two kinds of memory, or sets."""

    direction: str
    """HtoD, DtoH, DtoD, PtoP, HtoH, memset; the profiler's name if it contains none of these."""
    source: Annotated[str | None, schema.field_label("from")]
    """Kind of memory: pageable, pinned, device."""
    target: Annotated[str | None, schema.field_label("to")]
    count: int
    total_ns: int
    moved_bytes: Annotated[int | None, schema.field_label("moved")]
    """Null where the profiler recorded no sizes."""
    achieved_bytes_per_s: Annotated[float | None, schema.field_label("bandwidth")]
    """Sum of the bytes divided by the sum of the durations."""


def summarize_activities(
    kernels: Columns,
    copies: Columns,
    runtime_calls: Columns,
    is_collective: Callable[[str], bool] = is_communication,
) -> list[ActivityKind]:
    """Sum up each kind of activity, in the order of `ACTIVITIES`.

    Args:
        kernels, copies, runtime_calls: columns `name` and `duration_ns`; of copies `kind` too.
        is_collective: true for the name of a kernel of a collective.
    """
    collective = match_rows(kernels["name"], is_collective)
    sets = match_rows(copies["kind"], lambda kind: kind == "memset")
    waits = match_rows(runtime_calls["name"], is_synchronization)
    durations = {
        "compute": kernels["duration_ns"][~collective],
        "communication": kernels["duration_ns"][collective],
        "memcpy": copies["duration_ns"][~sets],
        "memset": copies["duration_ns"][sets],
        "synchronization": runtime_calls["duration_ns"][waits],
    }
    sums = {kind: int(durations[kind].sum()) for kind in ACTIVITIES}
    all_ns = sum(sums.values())
    return [
        ActivityKind(
            kind=kind,
            count=len(durations[kind]),
            total_ns=total_ns,
            share_ratio=total_ns / all_ns if all_ns else 0.0,
            mean_ns=total_ns / len(durations[kind]) if len(durations[kind]) else None,
        )
        for kind, total_ns in sums.items()
    ]


def is_synchronization(name: str) -> bool:
    """Return True if a runtime call makes the host wait for a device.

    >>> is_synchronization("cudaStreamSynchronize"), is_synchronization("cudaMemcpyAsync")
    (True, False)
    """
    return _SYNCHRONIZATION.search(name) is not None


def summarize_copies(copies: Columns) -> list[CopyKind]:
    """Sum up copies and sets by direction and memory kinds, by descending total time."""
    names: Strings = copies["name"]
    name_routes = [parse_copy_route(name or "") for name in names.values]
    routes = sorted(set(name_routes), key=str)
    route_codes = {route: code for code, route in enumerate(routes)}
    group = np.array([route_codes[route] for route in name_routes], dtype=np.int64)[names.codes]
    count = len(routes)
    duration, size_bytes = copies["duration_ns"], copies["bytes"]
    has_size = size_bytes >= 0

    def sum_by_route(values: Int, rows: Int) -> Int:
        sums = np.zeros(count, dtype=np.int64)
        np.add.at(sums, group[rows], values[rows])
        return sums

    all_rows, sized_rows = np.arange(len(group)), np.flatnonzero(has_size)
    total_ns = sum_by_route(duration, all_rows)
    sized_ns = sum_by_route(duration, sized_rows)
    total_bytes = sum_by_route(size_bytes, sized_rows)
    copy_counts = np.bincount(group, minlength=count)
    sized_counts = np.bincount(group[has_size], minlength=count)
    kinds = [
        CopyKind(
            direction=direction,
            source=source,
            target=target,
            count=int(copy_counts[i]),
            total_ns=int(total_ns[i]),
            moved_bytes=int(total_bytes[i]) if sized_counts[i] else None,
            achieved_bytes_per_s=float(total_bytes[i] / sized_ns[i] * 1e9) if sized_ns[i] else None,
        )
        for i, (direction, source, target) in enumerate(routes)
    ]
    return sorted((kind for kind in kinds if kind.count), key=lambda kind: -kind.total_ns)


class CopyBandwidth(msgspec.Struct, frozen=True, kw_only=True):
    """Bandwidth of copies of one direction over time."""

    direction: str
    curve_bytes_per_s: Annotated[
        list[float], schema.field_label("bandwidth over time", unit="bytes_per_s", display="curve")
    ]
    """Mean over each bucket, idle time included."""


def measure_copy_bandwidth(copies: Columns, buckets: Buckets) -> list[CopyBandwidth]:
    """Measure the bandwidth of copies in each bucket, by direction; each copy moves its bytes
    evenly over its duration.

    Args:
        copies: columns `name`, `start_ns`, `duration_ns` and `bytes`; copies of unknown size do
            not count.
        buckets: buckets of the curves.
    """
    names: Strings = copies["name"]
    directions = [parse_copy_direction(name or "") for name in names.values]
    sized = (copies["bytes"] > 0) & (copies["duration_ns"] > 0)
    curves = []
    for direction in sorted(set(directions)):
        codes = [code for code, way in enumerate(directions) if way == direction]
        rows = np.isin(names.codes, codes) & sized
        if rows.any():
            start, duration = copies["start_ns"][rows], copies["duration_ns"][rows]
            moved = _integrate_rates(start, duration, copies["bytes"][rows], buckets.edges)
            width_s = np.diff(buckets.edges) / 1e9
            curve = (np.diff(moved) / width_s).tolist()
            curves.append(CopyBandwidth(direction=direction, curve_bytes_per_s=curve))
    return curves


def _integrate_rates(
    start: Int, duration: Int, moved_bytes: Int, times: Int
) -> NDArray[np.float64]:
    """Compute the bytes that were moved until each time."""
    origin = int(min(start.min(), times.min()))
    rate = moved_bytes / duration
    change = np.concatenate([rate, -rate])
    when = np.concatenate([start, start + duration]) - origin
    order = np.argsort(when, kind="stable")
    when, rates = when[order], np.cumsum(change[order])
    moved = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(when))])
    integral: NDArray[np.float64] = np.interp(times - origin, when, moved)
    return integral


class CopyRoute(NamedTuple):
    """Direction of a copy, and the memories at its ends, as far as its name tells them."""

    direction: str
    """Such as HtoD, whatever the spelling; memset; the name where it tells no direction."""
    source: str | None
    """Such as device, host, pinned or pageable."""
    target: str | None

    @property
    def reads_host(self) -> bool:
        """True for copies from the host to a device."""
        return self.direction[:3] == "Hto" and self.direction != "HtoH"

    @property
    def writes_host(self) -> bool:
        """True for copies from a device to the host."""
        return self.direction[-3:] == "toH" and self.direction != "HtoH"

    @property
    def host_memory(self) -> str | None:
        """Memory of the host; None if the name does not tell it."""
        return self.source if self.reads_host else self.target if self.writes_host else None


def parse_copy_direction(name: str) -> str:
    """Parse the direction of a copy from its name, in the spelling of any maker.

    >>> parse_copy_direction("Memcpy HtoD (Pageable -> Device)")
    'HtoD'
    >>> parse_copy_direction("CopyDeviceToHost"), parse_copy_direction("Memcpy M2D")
    ('DtoH', 'HtoD')
    >>> parse_copy_direction("Memset (Device)")
    'memset'
    """
    return parse_copy_route(name).direction


def parse_copy_route(name: str) -> CopyRoute:
    """Parse direction, source and target from a name like Memcpy HtoD (Pageable -> Device)."""
    memories = _MEMORIES.search(name)
    source, target = (
        (_MEMORY_SYNONYMS.get(part.lower(), part.lower()) for part in memories.groups())
        if memories
        else (None, None)
    )
    if name.lower().startswith(("memset", "fill")):
        return CopyRoute("memset", source, target)
    letters = _ROUTE.search(name)
    if letters is not None:
        ends = [part[0].upper() for part in letters.groups() if part]
    else:
        ends = [_PLACE_OF_MEMORY.get(memory or "", "") for memory in (source, target)]
    if not all(ends):
        return CopyRoute(name or "unnamed", source, target)
    if "M" in ends and memories is None:
        source, target = ("pageable" if end == "M" else None for end in ends)
    return CopyRoute("to".join(_resolve_shared(*ends)), source, target)


def _resolve_shared(source: str, target: str) -> tuple[str, str]:
    """Return the ends of a copy as host or device; shared memory is the one that the other is
    not, as a copy between both moves data."""
    ends = ["H" if end == "M" else end for end in (source, target)]
    for index, opposite in ((0, 1), (1, 0)):
        if ends[index] == "S":
            ends[index] = {"H": "D", "S": "S"}.get(ends[opposite], "H")
    return ends[0], ends[1]
