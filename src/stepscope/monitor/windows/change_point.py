"""Online detector of a lasting slowdown, from step times.

It compares two robust statistics of the step time: the median of the latest observations, and the
median and median absolute deviation (MAD) of those before, the baseline. It reports a change when
nearly all of the latest observations exceed

    median + max(0.3 · median, 6 · 1.4826 · MAD)

1.4826 · MAD estimates the standard deviation of a normal distribution. A single slow interval
(validation, a checkpoint, new workers) is one observation, and is not reported.
"""

from __future__ import annotations

import statistics
from collections import deque

RECENT_COUNT = 6
MAX_BELOW = 1
"""Maximum number of the latest observations below the threshold."""
MIN_BASELINE = 20
MAX_BASELINE = 240
MIN_GROWTH = 0.3
DEVIATIONS = 6 * 1.4826


class SlowdownDetector:
    """Detector for one process."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT_COUNT)
        self._baseline: deque[float] = deque(maxlen=MAX_BASELINE)

    def observe(self, step_ns: float) -> bool:
        """Add a mean step time of at least half a second or one step.

        Returns:
            True if the process has become slower; a new baseline starts then.
        """
        if len(self._recent) == RECENT_COUNT:
            self._baseline.append(self._recent[0])
        self._recent.append(step_ns)
        if len(self._baseline) < MIN_BASELINE:
            return False
        median = statistics.median(self._baseline)
        deviation = statistics.median(abs(value - median) for value in self._baseline)
        threshold = median + max(MIN_GROWTH * median, DEVIATIONS * deviation)
        if sum(value > threshold for value in self._recent) < RECENT_COUNT - MAX_BELOW:
            return False
        self._baseline.clear()
        return True
