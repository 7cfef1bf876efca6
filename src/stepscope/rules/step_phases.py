"""Phases of the steps that contain given times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stepscope.intervals import Int
from stepscope.rules.inputs import RankStepTimes

MAX_PENDING = 100_000
"""Times kept per node until the steps that contain them have ended."""


@dataclass(slots=True)
class PhasesAtTimes:
    """Phase times of the steps of one node that contain given times; each step counts once."""

    phase_ns: dict[str, int] = field(default_factory=dict)
    step_count: int = 0
    pending: Int = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def add(self, times: Int, steps: list[RankStepTimes]) -> None:
        """Add new times of the node and the new steps of its ranks."""
        pending = np.sort(np.concatenate([self.pending, times]))
        if not len(pending):
            return
        for rank_steps in steps:
            first = np.searchsorted(pending, rank_steps.start_ns)
            contains = np.searchsorted(pending, rank_steps.end_ns) > first
            self.step_count += int(contains.sum())
            add_times(
                self.phase_ns,
                {phase: int(ns[contains].sum()) for phase, ns in rank_steps.phase_ns.items()},
            )
        ends = [int(rank_steps.end_ns[-1]) for rank_steps in steps if len(rank_steps)]
        if ends:
            pending = pending[np.searchsorted(pending, min(ends)) :]
        self.pending = pending[-MAX_PENDING:]


def add_times(totals: dict[str, int], times: Mapping[str, int]) -> None:
    """Add times to totals by name."""
    for name, time_ns in times.items():
        totals[name] = totals.get(name, 0) + time_ns


def shares_of_total(times: Mapping[str, float]) -> dict[str, float]:
    """Return each value as a share of the total, largest first; empty if the total is 0.

    >>> shares_of_total({"a": 1, "b": 3})
    {'b': 0.75, 'a': 0.25}
    """
    total = sum(times.values())
    ordered = sorted(times.items(), key=lambda item: -item[1])
    return {name: value / total for name, value in ordered if value} if total else {}
