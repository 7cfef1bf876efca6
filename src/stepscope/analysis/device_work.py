"""What the devices of one recording did, and which runtime call launched it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns
from stepscope.analysis.kernel_classes import is_communication, rows_where
from stepscope.intervals import Int, Intervals

KERNEL, MEMCPY, MEMSET = range(3)
"""Kinds of device work."""
KERNEL_COLUMNS = ("track", "device", "name", "start_ns", "duration_ns", "launch", "carry_over")
COPY_COLUMNS = ("track", "device", "kind", "start_ns", "duration_ns", "launch", "carry_over")
"""Columns of `kernels` and `copies` that `device_work` reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWork:
    """Kernels, copies and sets; arrays have one entry each, kernels first."""

    track: Int
    """Stream."""
    device: Int
    start: Int
    end: Int
    kind: NDArray[np.int8]
    communication: NDArray[np.bool_]
    """Kernels of collectives."""
    carry_over: NDArray[np.bool_]
    """Launched before the window."""
    launch: Int
    """Id of the runtime call that launched it, -1 when unknown."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def intervals(self) -> Intervals:
        """When it ran."""
        return Intervals(self.start, self.end)

    @property
    def compute(self) -> NDArray[np.bool_]:
        """Kernels that do not communicate."""
        chosen: NDArray[np.bool_] = (self.kind == KERNEL) & ~self.communication
        return chosen

    def take(self, rows: NDArray[np.bool_] | Int) -> DeviceWork:
        """A part of it."""
        return DeviceWork(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})

    def begun(self, within: tuple[int, int]) -> DeviceWork:
        """What begins between two times, the second exclusive."""
        return self.take((self.start >= within[0]) & (self.start < within[1]))

    def cut(self, within: tuple[int, int]) -> DeviceWork:
        """What reaches between two times, cut there."""
        begin, end = within
        found = self.take((self.start < end) & ((self.end > begin) | (self.start >= begin)))
        return replace(found, start=np.maximum(found.start, begin), end=np.minimum(found.end, end))


def device_work(kernels: Columns, copies: Columns) -> DeviceWork:
    """Both tables as one.

    Args:
        kernels: `KERNEL_COLUMNS` of the table `kernels`.
        copies: `COPY_COLUMNS` of the table `copies`.
    """
    sets = rows_where(copies["kind"], lambda kind: kind == "memset")
    count = len(kernels["start_ns"])

    def joined(name: str) -> Int:
        return np.concatenate([kernels[name], copies[name]]).astype(np.int64, copy=False)

    start = joined("start_ns")
    kind = np.zeros(len(start), dtype=np.int8)
    kind[count:] = np.where(sets, MEMSET, MEMCPY)
    communication = np.zeros(len(start), dtype=np.bool_)
    communication[:count] = rows_where(kernels["name"], is_communication)
    return DeviceWork(
        track=joined("track"),
        device=joined("device"),
        start=start,
        end=start + joined("duration_ns"),
        kind=kind,
        communication=communication,
        carry_over=joined("carry_over") == 1,
        launch=joined("launch"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeCalls:
    """When runtime calls ran, in the order of their ids."""

    id: Int
    row: Int
    """Row of the columns that each came from."""
    start: Int
    end: Int

    @classmethod
    def of(cls, runtime_calls: Columns) -> RuntimeCalls:
        """From the columns `id`, `start_ns` and `duration_ns`."""
        order = np.argsort(runtime_calls["id"], kind="stable")
        start = runtime_calls["start_ns"][order]
        return cls(
            id=runtime_calls["id"][order],
            row=order,
            start=start,
            end=start + runtime_calls["duration_ns"][order],
        )

    def places(self, ids: Int) -> Int:
        """Where calls with these ids are, -1 for those that are not here."""
        if not len(self.id):
            return np.full(len(ids), -1, dtype=np.int64)
        place = np.minimum(np.searchsorted(self.id, ids), len(self.id) - 1)
        return np.where(self.id[place] == ids, place, -1)
