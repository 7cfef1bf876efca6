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


def test_a_lasting_slowdown_is_reported_once_and_becomes_the_baseline() -> None:
    first, second = detect([100.0] * 60 + [200.0] * 60 + [400.0] * 60)
    assert 60 <= first < 60 + RECENT_COUNT + 2
    assert 120 <= second < 120 + RECENT_COUNT + 2


OTHER_CHANGES = {
    "steady": [100.0] * 200,
    "faster": [100.0] * 60 + [50.0] * 60,
    "a little": [100.0] * 60 + [110.0] * 60,
    "validation": ([100.0] * 19 + [900.0]) * 6,
    "checkpoints": ([100.0] * 30 + [400.0] * 2) * 4,
    "too early": [200.0] * 10 + [100.0] * (MIN_BASELINE - 12) + [200.0] * 4,
    "nothing": [],
}


@pytest.mark.parametrize("name", OTHER_CHANGES)
def test_other_changes_and_noise_are_not_reported(name: str) -> None:
    assert detect(OTHER_CHANGES[name]) == []
    assert detect([100.0] * 400, noise=0.6) == []
