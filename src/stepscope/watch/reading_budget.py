"""Limit of the time that reading a growing run takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REFRESH_S = 3.0
MAX_READING_SHARE = 0.02
"""Maximum share of the time spent on reading the growing run; a large run is read less often."""


class ReadingBudget:
    """Limit of an expensive operation to a share of the time. All CPU time of the process during
    the operation counts, because queries run in threads of their own.

    Args:
        max_share: the limit, as a share of one core.
        interval_s: minimum time between two operations.
        credit_s: time over which the limit holds on average; 0 if it holds for each operation.
        clock: monotonic time in seconds.
        cpu_clock: CPU time of this process in seconds.
    """

    def __init__(
        self,
        max_share: float = MAX_READING_SHARE,
        *,
        interval_s: float = REFRESH_S,
        credit_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._max_share = max_share
        self._interval_s = interval_s
        self._credit_s = credit_s
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._next_s = clock()
        self._paid_s = self._next_s - credit_s
        """Time up to which the share of the time is spent."""

    @property
    def allows(self) -> bool:
        """True when the operation may be done now."""
        return self._clock() >= self._next_s

    @property
    def wait_s(self) -> float:
        """Time until the next operation may be done."""
        return max(0.0, self._next_s - self._clock())

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Measure the cost of the operation in the body."""
        start_s = self._cpu_clock()
        try:
            yield
        finally:
            cost_s, now_s = self._cpu_clock() - start_s, self._clock()
            self._paid_s = max(self._paid_s, now_s - self._credit_s) + cost_s / self._max_share
            self._next_s = max(now_s + self._interval_s, self._paid_s)
