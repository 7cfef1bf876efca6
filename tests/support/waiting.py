"""Waiting for a condition that another process or thread brings about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
FIRST_PAUSE_S = 0.002
MAX_PAUSE_S = 0.05


def wait_until(condition: Callable[[], T], *, timeout_s: float = 120.0, waiting_for: str = "") -> T:
    """Wait until a condition holds, and return its value; fail at the timeout.

    Only what never comes takes as long as the timeout, however busy the machine is. The pause
    between two checks grows, so that a costly condition does not keep a core busy.
    """
    deadline = time.monotonic() + timeout_s
    pause, pause_s = threading.Event(), FIRST_PAUSE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"no {waiting_for or condition} within {timeout_s:g} s"
        pause.wait(pause_s)
        pause_s = min(1.3 * pause_s, MAX_PAUSE_S)
    return value
