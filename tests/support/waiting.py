"""Waiting for a condition that another process or thread brings about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], *, timeout_s: float = 30.0, what: str = "") -> T:
    """Wait until a condition holds, and return its value; fail at the timeout."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {timeout_s:g} s: {what or condition}"
        time.sleep(0.005)
    return value
