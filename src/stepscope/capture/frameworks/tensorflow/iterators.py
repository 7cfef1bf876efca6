"""The wait for tf.data and for strategies, in Python and in compiled functions.

A compiled function, such as that of `Model.fit`, waits inside its graph. Where it takes a batch
from an iterator, two operations that read the clock are added to the graph, and their difference is
added to a variable that no model has. It is read after each call. The batches stay as they are.

When an iterator is destroyed, at the end of an epoch, the thread that drops it waits for the
threads of the pipeline: for seconds on a busy machine. It is recorded as a wait without a batch.

Strategies of `tf.distribute`: their number of replicas, and waits for their batches. What replicas
wait for each other is not recorded: they exchange data inside compiled functions.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from stepscope.capture import session
from stepscope.capture.frameworks.progress import (
    UNKNOWN_COUNT,
    progress,
    start_iterator,
    take_batch,
)
from stepscope.capture.frameworks.tables import TENSORFLOW
from stepscope.capture.frameworks.tensorflow import functions
from stepscope.capture.frameworks.tensorflow.functions import Contents
from stepscope.capture.guard import Probe
from stepscope.spool import Flag, Kind

NAME = "tf.data"
_probe = Probe("waits for tf.data", coarse=True)
_end_probe = Probe("the end of iterators of tf.data", coarse=True)
_clock_probe = Probe("waits for tf.data in compiled functions", coarse=True)
_now = time.monotonic_ns
UNKNOWN_UNDER_STRATEGY = (
    "waits for batches in functions that are compiled in the scope of a strategy of tf.distribute "
    "are not known: they count as time of the functions"
)


class _GraphClock:
    """Clock inside graphs: the sum of the waits."""

    def __init__(self) -> None:
        self._start: Any = None
        """Tensor with the time before the batch that is being taken; None without one."""
        self._sum_s: Any = None
        """Variable of TensorFlow, in seconds."""
        self._known_s = 0.0
        self._notes_strategy = True

    def start(self) -> None:
        """Add an operation that reads the clock to the graph that is being traced."""
        tf = sys.modules["tensorflow"]
        self._start = None
        if tf.distribute.has_strategy():  # a variable would be on several devices
            if self._notes_strategy:
                self._notes_strategy = False
                _clock_probe.note(UNKNOWN_UNDER_STRATEGY)
            return
        if self._sum_s is None:
            with tf.init_scope(), tf.device("CPU:0"):
                self._sum_s = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self._start = tf.timestamp()

    def measure(self, take: Callable[[], Any], tensors_of: Callable[[Any], Any]) -> Any:
        """Take a batch in the graph, and measure the wait for it.

        Args:
            take: returns the batch; what it raises is passed on.
            tensors_of: returns the tensors of a batch; if it fails, waits are no longer measured.
        """
        _start_clock()
        start, self._start = self._start, None
        if start is None:
            return take()
        with sys.modules["tensorflow"].control_dependencies([start]):
            batch = take()
        _end_clock(start, batch, tensors_of)
        return batch

    def end(self, start: Any, batch: Any, tensors_of: Callable[[Any], Any]) -> None:
        """Add the time since the start to the sum once the tensors of the batch are there."""
        tf = sys.modules["tensorflow"]
        with tf.control_dependencies(tensors_of(batch)):
            wait_s = tf.timestamp() - start
        self._sum_s.assign_add(wait_s)
        functions.add_contents(Contents.WAIT)

    def record(self, start_ns: int, end_ns: int) -> None:
        """Record the wait of a call that has ended, at its start."""
        tf = sys.modules["tensorflow"]
        # What `Variable.numpy` does, in a third of its time.
        read = tf.raw_ops.ReadVariableOp(resource=self._sum_s.handle, dtype=tf.float64)
        sum_s = float(read.numpy())
        wait_ns = round((sum_s - self._known_s) * 1e9)
        self._known_s = sum_s
        end_ns = min(start_ns + wait_ns, end_ns)
        progress.data_wait_ns += end_ns - start_ns
        _clock_probe.write(Kind.DATA_WAIT, NAME, start_ns, end_ns, UNKNOWN_COUNT)


class _ThisThread(threading.local):
    """The calling thread."""

    is_taking = False
    """It takes a batch, which consists of those of several iterators."""


_this_thread = _ThisThread()
_clock = _GraphClock()
_start_clock = _clock_probe.protect(_clock.start)
_end_clock = _clock_probe.protect(_clock.end)


def install() -> None:
    """Patch the iterators of datasets."""
    TENSORFLOW.patch("next", _timed_next)
    TENSORFLOW.patch("optional", _timed_optional)
    TENSORFLOW.patch("create_iterator", _timed_start)
    owner = TENSORFLOW.owner("iterator")
    if owner is not None and not hasattr(owner[0], "__del__"):
        owner[0].__del__ = _end_probe.protect(_destroy)
    functions.wait_listener = _clock_probe.protect(_clock.record)


def take_whole_batch(take: Callable[[], Any]) -> Any:
    """Take a batch that consists of those of several iterators, and record one wait for it."""
    _this_thread.is_taking = True
    try:
        return take_batch(_probe, NAME, take)
    finally:
        _this_thread.is_taking = False


def _timed_next(original: Callable[..., Any]) -> Callable[..., Any]:
    def _next_internal(self: Any) -> Any:
        if functions.is_tracing():
            return _clock.measure(lambda: original(self), _flatten)
        if _this_thread.is_taking or not functions.is_eager():
            return original(self)
        return take_batch(_probe, NAME, original, self)

    return _next_internal


def _timed_start(original: Callable[..., Any]) -> Callable[..., Any]:
    def _create_iterator(self: Any, *args: Any, **kwargs: Any) -> Any:
        return start_iterator(_probe, NAME, lambda: original(self, *args, **kwargs))

    return _create_iterator


def _timed_optional(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_next_as_optional(self: Any) -> Any:
        if not functions.is_tracing():
            return original(self)
        return _clock.measure(lambda: original(self), lambda batch: [batch._variant_tensor])

    return get_next_as_optional


def _destroy(iterator: Any) -> None:
    """Destroy the resource of an iterator that the script created, and record the wait."""
    if not session.live or "_dataset" not in vars(iterator) or not functions.is_eager():
        return
    start_ns = _now()
    span = _end_probe.start(Kind.DATA_WAIT, NAME, UNKNOWN_COUNT)
    vars(iterator).pop("_iterator_resource", None)
    _end_probe.end(span, flags=Flag.NO_RESULT)
    progress.data_wait_ns += _now() - start_ns


def _flatten(batch: Any) -> Any:
    return sys.modules["tensorflow"].nest.flatten(batch, expand_composites=True)


_strategy_probe = Probe("replicas of TensorFlow")


def install_strategies() -> None:
    """Patch strategies, and the iterators that give each replica its batch."""
    TENSORFLOW.patch("strategy", _noting_replicas)
    TENSORFLOW.patch("replicas_next", _timed_next_of_replicas)


def _noting_replicas(original: Callable[..., Any]) -> Callable[..., Any]:
    counts: set[int] = set()

    @_strategy_probe.protect
    def note_replicas(strategy: Any) -> None:
        count = int(strategy.num_replicas_in_sync)
        if count > 1 and count not in counts:
            counts.add(count)
            _strategy_probe.fact("replicas", count=count)

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        note_replicas(self)
        return original(self, *args, **kwargs)

    return run


def _timed_next_of_replicas(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_next(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not functions.is_eager():
            return original(self, *args, **kwargs)
        return take_whole_batch(lambda: original(self, *args, **kwargs))

    return get_next
