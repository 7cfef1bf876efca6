"""Training steps, gradients and predictions, in calls of `tf.function` or eagerly.

While a function is traced, its Python code runs. What it calls then is what its graph does in every
call: `Contents` of the functions that are being traced. An outermost call is recorded by them:

    it updates weights      optimizer step: the whole step is one call
    it computes gradients   backward pass, with the forward pass before it
    it calls a model        forward pass without gradients
    anything else           not recorded

Gradients and updates of a loop with `tf.GradientTape`. Optimizers are those of Keras, which its
adapter records, and those of TensorFlow 1.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from stepscope.capture import session
from stepscope.capture.frameworks import objects
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.tables import TENSORFLOW
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Flag, Kind

_probe = Probe("calls of tf.function", coarse=True)
_trace_probe = Probe("tracing of tf.function")
_now = time.monotonic_ns
_tf: Any = sys.modules["tensorflow"]
_executing_eagerly: Callable[[], bool] = _tf.executing_eagerly
_run_eagerly: Callable[[], bool] = _tf.config.functions_run_eagerly


class Contents:
    """Bits of what a function does."""

    UPDATE = 1
    GRADIENT = 2
    MODEL = 4
    WAIT = 8
    """It takes batches from an iterator, and measures the wait."""


class _Calls(threading.local):
    """Functions that a thread calls, the outermost first; inner ones only while it traces."""

    def __init__(self) -> None:
        self.functions: list[Any] = []


_calls = _Calls()
_open: dict[int, list[Any]] = {}
"""Functions of each thread that calls one: a strategy traces its replicas in threads without."""
_contents: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_trace_counts: dict[str, int] = {}
_has_trained = False
_has_worked = False
wait_listener: Callable[[int, int], None] | None = None
"""Called with start and end of each recorded call that takes batches from an iterator."""


def install() -> None:
    """Patch `Function.__call__`, and the tracing of functions."""
    function = TENSORFLOW.find("function") or type(_tf.function(lambda: None))
    patch(function, "__call__", _recorded)
    TENSORFLOW.patch("trace", _timed_trace)


def is_eager() -> bool:
    """Return True if operations run where Python calls them, and not in a graph."""
    return bool(_executing_eagerly())


def is_tracing() -> bool:
    """Return True while this thread traces a function that the job calls."""
    return bool(_calls.functions) and not is_eager()


def add_contents(bits: int) -> None:
    """Add to the contents of the functions that are being traced by this thread, or, if it has
    called none, by the others."""
    for function in _calls.functions or [*itertools.chain(*_open.values())]:
        _contents[function] = _contents.get(function, 0) | bits


def is_eager_step() -> bool:
    """Return True if an update of weights runs eagerly; else note that the functions that are
    being traced update weights."""
    if is_eager():
        return True
    add_contents(Contents.UPDATE)
    return False


def note_step() -> None:
    """Note that weights have been updated."""
    global _has_trained, _has_worked
    _has_trained = _has_worked = True
    progress.notify_optimizer_step()


def has_trained() -> bool:
    """Return True if weights have been updated."""
    return _has_trained


def has_worked() -> bool:
    """Return True if weights have been updated, gradients computed or models called."""
    return _has_worked


def _recorded(original: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        functions = _calls.functions
        if functions:
            functions.append(self)
            try:
                return original(self, *args, **kwargs)
            finally:
                functions.pop()
                add_contents(_contents.get(self, 0))  # it may have been traced before
        if not _executing_eagerly() or _run_eagerly():
            return original(self, *args, **kwargs)
        progress.notify_work_start()
        functions.append(self)
        thread = threading.get_ident()
        _open[thread] = functions
        start_ns = _now()
        try:
            result = original(self, *args, **kwargs)
        finally:
            functions.pop()
            _open.pop(thread, None)
        if session.live and _probe.alive:
            _record(self, start_ns, _now())
        return result

    return __call__


def _record(function: Any, start_ns: int, end_ns: int) -> None:
    global _has_worked
    try:
        contents, name = _contents.get(function, 0), _name_of(function)
        _has_worked = _has_worked or bool(contents & ~Contents.WAIT)
        if contents & Contents.UPDATE:
            objects.optimizers.note(function, name, id(function))
            _probe.write(Kind.OPTIMIZER, name, start_ns, end_ns, id(function))
            note_step()
        elif contents & Contents.GRADIENT:
            _probe.write(Kind.BACKWARD, name, start_ns, end_ns)
        elif contents & Contents.MODEL:
            flags = Flag.NO_GRAD | (0 if progress.has_optimizer else Flag.NO_OPTIMIZER)
            _probe.write(Kind.FORWARD, name, start_ns, end_ns, id(function), flags)
            if not progress.has_optimizer:
                progress.notify_prediction()
        if contents & Contents.WAIT and wait_listener is not None:
            wait_listener(start_ns, end_ns)
    except Exception as error:  # noqa: BLE001 - the guard
        _probe.fail(error)


def _name_of(function: Any) -> str:
    return str(getattr(function, "_name", "function"))


def _timed_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    def trace(*args: Any, **kwargs: Any) -> Any:
        if len(_calls.functions) != 1:  # a part of another one, or none that the job calls
            return original(*args, **kwargs)
        name = _name_of(_calls.functions[0])
        count = _trace_counts.get(name, 0)
        _trace_counts[name] = count + 1
        span = _trace_probe.start(Kind.COMPILE, f"tf.function {name}", count)
        try:
            return original(*args, **kwargs)
        finally:
            _trace_probe.end(span)

    return trace


_gradient_probe = Probe("gradients of TensorFlow", coarse=True)
_update_probe = Probe("optimizers of TensorFlow 1", coarse=True)


def install_gradients() -> None:
    """Patch `GradientTape.gradient` and the base class of TensorFlow 1's optimizers."""
    patch(_tf.GradientTape, "gradient", _timed_gradient)
    _patch_optimizers()


@_update_probe.protect
def _patch_optimizers() -> None:
    patch(_tf.compat.v1.train.Optimizer, "apply_gradients", _timed_update)


def _timed_gradient(original: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_eager():
            add_contents(Contents.GRADIENT)
            return original(self, *args, **kwargs)
        span = _gradient_probe.start(Kind.BACKWARD, "GradientTape.gradient")
        try:
            return original(self, *args, **kwargs)
        finally:
            _gradient_probe.end(span)

    return gradient


def _timed_update(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_gradients(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_eager_step():
            return original(self, *args, **kwargs)
        name, identity = type(self).__name__, id(self)
        objects.optimizers.note(self, name, identity)
        span = _update_probe.start(Kind.OPTIMIZER, name, identity)
        try:
            return original(self, *args, **kwargs)
        finally:
            _update_probe.end(span)
            note_step()

    return apply_gradients
