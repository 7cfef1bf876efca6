"""Collections of Python's garbage collector, through the callbacks that it offers.

A collection stops its thread wherever that happens to be: in a forward pass as well as between
steps, and in the middle of a record of ours, which logs are made for. Processes that train are
watched, from their first step on; those that they fork are not, unless they train too. Most
collections are of a few hundred new objects and take microseconds: those are not even timed.
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

LEAST_NS = 100_000
"""Shorter ones are not recorded."""
FEW_OBJECTS = 2000
"""So many are looked at in less than that. Python's own threshold is 700, and 2000 from 3.13 on."""

_probe = Probe("garbage collections", coarse=True)
_now = time.monotonic_ns
_began = 0
_least_generation = 0


def watch_this_process() -> None:
    """Record collections from now on. Called at every step, because the job may change how it
    collects, and a fork ends it."""
    global _least_generation
    collects_few = gc.isenabled() and 0 < gc.get_threshold()[0] <= FEW_OBJECTS
    _least_generation = 1 if collects_few else 0
    if _watch not in gc.callbacks and session.live:
        gc.callbacks.append(_watch)


def _watch(phase: str, info: dict[str, Any]) -> None:
    """The collector never runs twice at a time, so one beginning is enough for all threads."""
    global _began
    if info["generation"] < _least_generation:
        return
    if phase == "start":
        _began = _now()
        return
    ended = _now()
    if ended - _began >= LEAST_NS and hasattr(session.local, "logs") and not sys.is_finalizing():
        _record(ended, info["generation"])


def _write(ended: int, generation: int) -> None:
    _probe.write(Kind.GARBAGE_COLLECTION, _user_place(), _began, ended, value=generation)


_record = _probe.protect(_write)


def _user_place() -> str:
    """File and line of the innermost frame of the user's; '' without one.

    No frame outlives this function: it would keep the job's objects alive.
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
