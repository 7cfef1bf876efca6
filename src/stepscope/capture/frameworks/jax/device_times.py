"""Times in which the device executes compiled functions, seen by a thread that waits for results.

A call of a compiled function returns before the device has computed. So a wait for the next batch
is hidden while the device is busy, and reading a number waits for work that was started long
before. A thread of its own waits for the smallest result of each call in turn, without the
interpreter lock, and notes when it is there: the device was busy from the call, or the result
before, until then. Results that are there when the thread turns to them, after it has rested, kept
the device busy at least until the last call that found one of them missing.

The intervals are written by the thread that makes the calls: they belong to its steps.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import NamedTuple

from jax import Array

from stepscope.capture.frameworks.jax import waits
from stepscope.capture.guard import Probe
from stepscope.spool import Kind

PHASE = "execution"
PAUSE_S = 0.002
"""Time for which the thread rests after each result, so that it costs little."""
MIN_INLINE_NS = 1_000_000
"""Shortest call of which a result that is there at its end shows that the call itself computed it,
as on a host whose dispatch is synchronous."""

_probe = Probe("times of the device", coarse=True)
_now = time.monotonic_ns


class _Caller(threading.local):
    """Thread that makes calls."""

    def __init__(self) -> None:
        self.intervals: deque[tuple[int, int]] = deque()
        """Intervals of its calls that are not written yet."""
        self.last_result: Array | None = None
        """Result of its last call, if that was not there when the call returned."""
        self.busy_since_ns = 0
        """Time since which that result, or one before it, has kept the device busy."""


class _Computation(NamedTuple):
    """Computation of a result that was not there when the call returned."""

    result: Array
    busy_since_ns: int
    call_end_ns: int
    intervals: deque[tuple[int, int]]
    """Those of the thread that made the call."""


class DeviceTimes:
    """The waiting thread, its queue, and the threads whose calls it watches."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Computation | None] = SimpleQueue()
        self._caller = _Caller()
        self._ready_ns = 0
        self._is_stopping = False
        self._thread = threading.Thread(target=self._wait, name="stepscope-device", daemon=True)
        self._thread.start()

    def observe(self, result: Array | None, start_ns: int | None) -> None:
        """Watch a result, and write the intervals that are known by now.

        Args:
            result: result of a call; None if there is none to watch.
            start_ns: start of the call, monotonic; None if something was compiled in it.
        """
        caller = self._caller
        self._write_intervals()
        if result is None:
            return
        now_ns = _now()
        if not result.is_ready():
            if caller.last_result is None or waits.is_ready(caller.last_result):
                caller.busy_since_ns = now_ns
            caller.last_result = result
            self._queue.put(_Computation(result, caller.busy_since_ns, now_ns, caller.intervals))
        elif start_ns is not None and now_ns - start_ns >= MIN_INLINE_NS:
            _probe.write(Kind.DEVICE, PHASE, max(start_ns, self._ready_ns), now_ns)

    def stop(self) -> None:
        """End the thread, and write the last intervals of the calling thread.

        A thread that waits outside of Python while the interpreter ends would abort the process. So
        the result that it waits for is awaited, however long that takes, as JAX itself does when
        the process ends. What is still queued is not: it is computed after all calls.
        """
        self._is_stopping = True
        self._queue.put(None)
        self._thread.join()
        self._write_intervals()

    def _write_intervals(self) -> None:
        intervals = self._caller.intervals
        while intervals:
            _probe.write(Kind.DEVICE, PHASE, *intervals.popleft())

    def _wait(self) -> None:
        while (computation := self._queue.get()) is not None:
            must_wait = not (self._is_stopping or waits.is_ready(computation.result))
            # Since when a result is there is not known, but its call found the device busy.
            end_ns = self._await(computation.result) if must_wait else computation.call_end_ns
            start_ns = max(computation.busy_since_ns, self._ready_ns)
            if end_ns is not None and end_ns > start_ns:
                computation.intervals.append((start_ns, end_ns))
                self._ready_ns = end_ns
            del computation  # before the thread rests: it must not keep memory
            if must_wait:
                time.sleep(PAUSE_S)

    def _await(self, result: Array) -> int | None:
        """Wait for a result and return the time; None if that is not known."""
        try:
            waits.await_unrecorded(result)
        except RuntimeError:  # a later call was given the array, or the computation failed
            return None
        return _now()


_times: DeviceTimes | None = None


def observe(result: Array | None, start_ns: int | None) -> None:
    """Watch a result of a call; see `DeviceTimes.observe`."""
    global _times
    if _times is None:
        _times = DeviceTimes()
        atexit.register(_stop)
    _times.observe(result, start_ns)


def _stop() -> None:
    if _times is not None:
        _times.stop()


def _forget() -> None:
    """Forget the thread, which a forked child does not have."""
    global _times
    _times = None


os.register_at_fork(after_in_child=_forget)
