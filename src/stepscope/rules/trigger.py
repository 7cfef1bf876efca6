"""Scans in which a rule's condition held."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stepscope.intervals import Int
from stepscope.rules.inputs import RuleInputs, scan_ends, scan_indices


@dataclass(slots=True)
class Trigger:
    """Ends of the scans in which a rule's condition held, each once for any number of devices."""

    ends_ns: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.ends_ns)

    def add_scans(self, inputs: RuleInputs, scans: Int) -> None:
        """Add scans by index."""
        self.ends_ns.update(scan_ends(inputs, scans))

    def add_times(self, inputs: RuleInputs, t_ns: Int | list[int]) -> None:
        """Add the scans that contain some times."""
        self.add_scans(inputs, scan_indices(inputs, np.asarray(t_ns, dtype=np.int64)))

    @property
    def first_ns(self) -> int | None:
        """End of the first scan."""
        return min(self.ends_ns, default=None)

    @property
    def last_ns(self) -> int | None:
        """End of the last scan."""
        return max(self.ends_ns, default=None)


def last_indices(numbers: Int) -> Int:
    """Return the index of the last element of each run of equal numbers.

    >>> last_indices(np.array([4, 4, 5, 7, 7])).tolist()
    [1, 2, 4]
    """
    if not len(numbers):
        return np.empty(0, dtype=np.int64)
    return np.append(np.flatnonzero(np.diff(numbers)), len(numbers) - 1)
