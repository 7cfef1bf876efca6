"""Waits of the host for results: `block_until_ready`, and values of arrays that are read."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax

from stepscope.capture import session
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Kind

_probe = Probe("waits for the device", coarse=True)
await_unrecorded: Callable[[Any], Any] = operator.methodcaller("block_until_ready")
"""Wait for an array without a record of it."""
listeners: list[tuple[Callable[[Any], None], Callable[[Any], None]]] = []
"""Functions to call at the start and at the end of a wait; they must not raise. What is awaited is
an array that is not there, or a structure of arrays."""


@_probe.protect
def install() -> None:
    """Patch `jax.block_until_ready`, and the method and the property of arrays that wait."""
    global await_unrecorded
    from jax._src.array import ArrayImpl  # here, so that without it only this probe fails

    patch(jax, "block_until_ready", _timed)
    arrays: Any = ArrayImpl  # whose methods are compiled, and have no names that `patch` could copy
    await_unrecorded = arrays.block_until_ready
    arrays.block_until_ready = _timed_method(arrays.block_until_ready)
    # Conversions to numbers and to arrays of NumPy all read this property.
    arrays._value = property(_timed_method(arrays._value.fget))


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    from jax._src.array import ArrayImpl

    def block_until_ready(values: Any) -> Any:
        if not session.live or (isinstance(values, ArrayImpl) and is_ready(values)):
            return original(values)
        return _record("block_until_ready", original, values)

    return block_until_ready


def _timed_method(original: Callable[..., Any]) -> Callable[..., Any]:
    def block_until_ready(array: Any) -> Any:
        if not session.live or is_ready(array):
            return original(array)
        return _record("array", original, array)

    return block_until_ready


def await_argument(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make a wrapper of a function that reads the value of its argument, which waits first.

    NumPy reads an array of the host through the buffer protocol: that waits as well, but in no
    method that is patched here.
    """
    from jax._src.array import ArrayImpl

    def read(value: Any) -> Any:
        if session.live and isinstance(value, ArrayImpl) and not is_ready(value):
            _record("array", await_unrecorded, value)
        return original(value)

    return read


def _record(name: str, original: Callable[..., Any], awaited: Any) -> Any:
    span = _probe.start(Kind.DEVICE_WAIT, name)
    for start, _ in listeners:
        start(awaited)
    try:
        return original(awaited)
    finally:
        for _, end in listeners:
            end(awaited)
        _probe.end(span)


def is_ready(array: Any) -> bool:
    """Return True if an array is computed, or has been donated: then nothing waits for it."""
    try:
        return bool(array.is_ready())
    except RuntimeError:
        return True
