"""Times in which the device executes compiled functions, seen by a thread that waits for results.

A call of a compiled function returns before the device has computed. So a wait for the next batch
is hidden while the device is busy, and reading a number waits for work that was started long
before. A thread of its own waits for the smallest result of a call, without the interpreter lock,
and notes when it is there: the device was busy from the call, or the result before, until then.
Functions that take less than `PAUSE_S` one after the other are not all seen.

The intervals are written by the thread that makes the calls: they belong to its steps.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue

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
EXIT_TIMEOUT_S = 5.0

_probe = Probe("times of the device", coarse=True)
_now = time.monotonic_ns


class _Caller(threading.local):
    """Thread that makes calls: the intervals of its calls that are not written yet."""

    def __init__(self) -> None:
        self.intervals: deque[tuple[int, int]] = deque()


class DeviceTimes:
    """The waiting thread, its queue, and the threads whose calls it watches."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Array, int, deque[tuple[int, int]]] | None] = SimpleQueue()
        self._caller = _Caller()
        self._ready_ns = 0
        self._thread = threading.Thread(target=self._wait, name="stepscope-device", daemon=True)
        self._thread.start()

    def observe(self, result: Array | None, start_ns: int | None) -> None:
        """Watch a result, and write the intervals that are known by now.

        Args:
            result: result of a call; None if there is none to watch.
            start_ns: start of the call, monotonic; None if something was compiled in it.
        """
        intervals = self._caller.intervals
        while intervals:
            _probe.write(Kind.DEVICE, PHASE, *intervals.popleft())
        if result is None:
            return
        now_ns = _now()
        if not result.is_ready():
            self._queue.put((result, now_ns, intervals))
        elif start_ns is not None and now_ns - start_ns >= MIN_INLINE_NS:
            _probe.write(Kind.DEVICE, PHASE, max(start_ns, self._ready_ns), now_ns)

    def stop(self) -> None:
        """End the thread: the interpreter must not end while it waits outside of Python."""
        self._queue.put(None)
        self._thread.join(EXIT_TIMEOUT_S)

    def _wait(self) -> None:
        while (first := self._queue.get()) is not None:
            (result, start_ns, intervals) = first
            try:
                # A device computes in order: what is queued behind a result keeps it busy.
                while (newer := self._queue.get_nowait()) is not None:
                    is_behind = newer[2] is intervals and not waits.is_ready(result)
                    start_ns = start_ns if is_behind else newer[1]
                    result, intervals = newer[0], newer[2]
                return
            except Empty:
                self._await(result, start_ns, intervals)
            del first, result  # before the thread rests: it must not keep memory
            time.sleep(PAUSE_S)

    def _await(self, result: Array, start_ns: int, intervals: deque[tuple[int, int]]) -> None:
        if waits.is_ready(result):  # since when is not known
            return
        try:
            waits.await_unrecorded(result)
        except RuntimeError:  # a later call was given the array, or the computation failed
            return
        now_ns = _now()
        intervals.append((max(start_ns, self._ready_ns), now_ns))
        self._ready_ns = now_ns


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
