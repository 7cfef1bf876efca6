"""Thinning of details, where recording all of them would slow the job down.

Steps and phases are always recorded. The details of an activity that repeats, such as the samples
of a batch, are recorded for one activity in N, so that they cost at most `SHARE` of the time.
Which ones are recorded follows from their number only, not from their duration: that would bias
the recorded ones.
"""

from __future__ import annotations

import time

SHARE = 0.0025
"""Share of the time between two activities that their details may cost, on average."""
COLD_FACTOR = 3
"""Cost of a probe in a job divided by that in a tight loop: in a job the probe's code and data are
rarely in the caches, and it displaces those of the job. Measured by benchmarks/short_step_cost.py.
"""
ADJUSTMENT_COUNT = 64
"""Activities after which N is adjusted. The first ones are all recorded in detail."""
MAX_EVERY = 256


class Thinning:
    """Selection of the activities to record in detail: one in `detailed_every`, a power of two.

    A caller may take activities that are not recorded in detail from `plain_left` itself, which is
    quicker than a call of `select`.
    """

    __slots__ = (
        "_activities",
        "_cost_ns",
        "_detailed",
        "_start_ns",
        "detailed_every",
        "plain_left",
    )

    def __init__(self) -> None:
        self.detailed_every = 1
        self.plain_left = 0
        """Next activities that are not to be recorded in detail."""
        self._activities = 0
        """Activities since the last adjustment, as far as they are selected or in `plain_left`."""
        self._detailed = 0
        self._cost_ns = 0.0
        self._start_ns = 0

    def select(self) -> bool:
        """Return True if the activity that starts now is to be recorded in detail."""
        if self.plain_left:
            self.plain_left -= 1
            return False
        if self._activities >= ADJUSTMENT_COUNT:
            self._adjust(time.monotonic_ns())
        self._start_ns = self._start_ns or time.monotonic_ns()
        self._activities += self.detailed_every
        self.plain_left = self.detailed_every - 1
        return True

    def charge(self, cost_ns: float) -> None:
        """Add the cost of recording one activity in detail."""
        self._cost_ns += cost_ns
        self._detailed += 1

    def _adjust(self, now_ns: int) -> None:
        """Set `detailed_every` from the costs and the time since the last adjustment.

        It decreases only by a factor of four or more, so that it does not alternate.
        """
        interval_ns = (now_ns - self._start_ns) / self._activities
        if self._detailed and interval_ns > 0:
            needed = self._cost_ns / self._detailed / (SHARE * interval_ns)
            number = 1
            while number < needed and number < MAX_EVERY:
                number *= 2
            if number > self.detailed_every or number * 4 <= self.detailed_every:
                self.detailed_every = number
        self._start_ns = now_ns
        self._cost_ns, self._detailed, self._activities = 0.0, 0, 0
