"""Durations as they are read."""

from __future__ import annotations

import pytest

from stepscope.cli import text
from stepscope.quantities import duration

S = 1_000_000_000
HOUR = 3600 * S


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1234, "1.23 us"),
        (999_600, "1,000 us"),
        (86_400_000, "86.4 ms"),
        (999.7 * 1e6, "1,000 ms"),
        (503 * S, "503 s"),
        (3599 * S, "3,599 s"),
        (HOUR, "1 h"),
        (18_000 * S, "5 h"),
        (177 * HOUR, "177 h"),
        (1_817_181 * S, "505 h"),
        (999 * HOUR, "999 h"),
        (1000 * HOUR, "41.7 d"),
        (10**9 * HOUR, "41,666,667 d"),
        (-1.5 * HOUR, "-1.5 h"),
    ],
)
def test_a_duration(ns: float, said: str) -> None:
    assert duration(ns) == text.duration(ns) == said


def test_no_duration() -> None:
    assert text.duration(None) == "-"
