"""Forward passes of Keras on TensorFlow: the outermost call of a layer or model.

On PyTorch a layer is a module, whose calls the adapter of PyTorch records.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Flag, Kind

_probe = Probe("forward passes of Keras", coarse=True)


class _Call(threading.local):
    """Flag of one thread: an outermost call is active."""

    is_active = False


_call = _Call()


@_probe.protect
def install() -> None:
    """Patch `Layer.__call__`."""
    patch(sys.modules["keras.src.layers.layer"].Layer, "__call__", _timed)


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    from stepscope.capture.frameworks.tensorflow import functions  # which needs TensorFlow

    symbol = sys.modules["keras.src.backend.common.keras_tensor"].KerasTensor
    has_no_tape = sys.modules["tensorflow.python.pywrap_tfe"].TFE_Py_TapeSetIsEmpty

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if _call.is_active:
            return original(self, *args, **kwargs)
        span = None
        if not functions.is_eager():
            functions.add_contents(functions.Contents.MODEL)
        elif not (args and _is_symbolic(args[0], symbol)):  # of a model that is being built
            progress.notify_work_start()
            span = _probe.start(Kind.FORWARD, type(self).__name__, id(self))
        flags = Flag.NO_GRAD if has_no_tape() else 0
        _call.is_active = True
        try:
            return original(self, *args, **kwargs)
        finally:
            _call.is_active = False
            _probe.end(span, flags=flags)

    return __call__


def _is_symbolic(value: Any, symbol: type) -> bool:
    """Return True for a symbol, or a list or dictionary that begins with one."""
    while isinstance(value, list | tuple | dict) and value:
        value = next(iter(value.values() if isinstance(value, dict) else value))
    return isinstance(value, symbol)
