"""Processes of stepscope beside the job are started again when they die, but not without end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stepscope.cli import launcher
from stepscope.cli.launcher import COMPANION_PERIOD_S, COMPANION_STARTS, Companion


class Clock:
    """Monotonic clock that the test sets."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


def test_a_companion_that_dies_at_once_is_given_up_for_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(launcher, "time", clock)
    pids: list[int] = []

    def start(job_pid: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-S", "-c", ""])
        process.wait()
        pids.append(job_pid)
        return process

    companion = Companion(start)
    for _ in range(3 * COMPANION_STARTS):
        companion.keep(7)
    assert pids == [7] * COMPANION_STARTS
    clock.now_s += COMPANION_PERIOD_S - 1
    companion.keep(7)
    assert len(pids) == COMPANION_STARTS
    clock.now_s += 1
    for _ in range(3 * COMPANION_STARTS):
        companion.keep(7)
    assert len(pids) == 2 * COMPANION_STARTS
