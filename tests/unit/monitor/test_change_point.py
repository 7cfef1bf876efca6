"""Detection of slowdowns, without false alarms."""

from __future__ import annotations

import random

import pytest

from stepscope.monitor.windows.service import MIN_BASELINE, RECENT_COUNT, SlowdownDetector

NOISE = 0.05


def detect(step_times: list[float], *, noise: float = NOISE) -> list[int]:
    """Return the indices at which a change is reported, for mean step times with noise."""
    generator = random.Random(0)
    detector = SlowdownDetector()
    return [
        index
        for index, step_time in enumerate(step_times)
        if detector.observe(step_time * generator.uniform(1 - noise, 1 + noise))
    ]


def test_a_lasting_slowdown_is_reported_once() -> None:
    (index,) = detect([100.0] * 60 + [200.0] * 60)
    assert 60 <= index < 60 + RECENT_COUNT + 2


@pytest.mark.parametrize(
    "step_times",
    [
        [100.0] * 200,
        [100.0] * 60 + [50.0] * 60,
        [100.0] * 60 + [110.0] * 60,
        ([100.0] * 19 + [900.0]) * 6,
        ([100.0] * 30 + [400.0] * 2) * 4,
        [200.0] * 10 + [100.0] * (MIN_BASELINE - 12) + [200.0] * 4,
        [],
    ],
    ids=["steady", "faster", "a little", "validation", "checkpoints", "too early", "nothing"],
)
def test_other_changes_are_not_reported(step_times: list[float]) -> None:
    assert detect(step_times) == []


def test_noise_is_not_a_change() -> None:
    assert detect([100.0] * 400, noise=0.6) == []


def test_the_new_step_time_becomes_the_baseline() -> None:
    first, second = detect([100.0] * 60 + [200.0] * 60 + [400.0] * 60)
    assert 60 <= first < 70
    assert 120 <= second < 130
