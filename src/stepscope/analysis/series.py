"""Samples of one metric of one device, in order of time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int


class Device(NamedTuple):
    """A device of a node; `number` is empty for the node itself."""

    node: str
    number: str

    def __str__(self) -> str:
        return f"{self.node}/{self.number}"

    @property
    def gpu_label(self) -> str:
        """Label of a GPU in sentences."""
        return f"GPU {self.number} of node {self.node}"


class Series(NamedTuple):
    """Values by time; NaN for a failed reading."""

    t_ns: Int
    value: NDArray[np.float64]

    def sort(self) -> Series:
        """Sort by time; samples of the same time keep their order."""
        if (self.t_ns[:-1] <= self.t_ns[1:]).all():
            return self
        order = np.argsort(self.t_ns, kind="stable")
        return Series(self.t_ns[order], self.value[order])

    def mean_between(self, start_ns: int, end_ns: int) -> float | None:
        """Compute the mean of the values in a range of time, the end exclusive; None without any.

        The series is sorted.
        """
        first, last = np.searchsorted(self.t_ns, [start_ns, end_ns])
        values = self.value[first:last]
        return float(values.mean()) if len(values) else None


NO_SAMPLES = Series(np.empty(0, dtype=np.int64), np.empty(0))


def merge_series(series: Iterable[Series]) -> Series:
    """Merge the samples of several series, sorted by time."""
    parts = [NO_SAMPLES, *series]
    return Series(
        np.concatenate([part.t_ns for part in parts]),
        np.concatenate([part.value for part in parts]),
    ).sort()


def numeric_sort_key(device: str) -> tuple[int, str]:
    """Return a key that sorts devices: names first, then numbers by value."""
    return (int(device), "") if device.isdecimal() else (-1, device)
