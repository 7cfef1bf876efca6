"""Activity by kind: kernels, memory operations, and synchronization calls of the host.

Durations are summed without removing overlap: simultaneous work on several streams counts several
times, which is what a share of activity means. `gpu_time` has times without overlap.

    bandwidth of a copy kind = bytes / durations, both summed over the copies whose size is known
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.buckets import Buckets
from stepscope.analysis.columns import Columns, Strings
from stepscope.analysis.kernel_classes import is_communication, match_rows
from stepscope.intervals import Int
from stepscope.schema import field_label

ACTIVITY_COPY_COLUMNS = ("device", "kind", "name", "duration_ns", "bytes")
"""Columns of `copies` that are read here."""
ACTIVITIES = ("compute", "communication", "memcpy", "memset", "synchronization")
_SYNCHRONIZATION = re.compile("synchronize", re.IGNORECASE)
_ROUTE = re.compile(r"([HDPA])(?:ost|evice|eer|rray)?to([HDPA])", re.IGNORECASE)
_MEMORIES = re.compile(r"\((.+?)\s*->\s*(.+?)\)")


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
    source: Annotated[str | None, field_label("from")]
    """Kind of memory: pageable, pinned, device."""
    target: Annotated[str | None, field_label("to")]
    count: int
    total_ns: int
    moved_bytes: Annotated[int | None, field_label("moved")]
    """Null where the profiler recorded no sizes."""
    achieved_bytes_per_s: Annotated[float | None, field_label("bandwidth")]
    """Sum of the bytes divided by the sum of the durations."""


def summarize_activities(
    kernels: Columns, copies: Columns, runtime_calls: Columns
) -> list[ActivityKind]:
    """Sum up each kind of activity, in the order of `ACTIVITIES`.

    Args:
        kernels, copies, runtime_calls: columns `name` and `duration_ns`; of copies `kind` too.
    """
    collective = match_rows(kernels["name"], is_communication)
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
    name_routes = [_parse_route(name or "") for name in names.values]
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
        list[float], field_label("bandwidth over time", unit="bytes_per_s", display="curve")
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


def parse_copy_direction(name: str) -> str:
    """Parse the direction of a copy from its name.

    >>> parse_copy_direction("Memcpy HtoD (Pageable -> Device)")
    'HtoD'
    >>> parse_copy_direction("Memset (Device)")
    'memset'
    """
    return _parse_route(name)[0]


def _parse_route(name: str) -> tuple[str, str | None, str | None]:
    """Parse direction, source and target from a name like Memcpy HtoD (Pageable -> Device)."""
    memories = _MEMORIES.search(name)
    source, target = (part.lower() for part in memories.groups()) if memories else (None, None)
    if name.lower().startswith(("memset", "fill")):
        return "memset", source, target
    letters = _ROUTE.search(name)
    if letters is None:
        return name or "unnamed", source, target
    return f"{letters.group(1).upper()}to{letters.group(2).upper()}", source, target
