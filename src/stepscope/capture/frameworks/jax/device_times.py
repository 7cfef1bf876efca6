"""Times in which the device executes compiled functions, and waits of the host for results.

A call of a compiled function returns before the device has computed. So a wait for the next batch
is hidden while the device is busy, and reading a number waits for work that was started long
before. The device is busy from the end of a call, or the result before, until the smallest result
of the call is there. The thread that makes the calls sees that itself where it waits for the
result, or where its next call finds it missing. Where neither is so, as long as host and device
work side by side, a thread of its own waits for each result in turn, without the interpreter lock.
It rests after each: the results that are there when it turns to them kept the device busy at least
until the last call that found one of them missing.

The intervals are written by the thread that makes the calls: they belong to its steps.
"""

from __future__ import annotations

import atexit
import operator
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

import jax
from jax import Array

from stepscope.capture import session
from stepscope.capture.frameworks.tables import JAX
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Kind

_wait_probe = Probe("waits for the device", coarse=True)
await_unrecorded: Callable[[Any], Any] = operator.methodcaller("block_until_ready")
"""Wait for an array without a record of it."""


@_wait_probe.protect
def install_waits() -> None:
    """Patch `jax.block_until_ready`, and the method and the property of arrays that wait."""
    global await_unrecorded
    internals = JAX.find_all("array", "is_ready")
    if internals is None:
        return
    arrays: Any = internals[0]  # whose methods are compiled, without names that `patch` could copy
    patch(jax, "block_until_ready", _timed)
    await_unrecorded = arrays.block_until_ready
    arrays.block_until_ready = _timed_method(arrays.block_until_ready)
    # Conversions to numbers and to arrays of NumPy all read this property.
    if (value := JAX.find("value")) is not None:
        arrays._value = property(_timed_method(value.fget))


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    def block_until_ready(values: Any) -> Any:
        if not session.live or (isinstance(values, Array) and is_ready(values)):
            return original(values)
        return times.wait("block_until_ready", original, values)

    return block_until_ready


def _timed_method(original: Callable[..., Any]) -> Callable[..., Any]:
    def block_until_ready(array: Any) -> Any:
        if not session.live or is_ready(array):
            return original(array)
        return times.wait("array", original, array)

    return block_until_ready


def await_argument(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make a wrapper of a function that reads the value of its argument, which waits first.

    NumPy reads an array of the host through the buffer protocol: that waits as well, but in no
    method that is patched here.
    """

    def read(value: Any) -> Any:
        if session.live and isinstance(value, Array) and not is_ready(value):
            times.wait("array", await_unrecorded, value)
        return original(value)

    return read


def is_ready(array: Any) -> bool:
    """Return True if an array is computed, has been donated, or cannot tell, as a tracer and a
    random key: then nothing waits for it."""
    try:
        return bool(array.is_ready())
    except (RuntimeError, AttributeError):
        return True


PHASE = "execution"
PAUSE_S = 0.002
"""Time for which the thread rests after each result, so that it costs little."""
MIN_SEEN_COUNT = 8
"""Number of results that the calling thread has to see, less those that it misses, before the
waiting thread leaves the next ones to it."""
MISS_WEIGHT = 64
"""A missed result counts as much as this many seen ones, so that few are missed, but one alone does
not wake the waiting thread for the next ones."""
MIN_INLINE_NS = 1_000_000
"""Shortest call of which a result that is there at its end shows that the call itself computed it,
as on a host whose dispatch is synchronous."""

_probe = Probe("times of the device", coarse=True)
_now = time.monotonic_ns


class _Caller:
    """Thread that makes calls."""

    def __init__(self) -> None:
        self.intervals: deque[tuple[int, int]] = deque()
        """Intervals of its calls that are not written yet."""
        self.ready_ns = 0
        """End of its last interval."""
        self.last_result: Array | None = None
        """Result of its last call, if that was not there when the call returned, nor at the end of
        a wait of the thread since then."""
        self.busy_since_ns = 0
        """Time since which that result, or one before it, has kept the device busy."""
        self.is_queued = False
        """The waiting thread was given that result."""
        self.seen_count = 0
        """Results of which the thread has seen when they were there, less those that it missed."""

    def is_result_missing(self, now_ns: int) -> bool:
        """Return True if the last result is not there. If it is, since when is not known."""
        if not is_ready(self.last_result):
            if not self.is_queued:
                self.add_interval(self.busy_since_ns, now_ns)
            return True
        self.last_result = None
        # Further results that it has seen do not allow for more missed ones in a row.
        seen_count = min(self.seen_count, MIN_SEEN_COUNT + MISS_WEIGHT)
        self.seen_count = max(seen_count, MIN_SEEN_COUNT) - MISS_WEIGHT
        return False

    def add_interval(self, start_ns: int, end_ns: int) -> None:
        """Note that the device was busy, as far as that is not known yet."""
        start_ns = max(start_ns, self.ready_ns)
        if end_ns > start_ns:
            self.intervals.append((start_ns, end_ns))
            self.ready_ns = end_ns


class _ThisThread(threading.local):
    """The calling thread."""

    def __init__(self) -> None:
        self.caller = _Caller()


class _Computation(NamedTuple):
    """Computation of a result that was not there when the call returned."""

    result: Array
    busy_since_ns: int
    call_end_ns: int
    caller: _Caller
    """The thread that made the call."""


class DeviceTimes:
    """The waiting thread, which the first result that is queued starts, its queue, and the threads
    whose calls it watches."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin without a thread, as a forked child is."""
        self._queue: SimpleQueue[_Computation | None] = SimpleQueue()
        self._this_thread = _ThisThread()
        self._is_stopping = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def observe(self, result: Array | None, start_ns: int | None) -> None:
        """Watch a result, and write the intervals that are known by now.

        Args:
            result: result of a call; None if there is none to watch.
            start_ns: start of the call, monotonic; None if something was compiled in it.
        """
        caller = self._this_thread.caller
        if caller.intervals:
            self._write_intervals()
        if result is None:
            return
        now_ns = _now()
        is_busy = caller.last_result is not None and caller.is_result_missing(now_ns)
        caller.seen_count += is_busy
        if result.is_ready():
            if start_ns is not None and now_ns - start_ns >= MIN_INLINE_NS:
                _probe.write(Kind.DEVICE, PHASE, max(start_ns, caller.ready_ns), now_ns)
            return
        if not is_busy:
            caller.busy_since_ns = now_ns
        caller.last_result = result
        caller.is_queued = caller.seen_count < MIN_SEEN_COUNT
        if caller.is_queued:
            if self._thread is None:
                self._start()
            self._queue.put(_Computation(result, caller.busy_since_ns, now_ns, caller))

    def wait(self, name: str, original: Callable[..., Any], awaited: Any) -> Any:
        """Wait for an array that is not there, or for a structure of arrays, and record that.

        Args:
            name: name of the wait.
            original: function that waits, and returns what this one returns.
            awaited: its argument.
        """
        span = _wait_probe.start(Kind.DEVICE_WAIT, name)
        caller = self._this_thread.caller
        if caller.last_result is not None and caller.last_result is not awaited:
            _note_missing(caller)
        try:
            return original(awaited)
        finally:
            # The last result may be there now, which was not at the start of the wait.
            result = caller.last_result
            if result is not None and (awaited is result or is_ready(result)):
                self._note_result(caller)
            _wait_probe.end(span)

    def _note_result(self, caller: _Caller) -> None:
        """Note that the calling thread has waited until its last result was there."""
        try:
            caller.last_result = None
            caller.seen_count += 1
            if not caller.is_queued:
                if caller.intervals:
                    self._write_intervals()
                start_ns, now_ns = max(caller.busy_since_ns, caller.ready_ns), _now()
                _probe.write(Kind.DEVICE, PHASE, start_ns, now_ns)
                caller.ready_ns = now_ns
        except Exception as error:  # noqa: BLE001 - the guard
            _probe.fail(error)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._is_stopping:
                thread = threading.Thread(target=self._wait, name="stepscope-device", daemon=True)
                thread.start()
                self._thread = thread

    def stop(self) -> None:
        """End the thread, and write the last intervals of the calling thread.

        A thread that waits outside of Python while the interpreter ends would abort the process. So
        the result that it waits for is awaited, however long that takes, as JAX itself does when
        the process ends. What is still queued is not: it is computed after all calls.
        """
        with self._lock:
            self._is_stopping = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
        self._write_intervals()

    def _write_intervals(self) -> None:
        intervals = self._this_thread.caller.intervals
        while intervals:
            _probe.write(Kind.DEVICE, PHASE, *intervals.popleft())

    def _wait(self) -> None:
        while (computation := self._queue.get()) is not None:
            must_wait = not (self._is_stopping or is_ready(computation.result))
            # Since when a result is there is not known, but its call found the device busy.
            end_ns = self._await(computation.result) if must_wait else computation.call_end_ns
            if end_ns is not None:
                computation.caller.add_interval(computation.busy_since_ns, end_ns)
            del computation  # before the thread rests: it must not keep memory
            if must_wait:
                time.sleep(PAUSE_S)

    def _await(self, result: Array) -> int | None:
        """Wait for a result and return the time; None if that is not known."""
        try:
            await_unrecorded(result)
        except RuntimeError:  # a later call was given the array, or the computation failed
            return None
        return _now()


@_probe.protect
def _note_missing(caller: _Caller) -> None:
    caller.is_result_missing(_now())


times = DeviceTimes()
atexit.register(times.stop)
os.register_at_fork(after_in_child=times.reset)
