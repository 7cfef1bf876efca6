"""Compilations of torch.compile, through the callbacks that the compiler itself offers.

They come around every compilation, also a later one for shapes that were not seen before and that
of a backward pass, which waits for the first call of it. Those of other threads that overlap count
as one to the compiler, so that a begin is always followed by its end.
"""

from __future__ import annotations

import sys
from typing import Any

from stepscope.capture.guard import OpenSpan, Probe
from stepscope.spool import Kind

_probe = Probe("compilations", coarse=True)
_open: OpenSpan | None = None


def install() -> None:
    """Register the callbacks; a PyTorch without them (before 2.4) is left alone."""
    callbacks: Any = sys.modules["torch._dynamo.callback"]
    if hasattr(callbacks, "on_compile_start") and hasattr(callbacks, "on_compile_end"):
        callbacks.on_compile_start(_begin)
        callbacks.on_compile_end(_end)


def _begin(arguments: Any = None, *_: Any) -> None:
    """Called with what is compiled; older versions say nothing."""
    global _open
    trigger = getattr(getattr(arguments, "callback_trigger", None), "name", "")
    _open = _probe.begin(Kind.COMPILE, trigger.lower(), value=_attempt(arguments))


def _end(*_: Any) -> None:
    global _open
    span, _open = _open, None
    _probe.end(span)


def _attempt(arguments: Any) -> int:
    """How often the same code was compiled before: the end of an id such as `3/1`."""
    _, found, attempt = str(getattr(arguments, "compile_id", "")).rpartition("/")
    digits = attempt.partition("_")[0]
    return int(digits) if found and digits.isdecimal() else 0
