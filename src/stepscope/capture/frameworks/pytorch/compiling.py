"""Compilations of torch.compile, through the compiler's callbacks.

The callbacks surround every compilation, including recompilations for new shapes and the deferred
compilation of a backward pass at its first call. The compiler merges overlapping compilations of
several threads into one, so that a start is always followed by its end.
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
        callbacks.on_compile_start(_start)
        callbacks.on_compile_end(_end)


@_probe.protect
def _start(arguments: Any = None, *_: Any) -> None:
    """Start an interval. Older versions pass no description of the compilation."""
    global _open
    trigger = getattr(getattr(arguments, "callback_trigger", None), "name", "")
    _open = _probe.start(Kind.COMPILE, trigger.lower(), value=_attempt(arguments))


def _end(*_: Any) -> None:
    global _open
    span, _open = _open, None
    _probe.end(span)


def _attempt(arguments: Any) -> int:
    """Return the number of earlier compilations of the code: the last part of an id like `3/1`."""
    _, separator, attempt = str(getattr(arguments, "compile_id", "")).rpartition("/")
    digits = attempt.partition("_")[0]
    return int(digits) if separator and digits.isdecimal() else 0
