"""Limit of reading, with clocks of the test."""

from __future__ import annotations

import pytest

from stepscope.watch.reading_budget import ReadingBudget


class Reading:
    """Operations of a given cost, each as soon as the budget allows it."""

    def __init__(self, max_share: float, *, interval_s: float = 0.0, credit_s: float = 0.0) -> None:
        self.now_s = self.cpu_s = 0.0
        self.budget = ReadingBudget(
            max_share,
            interval_s=interval_s,
            credit_s=credit_s,
            clock=lambda: self.now_s,
            cpu_clock=lambda: self.cpu_s,
        )

    def read(self, cost_s: float, *, every_s: float) -> float:
        """Read once; returns the wait before."""
        self.now_s += every_s
        wait_s = self.budget.wait_s
        self.now_s += wait_s
        assert self.budget.allows
        with self.budget.spending():
            self.cpu_s += cost_s
            self.now_s += cost_s
        return wait_s


def test_each_reading_keeps_the_share() -> None:
    reading = Reading(0.1, interval_s=3)
    reading.read(1, every_s=0)
    assert reading.budget.wait_s == pytest.approx(10)
    reading.read(0.1, every_s=0)
    assert reading.budget.wait_s == pytest.approx(3)


def test_a_credit_pays_for_the_first_readings_and_the_average_is_kept() -> None:
    reading = Reading(0.01, credit_s=300)
    waits = [reading.read(0.1, every_s=5) for _ in range(1000)]
    assert waits[:20] == [0] * 20  # 100 s of 2% are 1 s more than the share, of 3 s
    assert waits[-1] == pytest.approx(0.1 / 0.01 - 5 - 0.1)
    paid_s = reading.cpu_s - 0.1 - 300 * 0.01  # before the last reading
    assert paid_s / reading.now_s <= 0.01
    reading.now_s += 10_000  # no more credit than that of the period
    assert sum(reading.read(0.1, every_s=0) == 0 for _ in range(100)) == pytest.approx(31, abs=1)
