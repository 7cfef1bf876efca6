"""Device work of one trace (kernels, copies, sets) and the runtime calls that launched it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns
from stepscope.analysis.kernel_classes import is_communication, match_rows
from stepscope.intervals import Int, Intervals

KERNEL, MEMCPY, MEMSET = range(3)
"""Kinds of device work: kernels, copies, sets."""
KERNEL_COLUMNS = ("track", "device", "name", "start_ns", "duration_ns", "launch", "carry_over")
COPY_COLUMNS = ("track", "device", "kind", "start_ns", "duration_ns", "launch", "carry_over")
"""Columns of `kernels` and `copies` that `combine_device_work` reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWork:
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
        """Devices that ran kernels, ascending."""
        devices: list[int] = np.unique(self.device[self.kind == KERNEL]).tolist()
        return devices

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeCalls:
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
