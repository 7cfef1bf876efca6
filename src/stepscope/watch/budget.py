"""Limit of the time that reading a growing run takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

REFRESH_S = 3.0
MAX_READING_SHARE = 0.02
"""Maximum share of the time spent on reading the growing run; a large run is read less often."""


class Budget:
    """Limit of an expensive operation to a share of the time. All CPU time of the process during
    the operation counts, because queries run in threads of their own."""

    def __init__(self) -> None:
        self._next = time.monotonic()

    @property
    def allows(self) -> bool:
        """True when the operation may be done now."""
        return time.monotonic() >= self._next

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Measure the cost of the operation in the body."""
        start_s = time.process_time()
        try:
            yield
        finally:
            cost_s = time.process_time() - start_s
            self._next = time.monotonic() + max(REFRESH_S, cost_s / MAX_READING_SHARE)
