"""What devices did and what the host waited for: kernels, memory operations, synchronisation.

The durations of a kind are summed as they are: work on several streams at once counts several
times, which is what a share of activity means. `gpu_time` has the time without overlaps.

    bandwidth of a copy kind = bytes / durations, both summed over the copies whose size is known
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.columns import Columns, Strings
from stepscope.analysis.kernel_classes import is_communication, rows_where
from stepscope.intervals import Int

ACTIVITY_COPY_COLUMNS = ("device", "kind", "name", "duration_ns", "bytes")
"""Columns of `copies` that are read here."""
ACTIVITIES = ("compute", "communication", "memcpy", "memset", "synchronization")
_SYNCHRONIZATION = re.compile("synchronize", re.IGNORECASE)
_ROUTE = re.compile(r"([HDPA])(?:ost|evice|eer|rray)?to([HDPA])", re.IGNORECASE)
_MEMORIES = re.compile(r"\((.+?)\s*->\s*(.+?)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One kind of activity: a device's, or the host's synchronisation."""

    kind: str
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyKind:
    """Copies between the same two sorts of memory, or sets."""

    direction: str
    """HtoD, DtoH, DtoD, PtoP, HtoH, memset; the recorder's name where it says nothing else."""
    source: str | None
    """Memory copied from: pageable, pinned, device."""
    target: str | None
    count: int
    total_ns: int
    bytes: int | None
    """Of the copies whose size the recorder gave; None when it gave none."""
    bytes_per_s: float | None


def activities(kernels: Columns, copies: Columns, runtime_calls: Columns) -> list[Activity]:
    """The kinds of activity, in the order of `ACTIVITIES`.

    Args:
        kernels, copies, runtime_calls: their names and durations; `kind` of copies too.
    """
    collective = rows_where(kernels["name"], is_communication)
    sets = rows_where(copies["kind"], lambda kind: kind == "memset")
    waits = rows_where(runtime_calls["name"], is_synchronization)
    durations = {
        "compute": kernels["duration_ns"][~collective],
        "communication": kernels["duration_ns"][collective],
        "memcpy": copies["duration_ns"][~sets],
        "memset": copies["duration_ns"][sets],
        "synchronization": runtime_calls["duration_ns"][waits],
    }
    return [
        Activity(kind=kind, count=len(durations[kind]), total_ns=int(durations[kind].sum()))
        for kind in ACTIVITIES
    ]


def is_synchronization(name: str) -> bool:
    """A runtime call in which the host waits for a device.

    >>> is_synchronization("cudaStreamSynchronize"), is_synchronization("cudaMemcpyAsync")
    (True, False)
    """
    return _SYNCHRONIZATION.search(name) is not None


def copy_kinds(copies: Columns) -> list[CopyKind]:
    """Copies and sets by direction and memories, the longest in total first."""
    names: Strings = copies["name"]
    routes = [_route(name or "") for name in names.values]
    kinds = sorted(set(routes), key=str)
    number = {route: place for place, route in enumerate(kinds)}
    group = np.array([number[route] for route in routes], dtype=np.int64)[names.codes]
    count = len(kinds)
    duration, moved = copies["duration_ns"], copies["bytes"]
    known = moved >= 0

    def summed(values: Int, rows: Int) -> Int:
        found = np.zeros(count, dtype=np.int64)
        np.add.at(found, group[rows], values[rows])
        return found

    everything, sized = np.arange(len(group)), np.flatnonzero(known)
    total, sized_ns, sizes = (
        summed(duration, everything),
        summed(duration, sized),
        summed(moved, sized),
    )
    each, with_size = (
        np.bincount(group, minlength=count),
        np.bincount(group[known], minlength=count),
    )
    found = [
        CopyKind(
            direction=route[0],
            source=route[1],
            target=route[2],
            count=int(each[i]),
            total_ns=int(total[i]),
            bytes=int(sizes[i]) if with_size[i] else None,
            bytes_per_s=float(sizes[i] / sized_ns[i] * 1e9) if sized_ns[i] else None,
        )
        for i, route in enumerate(kinds)
    ]
    return sorted((kind for kind in found if kind.count), key=lambda kind: -kind.total_ns)


def route_name(name: str) -> str:
    """Between which sorts of memory a copy is, by its name.

    >>> route_name("Memcpy HtoD (Pageable -> Device)"), route_name("Memset (Device)")
    ('HtoD', 'memset')
    """
    return _route(name)[0]


def _route(name: str) -> tuple[str, str | None, str | None]:
    """Direction and memories of a copy by its name, such as Memcpy HtoD (Pageable -> Device)."""
    memories = _MEMORIES.search(name)
    source, target = (part.lower() for part in memories.groups()) if memories else (None, None)
    if name.lower().startswith(("memset", "fill")):
        return "memset", source, target
    letters = _ROUTE.search(name)
    if letters is None:
        return name or "unnamed", source, target
    return f"{letters.group(1).upper()}to{letters.group(2).upper()}", source, target
