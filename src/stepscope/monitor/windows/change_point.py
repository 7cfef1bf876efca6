"""When a training process becomes slower and stays so: an online detector on step times.

Two robust pictures of the step time are compared: the median of the latest observations, and the
median and median absolute deviation (MAD) of those before. A change is reported when nearly all
latest observations lie above

    median + max(0.3 · median, 6 · 1.4826 · MAD)

1.4826 · MAD estimates a normal distribution's standard deviation. A single slow stretch
(validation, a checkpoint, new workers) is one observation and reports nothing.
"""

from __future__ import annotations

import statistics
from collections import deque

RECENT = 6
MAY_MISS = 1
"""So many of the latest observations may lie below the bound."""
FEWEST_BEFORE = 20
MOST_BEFORE = 240
LEAST_GROWTH = 0.3
DEVIATIONS = 6 * 1.4826


class SlowDown:
    """Watches one process."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._before: deque[float] = deque(maxlen=MOST_BEFORE)

    def observe(self, step_ns: float) -> bool:
        """Take in a mean step time of at least half a second or one step.

        Returns:
            True when the process has become slower; its new pace is then what is normal.
        """
        if len(self._recent) == RECENT:
            self._before.append(self._recent[0])
        self._recent.append(step_ns)
        if len(self._before) < FEWEST_BEFORE:
            return False
        usual = statistics.median(self._before)
        deviation = statistics.median(abs(each - usual) for each in self._before)
        bound = usual + max(LEAST_GROWTH * usual, DEVIATIONS * deviation)
        if sum(each > bound for each in self._recent) < RECENT - MAY_MISS:
            return False
        self._before.clear()
        return True
