"""Time for which a census may hold up the job. Each of its stages ends when that is spent, and what
was left out is noted."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

LIMIT_NS = 400_000_000
"""A census stays below half a second with the parts that cannot be cut short."""
STRIDE = 128
"""Cheap steps between two looks at the clock."""


class Budget:
    """Time for a census, or for a part of it.

    Args:
        limit_ns: the time.
        now: clock.
        left_out: stages that had too little time.
    """

    def __init__(
        self,
        limit_ns: float = LIMIT_NS,
        now: Callable[[], int] = time.monotonic_ns,
        left_out: list[str] | None = None,
    ) -> None:
        self._now = now
        self._end_ns = now() + limit_ns
        self.left_out: list[str] = [] if left_out is None else left_out

    @property
    def left_ns(self) -> float:
        """Time that is left."""
        return self._end_ns - self._now()

    def part(self, ratio: float) -> Budget:
        """Return a part of what is left."""
        return Budget(ratio * max(0, self.left_ns), self._now, self.left_out)

    def allows(self, stage: str, cost_ns: float = 0) -> bool:
        """Return True if there is time for this; otherwise note that the stage was cut short."""
        if self.left_ns > cost_ns:
            return True
        self.leave_out(stage)
        return False

    def leave_out(self, stage: str) -> None:
        """Note that a stage is not complete."""
        if stage not in self.left_out:
            self.left_out.append(stage)

    def limit(self, values: Iterable[Any], stage: str, stride: int = STRIDE) -> Iterator[Any]:
        """Iterate over values as long as there is time."""
        for number, value in enumerate(values):
            if not number % stride and not self.allows(stage):
                return
            yield value
