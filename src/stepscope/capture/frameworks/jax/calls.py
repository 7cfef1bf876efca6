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
from collections.abc import Callable
from typing import Any

import jax

from stepscope.capture import session
from stepscope.capture.frameworks.jax import compilations, device_times
from stepscope.capture.frameworks.jax.call_shape import CallShape, describe_call, find_nothing
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.guard import Probe
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
    return any(function.call_count for function in _functions.values())


class Function:
    """Compiled functions of one name."""

    __slots__ = ("call_count", "name", "shape")

    def __init__(self, name: str) -> None:
        self.name = name
        self.call_count = 0
        self.shape = CallShape(0, find_nothing)

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
            if not self.call_count:
                self._describe((args, kwargs), result)
            _probe.end(span, value=self.shape.state_bytes)
            is_new = compilations.counter.count != compilation_count
            self._follow(result, None if is_new else start_ns)
        return result

    @_probe.protect
    def _describe(self, arguments: Any, result: Any) -> None:
        self.shape = describe_call(arguments, result)

    @_probe.protect
    def _follow(self, result: Any, start_ns: int | None) -> None:
        """Watch a result, and end a step if this is the function that trains.

        Args:
            result: what a call returned.
            start_ns: start of the call, monotonic; None if something was compiled in it.
        """
        self.call_count += 1
        device_times.observe(self.shape.find_result(result), start_ns)
        if self.shape.state_bytes and self is _find_training_function():
            progress.notify_optimizer_step()


_functions: dict[str, Function] = {}


def _find_training_function() -> Function:
    functions = [function for function in _functions.values() if function.shape.state_bytes]
    limit = MIN_CALL_RATIO * max(function.call_count for function in functions)
    regular = [function for function in functions if function.call_count >= limit]
    return max(regular, key=lambda function: (function.shape.state_bytes, function.call_count))


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
        self._function = _functions.setdefault(name, Function(name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not session.live or not self.is_outermost():
            return self._original(*args, **kwargs)
        return self._function.call(self._original, args, kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

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
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not session.live or not JittedFunction.is_outermost():
            return original(self, *args, **kwargs)
        executable = getattr(self, "_executable", None)
        name = getattr(getattr(executable, "unsafe_call", None), "name", "compiled function")
        function = _functions.setdefault(name, Function(name))
        return function.call(original, (self, *args), kwargs)

    return call
