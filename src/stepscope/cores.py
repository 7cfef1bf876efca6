"""Cores that this process may use, and allocations of the threads on them."""

from __future__ import annotations

import ctypes
import os

_M_ARENA_MAX = -8
"""Of mallopt(3)."""


def available_cores() -> int:
    """Return the number of cores this process may run on."""
    return len(os.sched_getaffinity(0))


def limit_arenas() -> None:
    """Let the threads of this process allocate from one arena per core.

    The GNU C library creates up to eight per core, and keeps in each what was freed there: a tenth
    of the memory of a view of many traces. Other libraries have no such limit.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, available_cores())
