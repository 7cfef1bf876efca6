"""Probe for Python's garbage collector, through `gc.callbacks`.

A collection interrupts its thread at any point: in a forward pass, between steps, or in the
middle of a write to a span log, which the logs are designed for. Training processes are watched
from their first step on; forked children are not, unless they train too. Most collections visit
a few hundred new objects and take microseconds: they are not timed.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import Any

from stepscope.capture import session
from stepscope.capture.guard import Probe
from stepscope.capture.stacks import MAX_FRAMES, library_of
from stepscope.spool import Kind

MIN_DURATION_NS = 100_000
"""Shorter collections are not recorded."""
SMALL_THRESHOLD = 2000
"""A collection of this many objects takes less than `MIN_DURATION_NS`. Python's default is 700, and
2000 from Python 3.13 on."""

_probe = Probe("garbage collections", coarse=True)
_now = time.monotonic_ns
_start_ns = 0
_min_generation = 0


def watch_this_process() -> None:
    """Record collections from now on.

    Called after some of the steps, because the job may change the settings of the collector, and
    because a fork stops the probe.
    """
    global _min_generation
    is_small = gc.isenabled() and 0 < gc.get_threshold()[0] <= SMALL_THRESHOLD
    _min_generation = 1 if is_small else 0
    if _watch not in gc.callbacks and session.live:
        gc.callbacks.append(_watch)


def _watch(phase: str, info: dict[str, Any]) -> None:
    """Time one collection. The collector never runs concurrently: one start time is enough."""
    global _start_ns
    if info["generation"] < _min_generation:
        return
    if phase == "start":
        _start_ns = _now()
        return
    end_ns = _now()
    is_long = end_ns - _start_ns >= MIN_DURATION_NS
    if is_long and hasattr(session.local, "logs") and not sys.is_finalizing():
        _record(end_ns, info["generation"])


def _write(end_ns: int, generation: int) -> None:
    _probe.write(Kind.GARBAGE_COLLECTION, _user_location(), _start_ns, end_ns, value=generation)


_record = _probe.protect(_write)


def _user_location() -> str:
    """Return file and line of the innermost frame of user code; '' without one.

    No frame outlives this function: it would keep objects of the job alive.
    """
    frame = sys._getframe()
    for _ in range(MAX_FRAMES):
        caller = frame.f_back
        if caller is None:
            break
        frame = caller
        file = frame.f_code.co_filename
        if not library_of(file):
            return f"{file.rpartition('/')[2]}:{frame.f_lineno}"
    return ""


def _stop() -> None:
    if _watch in gc.callbacks:
        gc.callbacks.remove(_watch)


os.register_at_fork(after_in_child=_stop)
