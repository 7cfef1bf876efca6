"""Calls of functions that the script compiles with `jax.jit`, and the steps that they end.

A call returns before the device has computed: its duration is that of dispatching the computation,
and of compiling it if it is new. Steps are those that the script marks. Without marks, each call of
one function ends a step: the one that returns the most state, of those that are called regularly.
`analysis.compiled_steps` finds that function again, with knowledge of the whole run.
"""

from __future__ import annotations

import functools
import operator
import time
import types
import weakref
from collections.abc import Callable
from typing import Any

import jax

from stepscope.capture import session
from stepscope.capture.frameworks.jax import compilations, device_times
from stepscope.capture.frameworks.jax.call_shape import NOT_DESCRIBED, describe_call
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.guard import OpenSpan, Probe
from stepscope.capture.patching import patch
from stepscope.spool import Kind

MIN_CALL_RATIO = 1 / 64
"""Functions that are called less often than this share of the most often called one that returns
state do not train."""

_probe = Probe("calls of compiled functions", coarse=True)
_now = time.monotonic_ns


@_probe.protect
def install() -> None:
    """Replace `jax.jit`, and time what is compiled ahead of time."""
    from jax._src.core import trace_state_clean  # here, so that without it only this probe fails

    JittedFunction.is_outermost = staticmethod(trace_state_clean)
    patch(jax, "jit", _recording_jit)
    patch(jax.stages.Compiled, "__call__", _timed_compiled)


def has_calls() -> bool:
    """Return True if the process has called compiled functions."""
    return any(calls.call_count for calls in _calls.values())


class Calls:
    """Calls of the functions of one name, whose records cannot be told apart."""

    __slots__ = ("call_count", "state_bytes", "state_call_count")

    def __init__(self) -> None:
        self.call_count = 0
        self.state_call_count = 0
        """Calls that returned state."""
        self.state_bytes = 0
        """State that a call returned, the most of all calls."""


_calls: dict[str, Calls] = {}
_training_calls: Calls | None = None
"""Calls of the function that trains, as of the last call of another one that returned state."""


class Function:
    """Compiled function."""

    __slots__ = ("_calls", "_shape", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._calls = _calls.setdefault(name, Calls())
        self._shape = NOT_DESCRIBED

    def call(self, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the original and record the call."""
        progress.notify_work_start()
        compilation_count = compilations.counter.count
        start_ns = _now()
        span = _probe.start(Kind.DISPATCH, self.name)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            _probe.abandon(span)
            raise
        if span is not None:
            is_new = compilations.counter.count != compilation_count
            if _probe.alive:
                self._follow(span, (args, kwargs), result, None if is_new else start_ns)
            else:  # a call of another thread has failed meanwhile
                _probe.abandon(span)
        return result

    @_probe.protect
    def _follow(self, span: OpenSpan, arguments: Any, result: Any, start_ns: int | None) -> None:
        """End the interval of a call, watch its result, and end a step if this function trains.

        Args:
            span: interval of the call.
            arguments: arguments of the call.
            result: what it returned.
            start_ns: start of the call, monotonic; None if something was compiled in it.
        """
        global _training_calls
        try:
            array = self._shape.find_result(result)
            if array is None and (self._shape.steps is not None or self._shape is NOT_DESCRIBED):
                self._shape = describe_call(arguments, result)  # the first, or of another structure
                array = self._shape.find_result(result)
        finally:
            _probe.end(span, value=self._shape.state_bytes)
        calls = self._calls
        calls.call_count += 1
        device_times.times.observe(array, start_ns)
        if state_bytes := self._shape.state_bytes:
            calls.state_call_count += 1
            if state_bytes > calls.state_bytes:
                calls.state_bytes = state_bytes
            if calls is not _training_calls:  # whose further calls change nothing
                _training_calls = _find_training_calls()
            if calls is _training_calls:
                progress.notify_optimizer_step()


def _find_training_calls() -> Calls:
    limit = MIN_CALL_RATIO * max(calls.state_call_count for calls in _calls.values())
    regular = [calls for calls in _calls.values() if calls.state_call_count >= limit]
    return max(regular, key=lambda calls: (calls.state_bytes, calls.state_call_count))


class JittedFunction:
    """Stand-in for a function that `jax.jit` has returned, which records its calls.

    It has the attributes of the original, and is pickled as the original.
    """

    is_outermost: Callable[[], bool]
    """True outside of the transformations of JAX."""

    def __init__(self, original: Any) -> None:
        functools.update_wrapper(self, original)
        self.__wrapped__ = getattr(original, "__wrapped__", original)
        self._original = original
        name = f"jit({getattr(original, '__name__', type(original).__name__)})"
        self._function = Function(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not session.live or not self.is_outermost():
            return self._original(*args, **kwargs)
        return self._function.call(self._original, args, kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return operator.itemgetter(0), ((self._original,),)

    def __repr__(self) -> str:
        return repr(self._original)

    def __getattr__(self, name: str) -> Any:
        if name == "_original":  # of an instance without attributes yet
            raise AttributeError(name)
        return getattr(self._original, name)

    # `jax.stages.Wrapped` is a protocol, of which instances are recognized by their methods.

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lower the function; see `jax.stages.Wrapped.lower`."""
        return self._original.lower(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Trace the function; see `jax.stages.Wrapped.trace`."""
        return self._original.trace(*args, **kwargs)


def _recording_jit(original: Callable[..., Any]) -> Callable[..., Any]:
    def jit(*args: Any, **kwargs: Any) -> Any:
        jitted = original(*args, **kwargs)
        if hasattr(jitted, "lower"):
            return JittedFunction(jitted) if _probe.alive else jitted

        @functools.wraps(jitted)
        def decorate(function: Callable[..., Any]) -> Any:
            return jit(function, **kwargs)

        return decorate

    return jit


def _timed_compiled(original: Callable[..., Any]) -> Callable[..., Any]:
    functions: weakref.WeakKeyDictionary[Any, Function] = weakref.WeakKeyDictionary()

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not session.live or not JittedFunction.is_outermost():
            return original(self, *args, **kwargs)
        function = functions.get(self)
        if function is None:
            executable = getattr(self, "_executable", None)
            name = getattr(getattr(executable, "unsafe_call", None), "name", "compiled function")
            function = functions[self] = Function(name)
        return function.call(original, (self, *args), kwargs)

    return call
