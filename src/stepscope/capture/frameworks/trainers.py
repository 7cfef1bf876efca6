"""Shared parts of adapters of trainers: callbacks by class, modes, logged numbers."""

from __future__ import annotations

import time
import types

from stepscope.capture import session
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import CALLBACK_PREFIX, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from typing import Any

_probe = Probe("callbacks of the trainer")
_mode_probe = Probe("modes of the trainer", coarse=True)
_scalar_probe = Probe("numbers that the trainer logs")
_timed_classes: set[type] = set()


def time_methods(instance: object, base: type, names: Container[str]) -> None:
    """Record calls of the methods of an instance's classes below a base class, by class.

    Args:
        instance: a callback or logger; its class is patched, once.
        base: methods that the base class itself has do nothing and are not recorded.
        names: names of the methods.
    """
    if type(instance) in _timed_classes:
        return
    _timed_classes.add(type(instance))
    for owner in type(instance).__mro__:
        if owner is base:
            break
        for name, method in list(vars(owner).items()):
            is_plain = isinstance(method, types.FunctionType)  # a static method gets no instance
            if name in names and is_plain and not hasattr(method, "_is_timed"):
                patch(owner, name, _timed)
                getattr(owner, name)._is_timed = True


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    suffix = f".{original.__name__}"

    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not session.live:
            return original(self, *args, **kwargs)
        span = _probe.start(Kind.ANNOTATION, CALLBACK_PREFIX + type(self).__name__ + suffix)
        try:
            return original(self, *args, **kwargs)
        finally:
            _probe.end(span)

    return timed


def record_as(kind: int, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a wrapper that records each call of a function as an interval of a kind."""

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            span = _mode_probe.start(kind, name)
            try:
                return original(*args, **kwargs)
            finally:
                _mode_probe.end(span)

        return recorded

    return make_wrapper


def record_logged(parameter: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a wrapper of a method that logs the numbers of a dictionary.

    Args:
        parameter: name of the method's first parameter, the dictionary.
    """

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def log(self: Any, *args: Any, **kwargs: Any) -> Any:
            values = args[0] if args else kwargs.get(parameter)
            if isinstance(values, dict):
                record_numbers(values)
            return original(self, *args, **kwargs)

        return log

    return make_wrapper


@_scalar_probe.protect
def record_numbers(values: Mapping[str, object]) -> None:
    """Record the numbers among logged values as scalars; tensors, which may be on a device, are
    left out."""
    if not session.live:
        return
    t_ns = time.monotonic_ns()
    for name, value in values.items():
        if type(value) in (int, float):
            _scalar_probe.scalar(str(name), float(value), t_ns)  # type: ignore[arg-type]
