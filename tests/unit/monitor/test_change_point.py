"""When a job counts as slower, and when not."""

from __future__ import annotations

import random

import pytest

from stepscope.monitor.windows.change_point import FEWEST_BEFORE, RECENT, SlowDown

NOISE = 0.05


def observed(paces: list[float], *, noise: float = NOISE) -> list[int]:
    """Indices at which a change is reported, for these mean step times with noise."""
    generator = random.Random(0)
    detector = SlowDown()
    return [
        index
        for index, pace in enumerate(paces)
        if detector.observe(pace * generator.uniform(1 - noise, 1 + noise))
    ]


def test_a_lasting_slow_down_is_reported_once() -> None:
    (found,) = observed([100.0] * 60 + [200.0] * 60)
    assert 60 <= found < 60 + RECENT + 2


@pytest.mark.parametrize(
    "paces",
    [
        [100.0] * 200,
        [100.0] * 60 + [50.0] * 60,
        [100.0] * 60 + [110.0] * 60,
        ([100.0] * 19 + [900.0]) * 6,
        ([100.0] * 30 + [400.0] * 2) * 4,
        [200.0] * 10 + [100.0] * (FEWEST_BEFORE - 12) + [200.0] * 4,
        [],
    ],
    ids=["steady", "faster", "a little", "validation", "checkpoints", "too early", "nothing"],
)
def test_nothing_else_is(paces: list[float]) -> None:
    assert observed(paces) == []


def test_noise_of_the_job_itself_is_no_change() -> None:
    assert observed([100.0] * 400, noise=0.6) == []


def test_the_new_pace_becomes_usual_and_the_next_change_is_seen() -> None:
    first, second = observed([100.0] * 60 + [200.0] * 60 + [400.0] * 60)
    assert 60 <= first < 70
    assert 120 <= second < 130
