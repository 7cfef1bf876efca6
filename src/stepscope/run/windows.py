"""Detailed windows of processes: reported facts, and the steps in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from stepscope.intervals import Intervals
from stepscope.run.period import Period
from stepscope.schema import ProcessInfo, WindowFact

WindowKey = tuple[str | None, int | None]
"""Process and number; an imported trace has neither."""


def windows_of(processes: Iterable[ProcessInfo]) -> dict[WindowKey, WindowFact]:
    """Collect every completed window, by process and number."""
    return {
        (process.process, fact.number): fact
        for process in processes
        for fact in process.facts_of(WindowFact)
    }


class WatchedSteps(NamedTuple):
    """Steps of a window by number and extent; a process counts its steps from 0."""

    numbers: list[int]
    extent: Intervals

    def starting_in(self, period: Period) -> WatchedSteps:
        """Select the steps that start in a range of time."""
        rows = np.flatnonzero(period.contains(self.extent.start))
        extent = Intervals(self.extent.start[rows], self.extent.end[rows])
        return WatchedSteps([self.numbers[row] for row in rows.tolist()], extent)
