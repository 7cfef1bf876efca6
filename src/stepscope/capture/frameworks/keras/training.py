"""Modes, epochs, callbacks, checkpoints and logged numbers of Keras.

Classes are patched: no callback is added, and the callbacks of the script stay as they are.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from stepscope.capture.frameworks.trainers import record_as, record_numbers, time_methods
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Kind

MODES = {
    "evaluate": "EVAL",
    "test_on_batch": "EVAL",
    "predict": "PREDICT",
    "predict_on_batch": "PREDICT",
}
SAVES = ("save", "save_weights")
_probe = Probe("epochs and callbacks of Keras")
_mode_probe = Probe("modes and checkpoints of Keras")
_thread = threading.local()
"""`.epoch` is the open interval of an epoch."""


def install() -> None:
    """Patch `Model` and `CallbackList`."""
    _patch_model()
    _patch_callbacks()


@_mode_probe.protect
def _patch_model() -> None:
    model = sys.modules["keras.src.models.model"].Model
    for name, mode in MODES.items():
        patch(model, name, record_as(Kind.MODE, mode))
    for name in SAVES:
        patch(model, name, record_as(Kind.CHECKPOINT, f"Model.{name}"))


@_probe.protect
def _patch_callbacks() -> None:
    callbacks = sys.modules["keras.src.callbacks.callback_list"].CallbackList
    base = sys.modules["keras.src.callbacks.callback"].Callback
    patch(callbacks, "__init__", _times_callbacks(base))
    patch(callbacks, "on_epoch_begin", _starts_epoch)
    patch(callbacks, "on_epoch_end", _ends_epoch)


def _times_callbacks(base: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    hooks = [name for name in vars(base) if name.startswith("on_")]

    @_probe.protect
    def time_all(callbacks: Any) -> None:
        for instance in callbacks.callbacks:
            time_methods(instance, base, hooks)

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            time_all(self)

        return __init__

    return make_wrapper


def _starts_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    def on_epoch_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        _probe.end(getattr(_thread, "epoch", None))  # an epoch that a callback has ended by raising
        _thread.epoch = _probe.start(Kind.ANNOTATION, "epoch")
        return original(self, *args, **kwargs)

    return on_epoch_begin


def _ends_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> Any:
        if isinstance(logs, dict):
            record_numbers(logs)
        try:
            return original(self, epoch, logs)
        finally:
            _probe.end(getattr(_thread, "epoch", None))
            _thread.epoch = None

    return on_epoch_end
