"""When a rule fired: each scan once, however many devices it fired on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from stepscope.intervals import Int


@dataclass(slots=True)
class Firing:
    """Ends of the scans in which a rule's condition held."""

    ends_ns: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.ends_ns)

    def add(self, ends_ns: Iterable[int]) -> None:
        """It fired in these scans, perhaps on yet another device."""
        self.ends_ns.update(ends_ns)

    @property
    def first_ns(self) -> int | None:
        """End of the first of them."""
        return min(self.ends_ns, default=None)

    @property
    def last_ns(self) -> int | None:
        """End of the last of them."""
        return max(self.ends_ns, default=None)


def last_of_each(numbers: Int) -> Int:
    """Places at which runs of equal numbers end.

    >>> last_of_each(np.array([4, 4, 5, 7, 7])).tolist()
    [1, 2, 4]
    """
    if not len(numbers):
        return np.empty(0, dtype=np.int64)
    return np.append(np.flatnonzero(np.diff(numbers)), len(numbers) - 1)
