"""What ranks were doing at given moments: phases of the steps around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stepscope.intervals import Int
from stepscope.rules.signals import RankSteps

MOST_PENDING = 100_000
"""Moments kept per node until the step around them has ended."""


@dataclass(slots=True)
class PhasesAt:
    """Phases of the steps in which some moments of one node lay; each step counts once."""

    phase_ns: dict[str, int] = field(default_factory=dict)
    step_count: int = 0
    pending: Int = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def add(self, moments: Int, steps: list[RankSteps]) -> None:
        """Take in new moments of the node and the new steps of its ranks."""
        waiting = np.sort(np.concatenate([self.pending, moments]))
        if not len(waiting):
            return
        for each in steps:
            begin = np.searchsorted(waiting, each.start_ns)
            hit = np.searchsorted(waiting, each.end_ns) > begin
            self.step_count += int(hit.sum())
            for phase, time_ns in each.phase_ns.items():
                self.phase_ns[phase] = self.phase_ns.get(phase, 0) + int(time_ns[hit].sum())
        ends = [int(each.end_ns[-1]) for each in steps if len(each)]
        if ends:
            waiting = waiting[np.searchsorted(waiting, min(ends)) :]
        self.pending = waiting[-MOST_PENDING:]


def shares(times: Mapping[str, float]) -> dict[str, float]:
    """Each part of a sum as a share of it, largest first; nothing when the sum is 0.

    >>> shares({"a": 1, "b": 3})
    {'b': 0.75, 'a': 0.25}
    """
    total = sum(times.values())
    ordered = sorted(times.items(), key=lambda item: -item[1])
    return {name: value / total for name, value in ordered if value} if total else {}
