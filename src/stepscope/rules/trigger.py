"""Scans in which a rule's condition held, and the time of the data that violated it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stepscope.intervals import Int
from stepscope.rules.inputs import RuleInputs, scan_ends, scan_indices


@dataclass(slots=True)
class Trigger:
    """Scans in which a rule's condition held, and the extent of the data that violated it."""

    ends_ns: set[int] = field(default_factory=set)
    """Ends of the scans, each once for any number of devices."""
    first_ns: int | None = None
    """Start of the first data that violated the condition; None before any."""
    last_ns: int | None = None
    """End of the last data that violated it."""

    def __len__(self) -> int:
        return len(self.ends_ns)

    def add_scans(self, inputs: RuleInputs, scans: Int) -> None:
        """Add scans by index."""
        self.ends_ns.update(scan_ends(inputs, scans))

    def add_times(self, inputs: RuleInputs, t_ns: Int | list[int]) -> None:
        """Add the scans that contain some times."""
        self.add_scans(inputs, scan_indices(inputs, np.asarray(t_ns, dtype=np.int64)))

    def cover(self, start_ns: Int | int, end_ns: Int | int) -> None:
        """Extend the extent by data that violated the condition, with their starts and ends."""
        starts, ends = np.atleast_1d(start_ns), np.atleast_1d(end_ns)
        if not len(starts):
            return
        first, last = int(starts.min()), int(ends.max())
        self.first_ns = first if self.first_ns is None else min(self.first_ns, first)
        self.last_ns = last if self.last_ns is None else max(self.last_ns, last)

    def include(self, trigger: Trigger) -> None:
        """Extend the extent by that of another trigger."""
        if trigger.first_ns is not None and trigger.last_ns is not None:
            self.cover(trigger.first_ns, trigger.last_ns)


def last_indices(numbers: Int) -> Int:
    """Return the index of the last element of each run of equal numbers.

    >>> last_indices(np.array([4, 4, 5, 7, 7])).tolist()
    [1, 2, 4]
    """
    if not len(numbers):
        return np.empty(0, dtype=np.int64)
    return np.append(np.flatnonzero(np.diff(numbers)), len(numbers) - 1)
